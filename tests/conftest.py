"""Loaded before any test: its folder is importable, so that ``wiring`` is, from every folder below."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from labelward.rng import PrivateSeed

# Compiled kernels make the first example of a property slow and the others fast: no example has a time limit.
# A developer's machine draws new examples in each run; CI the same in every run, so that it judges the change alone.
settings.register_profile("labelward", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("labelward")

# What parties draw privately is the same in every run of the tests; the original is tested as DRAWN.
DRAWN = PrivateSeed.drawn
setattr(PrivateSeed, "drawn", classmethod(lambda cls, protection=None: cls(bytes(cls.SIZE))))  # noqa: B010

TORCH_SEED = int(os.environ.get("LABELWARD_TEST_SEED", "0"))


@pytest.fixture(autouse=True)
def the_same_weights_in_any_order() -> None:
    """A module made in a test draws its weights from torch's own generator, which other tests have drawn from."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(TORCH_SEED)
