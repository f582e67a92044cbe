"""Prediction on shares: owners put in which leaves a row may reach, and the class alone is opened, to the asker.

For each leaf an owner knows whether a row meets all of its own conditions above the leaf; a row reaches the leaf where
all owners' bits are 1. The bits of 64 rows are a word in binary shares; the words of all owners are joined by AND, and
those of the leaves of a class are added up: a row reaches one leaf. The asker opens, for each row and class, whether
the row has the class, and learns nothing else; all others learn nothing.

Reference: Wu et al., Pivot (2020), Section 4.2. Difference: shares take the place of the encrypted prediction vector,
so that the parts of the private key can be forgotten when the training ends; the dealer must take part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.protocols.pivot.arithmetic import SharedArithmetic
from labelward.protocols.pivot.dealt_shares import Words
from labelward.protocols.pivot.share import PivotShare

Floats = NDArray[np.float64]


def predict_classes(mpc: SharedArithmetic, share: PivotShare, x: Floats) -> Floats:
    """Return one-hot classes of rows at the asker, float64 [rows, classes]; elsewhere float64 [0, 0]."""
    owners = [share.parties[at] for at in sorted(set(share.owners))]
    reached = np.full((len(share.leaves), -(-len(x) // 64)), np.uint64((1 << 64) - 1))
    if owners:
        reached = _input(mpc, share, owners[0], x)
    elif not mpc.leads:
        reached[:] = 0
    for owner in owners[1:]:
        reached = mpc.both(reached, _input(mpc, share, owner, x))
    labels = np.array(share.labels)
    by_class = np.stack(
        [np.bitwise_xor.reduce(reached[labels == each], axis=0, initial=np.uint64(0)) for each in range(share.outputs)]
    )
    opened = mpc.result_bits(by_class)
    if opened is None:
        return np.empty((0, 0))
    bits = np.unpackbits(opened.astype("<u8").view(np.uint8), axis=1, bitorder="little", count=len(x))
    return np.ascontiguousarray(bits.T).astype(np.float64)


def _input(mpc: SharedArithmetic, share: PivotShare, owner: str, x: Floats) -> Words:
    """Return binary shares of an owner's conditions, uint64 [leaves, words of 64 rows]: all of them at the owner."""
    words = np.zeros((len(share.leaves), -(-len(x) // 64)), np.uint64)
    if mpc.ctx.party == owner:
        bits = np.packbits(share.conditions(x, owner), axis=1, bitorder="little")
        words.view(np.uint8)[:, : bits.shape[1]] = bits
    return words
