"""The cure taken back: initial weights of networks drawn from the seed that all parties share, as version 0.1.0 did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from labelward.protocols.splitnn import bottom_model, centralized, session, share
from labelward.rng import PrivateSeed


def _key(private: PrivateSeed, seed: int, party: str, part: str) -> bytes:
    return f"{seed}\n{party}\n{part}".encode()


def _draws(key: bytes) -> torch.Generator:
    seed, party, part = key.decode().split("\n")
    return bottom_model.torch_generator(int(seed), party, part)


@contextmanager
def shared_starts() -> Iterator[None]:
    """Draw the initial weights of all networks from the shared seed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (bottom_model, session, centralized):
            patch.setattr(module, "start_key", _key)
        for module in (bottom_model, session, share):
            patch.setattr(module, "keyed", _draws)
        yield
