"""Scale of quantities: mean and deviation of all labels, which everybody learns from secure sums, and nothing else.

Setting: every party learns number, mean and deviation of the training labels; with two label holders each therefore
learns those of the other. Labels are standardized by them, so that bounds of gradients, and the clip of ``partial-dp``,
do not depend on units.

Sums are exact: a holder adds its labels as whole multiples of 2^-40 and splits the total into limbs of 40 bits. So the
scale does not depend on who holds which label.

Sums of limbs would tell more than the total: what each limb carries, which depends on the holders' separate totals. So
holders mask their totals first, by masks that cancel modulo 2^200, and split what results: whatever is done with those
limbs, their joint distribution depends on the total alone. With masks that were truly random this would be exact, also
for who opens the limbs or adds them up, and for both together; masks are expanded from X25519 keys that every attempt
of a run draws anew, so that a total which is repeated tells nothing more. Who opens the sums rebuilds the total and
tells it in its one form.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, wrong_message
from labelward.he.base import Layout
from labelward.messages.base import Array
from labelward.messages.pivodl import LabelTotal
from labelward.party.context import Context
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.pivodl.secure_sums import Collection, SecureSums
from labelward.rng import learning

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS, _LIMBS = 40, 5
_MASK_BYTES = _BITS * _LIMBS // 8
_MODULUS = 1 << (_BITS * _LIMBS)
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
    """Return the sum of all parties' values, through an aggregation client and an encryption client.

    Number 1 is that of squares. Whose part made it negative the opener cannot tell, as parts are masked: it names the
    first of the others.
    """
    draw = learning(ctx.seed, "", number, "scale clients")
    parties = tuple(ctx.topology.assigned)
    adder, opener = (parties[at] for at in draw.choice(len(parties), 2, replace=False))
    to, own = Collection(adder, opener, (-1, number)), None
    layout = Layout(bounds=(1 << _BITS,) * _LIMBS, rows=len(sums.holders), logical=_LIMBS)
    if ctx.party in sums.holders:
        own = _masked_limbs(_integer_sum(values), sums.masks, sums.holders, number)[None, None]
        sums.contribute(own, to, layout)
    sums.add_up(own, to, layout)
    if ctx.party == opener:
        total = _unmasked(sums.open(own, (1, 1, _LIMBS), to, layout)[0, 0])
        if number == 1 and total < 0:
            other = next(party for party in sums.holders if party != ctx.party)
            reason = "or another label holder sent a sum of squares that cannot be"
            raise wrong_message(other, "MaskedSums", reason, to.step)
        for peer in ctx.peers:
            ctx.send(peer, LabelTotal(ctx.policies.release_opened(Array.pack(_limbs(total)))), (number,))
    else:
        message = ctx.recv(opener, LabelTotal, (number,))
        with ctx.blaming(opener, "LabelTotal", (number,)):
            limbs = message.limbs.value.unpack_as("int64", _LIMBS)
        total = _number(limbs)
        if not np.array_equal(limbs, _limbs(total)) or (number == 1 and total < 0):
            raise wrong_message(opener, "LabelTotal", "sent no total of labels")
    return total / _ONE


def _masked_limbs(total: int, masks: PairwiseMasks, holders: tuple[str, ...], number: int) -> Integers:
    """Return a holder's total under masks that cancel modulo 2^200 in the sum over all holders, as limbs."""
    return _limbs(masks.masked_number(total, holders, f"label total {number}", size=_MASK_BYTES))


def _unmasked(limbs: Integers) -> int:
    """Return the total of which the sums of all holders' limbs are given.

    It is below 2^199: at most 2^36 values, each of them below 2^122 and in multiples of 2^-40.
    """
    total = _number(limbs) % _MODULUS
    return total - _MODULUS if 2 * total >= _MODULUS else total


def _number(limbs: Integers) -> int:
    return sum(limb << (_BITS * place) for place, limb in enumerate(limbs.tolist()))


def _limbs(total: int) -> Integers:
    """Return a whole number as limbs with its sign, lowest first: int64 [limbs]."""
    size, sign = abs(total), -1 if total < 0 else 1
    limbs = [sign * ((size >> (_BITS * place)) % (1 << _BITS)) for place in range(_LIMBS)]
    return np.array(limbs, dtype=np.int64)
