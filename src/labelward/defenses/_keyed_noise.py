"""Base of defenses of returned gradients: release counts, and noise that is identical in every attempt.

A resumed run repeats the gradients since its last checkpoint. Fresh noise on the same gradient would let the receiver
average it out. The noise is therefore derived from a key, drawn before anything is sent and stored with the
checkpoints, and from party, epoch, batch and the gradient itself. A receiver that restarts with other embeddings gets
another gradient with independent noise. That is an additional release, which the accounts do not count: they assume
receivers that follow the protocol.
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
        planned: gradients that the run returns at most, where a defense counts on them.
    """

    key: bytes = b""
    sent: dict[str, int] = {}
    counts: dict[str, int] = {}
    planned: int = 0


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

    def state(self) -> bytes:
        """Return key and counts."""
        return msgspec.msgpack.encode(self._kept)

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        stored = msgspec.msgpack.decode(state, type=_Kept)
        self._kept.key, self._kept.sent, self._kept.counts = stored.key, stored.sent, stored.counts
        self._kept.planned = stored.planned

    def _draws(self, returned: ReturnedGradient) -> KeyedDraws:
        """Return the draws for one gradient, and count it."""
        if not self._kept.key:
            raise PolicyError(
                f"defense {self.kind!r} was not started with the run, so it has no key for its noise",
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
