"""Bases of defenses whose noise is identical in every attempt: of returned gradients, and of what label holders send.

A resumed run repeats what it sent since its last checkpoint. Fresh noise on the same values would let the receiver
average it out. The noise is therefore derived from a key, drawn before anything is sent and stored with the
checkpoints, and from the place in the training and the values themselves. A receiver that restarts with other inputs
gets other values with independent noise. That is an additional release, which the accounts do not count: they assume
receivers that follow the protocol. So would a sender whose arithmetic differs after a restart; where a defense promises
an epsilon, it does not go on there. Without a top model all parties get the same gradients; these get the same noise,
since parties that put theirs together would average it out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient
from labelward.privacy.arithmetic import arithmetic
from labelward.privacy.noise import KEY_BYTES, KeyedDraws
from labelward.rng import SecureRandom


class _Kept(msgspec.Struct, kw_only=True):
    """What is drawn and counted.

    Attributes:
        sent: gradients that left, by party.
        counts: what else a defense counts.
        planned: gradients that the run returns at most, where a defense counts on them.
        levels: of noise by party, where a defense remembers them.
        arithmetic: see :func:`~labelward.privacy.arithmetic.arithmetic`; empty in checkpoints of earlier versions.
    """

    key: bytes = b""
    sent: dict[str, int] = {}
    counts: dict[str, int] = {}
    planned: int = 0
    levels: dict[str, float] = {}
    arithmetic: str = ""


def _check_arithmetic(kind: str, stored: str, *, networks: bool) -> None:
    """Refuse to go on where the same values would come out otherwise, and get noise of their own."""
    if stored and stored != (now := arithmetic(networks=networks)):
        raise PolicyError(
            f"defense {kind!r} drew noise where arithmetic has other last digits (another processor, or other "
            "libraries): what was sent would leave again with other noise, which its account does not count; go on "
            "where the run began, or start over with --force, which adds up both",
            code="cannot-act",
            field=f"defense {kind!r}",
            value=(stored, now),
        )


def refuse_large_delta(kind: str, delta: float, rows: int) -> None:
    """Refuse a delta at which the labels of single rows may be given away."""
    if delta * rows >= 1:
        raise PolicyError(
            f"must be below 1 / {rows} rows, not {delta:g}", code="range", field=f"defense {kind!r} delta", value=delta
        )


@dataclass(frozen=True, kw_only=True)
class KeyedGradientDefense(Policy):
    """A randomized defense of returned gradients."""

    _kept: _Kept = field(default_factory=_Kept, init=False, repr=False, compare=False)

    @property
    def sent(self) -> dict[str, int]:
        """Number of gradients sent, by party."""
        return dict(self._kept.sent)

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key."""
        self._kept.key, self._kept.sent, self._kept.counts = protection.bytes(KEY_BYTES), {}, {}
        self._kept.levels, self._kept.arithmetic = {}, arithmetic(networks=True)

    def state(self) -> bytes:
        """Return key and counts."""
        return msgspec.msgpack.encode(self._kept)

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        stored = msgspec.msgpack.decode(state, type=_Kept)
        if self.promise is not None:
            _check_arithmetic(self.kind, stored.arithmetic, networks=True)
        self._kept.key, self._kept.sent, self._kept.counts = stored.key, stored.sent, stored.counts
        self._kept.planned, self._kept.levels = stored.planned, stored.levels
        self._kept.arithmetic = stored.arithmetic

    def _count_sent(self, returned: ReturnedGradient) -> None:
        """Count a gradient that is sent."""
        self._kept.sent[returned.party] = self._kept.sent.get(returned.party, 0) + 1

    def _draws(self, returned: ReturnedGradient) -> KeyedDraws:
        """Return the draws for one gradient, and count it."""
        if not self._kept.key:
            raise PolicyError(
                f"defense {self.kind!r} was not started with the run, so it has no key for its noise",
                code="cannot-act",
            )
        self._count_sent(returned)
        values = np.ascontiguousarray(returned.values)
        return KeyedDraws(  # not by party: equal gradients get equal noise, which members of a coalition cannot average
            self._kept.key,
            f"{returned.epoch} {returned.batch} {values.dtype} {values.shape}".encode(),
            hashlib.sha256(values.tobytes()).digest(),
        )


@dataclass(frozen=True, kw_only=True)
class KeyedHolderDefense(Policy):
    """A randomized defense of label holders."""

    _run: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, setup: PolicyContext) -> None:
        """Refuse a delta at which the labels of single rows may be given away."""
        refuse_large_delta(self.kind, self.parameters()["delta"], setup.rows)

    def _begin(self, protection: SecureRandom, **drawn_for: Any) -> None:
        """Draw the key, and note for what."""
        self._run.update(key=protection.bytes(KEY_BYTES), arithmetic=arithmetic(networks=False), **drawn_for)

    def state(self) -> bytes:
        """Return the key, and for what it was drawn."""
        return msgspec.msgpack.encode(self._run)

    def resume(self, state: bytes) -> None:
        """Take the stored key; refused where the noise would be scaled otherwise, which would tell the values."""
        stored: dict[str, Any] = msgspec.msgpack.decode(state)
        _check_arithmetic(self.kind, stored.get("arithmetic", ""), networks=False)
        changed = [name for name in self._run.keys() | stored.keys() if name not in ("key", "arithmetic")]
        if any(self._run.get(name) != stored.get(name) for name in changed):
            raise PolicyError(
                f"defense {self.kind!r} drew noise for other parties or columns", code="cannot-act", value=self.kind
            )
        self._run.update(stored)

    def _draws(self, values: NDArray[Any], *place: object) -> KeyedDraws:
        """Return the draws for values at a place of the training."""
        if not self._run:
            raise PolicyError(f"defense {self.kind!r} was not started with the run", code="cannot-act")
        context = " ".join(map(str, (*place, values.dtype, values.shape)))
        return KeyedDraws(self._run["key"], context.encode(), hashlib.sha256(values.tobytes()).digest())
