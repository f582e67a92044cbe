"""Inputs near valid ones: bytes changed, inserted, removed, repeated, and parts of two joined."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

_BYTES = st.binary(min_size=1, max_size=9)
_TELLING_BYTES = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
_TELLING = st.sampled_from(_TELLING_BYTES)


@st.composite
def changed(draw: st.DrawFn, inputs: Sequence[bytes]) -> bytes:
    """Return a strategy for inputs near those given."""
    data = bytearray(draw(st.sampled_from(inputs)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 | 1:
                data[place : place + 1] = draw(st.one_of(_BYTES, _TELLING))
            case 2:
                data[place:place] = draw(st.one_of(_BYTES, _TELLING))
            case 3:
                del data[place : place + draw(st.integers(1, 64))]
            case _:
                other = draw(st.sampled_from(inputs))
                data[place:] = other[min(place, len(other)) :]
    return bytes(data)


def changed_at_random(rng: random.Random, inputs: Sequence[bytes]) -> bytes:
    """Return an input near those given."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.randint(0, 4)):
        place = rng.randint(0, len(data))
        match rng.randint(0, 4):
            case 0 | 1:
                data[place : place + 1] = _some_bytes(rng)
            case 2:
                data[place:place] = _some_bytes(rng)
            case 3:
                del data[place : place + rng.randint(1, 64)]
            case _:
                other = rng.choice(inputs)
                data[place:] = other[min(place, len(other)) :]
    return bytes(data)


def _some_bytes(rng: random.Random) -> bytes:
    return rng.choice(_TELLING_BYTES) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 9))
