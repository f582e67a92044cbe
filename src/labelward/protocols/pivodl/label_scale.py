"""Scale of quantities: mean and deviation of all labels, which everybody learns from secure sums, and nothing else.

Setting: every party learns number, mean and deviation of the training labels; with two label holders each therefore
learns those of the other. Labels are standardized by them, so that bounds of gradients, and the clip of ``partial-dp``,
do not depend on units.

Sums are exact: a holder adds its labels as whole multiples of 2^-40 and splits the total into limbs of 40 bits. So the
scale does not depend on who holds which label.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, PeerError
from labelward.he.base import Layout
from labelward.messages.base import Array
from labelward.messages.pivodl import LabelTotal
from labelward.party.context import Context
from labelward.protocols.pivodl.secure_sums import Collection, SecureSums
from labelward.rng import learning

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS, _LIMBS = 40, 5
_ONE = 2.0**40
_MOST = 2.0**60


class LabelScale(NamedTuple):
    """What stands for 0 and 1 in standardized labels."""

    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, labels: Floats) -> LabelScale:
        """Return that of all labels in one place."""
        mean = _exact_sum(labels) / len(labels)
        return cls(mean, _deviation(_exact_sum((labels - mean) ** 2), len(labels)))

    def standardized(self, labels: Floats) -> Floats:
        """Return labels in units of the scale."""
        return (labels - self.mean) / self.deviation

    def restored(self, margins: Floats) -> Floats:
        """Return predictions in the labels' own units."""
        return self.mean + self.deviation * margins


def agree_on_scale(ctx: Context, sums: SecureSums, labels: Floats, rows: int) -> LabelScale:
    """Return the scale of all parties' labels.

    Args:
        labels: float64, those that this party holds.
        rows: number of labels of all parties together.

    Raises:
        DataError: a label is too large, or all are equal.
        PeerError: a peer failed, or sent what cannot be.
    """
    if (np.abs(labels) >= _MOST).any():
        raise DataError("a label is 2^60 or larger", code="values", field="[data] label", value=_MOST)
    mean = _total(ctx, sums, labels, 0) / rows
    return LabelScale(mean, _deviation(_total(ctx, sums, (labels - mean) ** 2, 1), rows))


def _exact_sum(values: Floats) -> float:
    return _integer_sum(values) / _ONE


def _integer_sum(values: Floats) -> int:
    return sum(map(int, np.rint(values * _ONE).tolist()))


def _deviation(squares: float, rows: int) -> float:
    deviation = math.sqrt(squares / rows)
    if not deviation:
        raise DataError("all training labels are equal", code="labels", field="[data] label", value=deviation)
    return deviation


def _total(ctx: Context, sums: SecureSums, values: Floats, number: int) -> float:
    """Return the sum of all parties' values, through an aggregation client and an encryption client."""
    draw = learning(ctx.seed, "", number, "scale clients")
    parties = tuple(ctx.topology.assigned)
    adder, opener = (parties[at] for at in draw.choice(len(parties), 2, replace=False))
    to, own = Collection(adder, opener, (-1, number)), None
    layout = Layout(bounds=(1 << _BITS,) * _LIMBS, rows=len(sums.holders), logical=_LIMBS)
    if ctx.party in sums.holders:
        own = _limbs(_integer_sum(values))[None, None]
        sums.contribute(own, to, layout)
    sums.add_up(own, to, layout)
    if ctx.party == opener:
        limbs: Integers = sums.open(own, (1, 1, _LIMBS), to, layout)[0, 0]
        for peer in ctx.peers:
            ctx.send(peer, LabelTotal(ctx.policies.release_opened(Array.pack(limbs))), (number,))
    else:
        message = ctx.recv(opener, LabelTotal, (number,))
        with ctx.blaming(opener, "LabelTotal", (number,)):
            limbs = message.limbs.value.unpack().astype(np.int64)
        if limbs.shape != (_LIMBS,):
            raise PeerError(opener, "sent no total of labels", message="LabelTotal", code="peer-message")
    total: int = sum(limb << (_BITS * place) for place, limb in enumerate(limbs.tolist()))
    return total / _ONE


def _limbs(total: int) -> Integers:
    """Return a whole number as limbs with its sign, lowest first: int64 [limbs]."""
    size, sign = abs(total), -1 if total < 0 else 1
    limbs = [sign * ((size >> (_BITS * place)) % (1 << _BITS)) for place in range(_LIMBS)]
    return np.array(limbs, dtype=np.int64)
