"""Masks that cancel in the sum over some parties (Bonawitz et al. 2017, Section 4, without dropouts)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from labelward.errors import wrong_message

Integers = NDArray[np.int64]


class PairwiseMasks:
    """Masks that cancel in the sum over some parties.

    Args:
        private: this party's key.
        party: its name.
        publics: keys of all parties.
        message: what carried them, for errors.
    """

    def __init__(
        self, private: X25519PrivateKey, party: str, publics: Mapping[str, bytes], *, message: str = "PartyKeys"
    ) -> None:
        self._party = party
        self._shared: dict[str, bytes] = {}
        for peer, public in publics.items():
            if peer == party:
                continue
            try:
                self._shared[peer] = private.exchange(X25519PublicKey.from_public_bytes(public))
            except (ValueError, UnsupportedAlgorithm) as error:
                raise wrong_message(peer, message, "sent no usable key") from error

    def masked(self, values: Integers, among: Iterable[str], purpose: str) -> Integers:
        """Return values under the masks for one purpose, which must never recur; ``among``: the parties that sum."""
        total = np.ascontiguousarray(values).reshape(-1).view(np.uint64).copy()
        for peer in among:
            if peer == self._party:
                continue
            mask = np.frombuffer(self._stream(peer, purpose, 8 * total.size), dtype="<u8").astype(np.uint64)
            total += mask if self._party < peer else np.negative(mask)
        return total.view(np.int64).reshape(values.shape)

    def masked_number(self, number: int, among: Iterable[str], purpose: str, *, size: int) -> int:
        """Return a whole number modulo 2^(8 ``size``) under masks of as many bytes; else as :meth:`masked`."""
        for peer in among:
            if peer == self._party:
                continue
            mask = int.from_bytes(self._stream(peer, purpose, size), "little")
            number += mask if self._party < peer else -mask
        return number % (1 << 8 * size)

    def _stream(self, peer: str, purpose: str, size: int) -> bytes:
        return hashlib.shake_256(self._shared[peer] + purpose.encode()).digest(size)
