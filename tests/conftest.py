"""Loaded before any test: its folder is importable, so that ``wiring`` is, from every folder below."""

from __future__ import annotations

from hypothesis import settings

# Compiled kernels make the first example of a property slow and the others fast: no example has a time limit.
settings.register_profile("labelward", deadline=None)
settings.load_profile("labelward")
