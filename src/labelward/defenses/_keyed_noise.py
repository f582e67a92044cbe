"""What defenses of returned gradients have in common: they count, and their noise is the same in every attempt.

A run that was cut off asks again for the gradients since its last checkpoint. Fresh noise on the same gradient would
let the receiver average; so noise follows from a key, drawn before anything leaves and kept with the checkpoints, and
from party, epoch, batch and the gradient itself. A receiver that comes back with other embeddings gets another
gradient with noise of its own. That is one more release, which no account here counts: these speak of receivers that
do as agreed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec
import numpy as np

from labelward.errors import PolicyError
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient
from labelward.privacy.noise import KEY_BYTES, KeyedDraws
from labelward.rng import SecureRandom


class _Kept(msgspec.Struct, kw_only=True):
    """What is drawn and counted.

    Attributes:
        sent: gradients that left, by party.
        counts: what else a defense counts.
    """

    key: bytes = b""
    sent: dict[str, int] = {}
    counts: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class KeyedGradientDefense(Policy):
    """A defense of returned gradients that draws."""

    _kept: _Kept = field(default_factory=_Kept, init=False, repr=False, compare=False)

    @property
    def sent(self) -> dict[str, int]:
        """How many gradients left, by party."""
        return dict(self._kept.sent)

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key."""
        self._kept.key, self._kept.sent, self._kept.counts = protection.bytes(KEY_BYTES), {}, {}

    def state(self) -> bytes:
        """Return key and counts."""
        return msgspec.msgpack.encode(self._kept)

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        kept = msgspec.msgpack.decode(state, type=_Kept)
        self._kept.key, self._kept.sent, self._kept.counts = kept.key, kept.sent, kept.counts

    def _draws(self, returned: ReturnedGradient) -> KeyedDraws:
        """Return the draws for one gradient, and count it."""
        if not self._kept.key:
            raise PolicyError(
                f"defense {self.kind!r} was not told that a run begins, so it has no key to draw with",
                code="cannot-act",
            )
        self._kept.sent[returned.party] = self._kept.sent.get(returned.party, 0) + 1
        values = np.ascontiguousarray(returned.values)
        return KeyedDraws(
            self._kept.key,
            returned.party.encode(),
            f"{returned.epoch} {returned.batch} {values.dtype} {values.shape}".encode(),
            hashlib.sha256(values.tobytes()).digest(),
        )
