"""Explanations of a federated tree model, computed by the active party: importance of columns, and SHAP values.

Setting: both need to know which of a passive party's splits are on the same column. The passive party numbers these
columns in the order of its records. The numbers depend on the grouping alone: they are the same at each request, and
reveal nothing of names, positions or unused columns. Names travel only where the passive party's caller says so.

SHAP values are interventional (Lundberg et al., "From local explanations to global understanding with explainable AI
for trees", 2020): a column that is not in a coalition takes its value from a background row, independently of the other
columns. They follow from the sides on which explained and background rows lie at each split, as
:func:`~labelward.protocols.secureboost.predict.predict_passive` answers in one round. So the active party learns what
one-round prediction reveals of these rows, the grouping, and no value; a passive party learns which rows are asked
about.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, quoted, wrong_message
from labelward.kernels.node_rows import depth_of
from labelward.kernels.objectives import margins_of_output
from labelward.kernels.shap import add_shapley_values, coalition_weights
from labelward.messages.explain import ColumnsRequest, RecordColumns
from labelward.party.context import Context
from labelward.protocols.secureboost import predict
from labelward.protocols.secureboost.share import ModelShare

Floats = NDArray[np.float64]

_NAMED = 1024  # bytes of a split's column in a message, with its name

WHOLE = "all columns"
"""Stands for the columns of a party that does not tell them apart."""


@dataclass(frozen=True, order=True)
class Feature:
    """A column on which a model splits."""

    party: str  # its owner
    number: int  # an own column's position; for another party's column the number that the party gave it
    name: str = ""  # empty where the owner does not reveal it

    @property
    def label(self) -> str:
        """The name, or the number."""
        return self.name or f"column {self.number}"


Features = Mapping[str, tuple[Feature, ...]]
"""For each party the column of each of its records."""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Importance of one column."""

    feature: Feature
    weight: int  # number of splits
    total_gain: float  # sum of their gains; NaN for a party that does not know them

    @property
    def gain(self) -> float:
        """Mean gain of a split."""
        return self.total_gain / self.weight


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """SHAP values of some rows, in margins (a forest's are averages over its trees)."""

    features: tuple[Feature, ...]  # the columns on which the model splits, by party, then number
    values: Floats  # float64 [rows, features, outputs]; their sum over the features is ``margins - expected``
    expected: Floats  # float64 [outputs]: the mean margin of the background rows
    margins: Floats  # float64 [rows, outputs]


def columns_active(ctx: Context, share: ModelShare) -> Features:
    """Ask every peer which of its splits are on the same column; returns the columns of all records.

    Raises:
        PeerError: a peer failed, or its answer does not fit.
    """
    for peer in ctx.peers:
        ctx.expect(peer, _NAMED * (share.records_of(peer) + 1))
        ctx.send(peer, ColumnsRequest(share.model), ())
    features = {ctx.party: tuple(Feature(ctx.party, c, share.columns[c]) for c in share.own.columns)}
    for peer in ctx.peers:
        answer = ctx.recv(peer, RecordColumns, ())
        numbers, width = answer.numbers, len(set(answer.numbers))
        if len(numbers) != share.records_of(peer) or numbers != _numbered(numbers):
            reason = f"sent columns of {len(numbers)} splits where it has {share.records_of(peer)}, or not in order"
            raise wrong_message(peer, "RecordColumns", reason, (), value=len(numbers))
        if answer.names and len(set(answer.names)) != width:
            reason, count = f"sent {len(answer.names)} names for {width} columns, or a duplicate", len(answer.names)
            raise wrong_message(peer, "RecordColumns", reason, (), value=count)
        names = tuple(map(quoted, answer.names)) or ("",) * width
        features[peer] = tuple(Feature(peer, number, names[number]) for number in numbers)
    return features


def columns_passive(ctx: Context, share: ModelShare, *, names: bool = False, grouped: bool = True) -> None:
    """Answer the active party which of this party's splits are on the same column.

    Args:
        names: whether to reveal the names of these columns, too.
        grouped: whether to tell the columns apart; if not, all splits count as splits on one column, and what is
            explained is the party as a whole (its columns enter a coalition together).

    Raises:
        PeerError: the active party failed, or holds a share of another model.
    """
    ctx.expect(ctx.active, 0)
    request = ctx.recv(ctx.active, ColumnsRequest, ())
    if request.model != share.model:
        reason = f"explains model {request.model!r}; the share here is of {share.model!r}"
        raise wrong_message(ctx.active, "ColumnsRequest", reason, (), value=request.model)
    if not grouped:
        splits = len(share.own.columns)
        ctx.send(ctx.active, RecordColumns((0,) * splits, (WHOLE,) * bool(splits)), ())
        return
    used = dict.fromkeys(share.own.columns)
    revealed = tuple(share.columns[column] for column in used) if names else ()
    ctx.send(ctx.active, RecordColumns(_numbered(share.own.columns), revealed), ())


def importance(share: ModelShare, features: Features) -> tuple[Importance, ...]:
    """Return the importance of every column on which the model splits, largest total gain first.

    Args:
        features: what :func:`columns_active` returned.
    """
    weights: dict[Feature, int] = {}
    gains: dict[Feature, float] = {}
    for tree in share.trees:
        for owner, record, gain in zip(tree.owners, tree.records, tree.gains, strict=True):
            feature = features[share.parties[owner]][record]
            weights[feature] = weights.get(feature, 0) + 1
            gains[feature] = gains.get(feature, 0.0) + gain
    found = [Importance(feature=each, weight=weights[each], total_gain=gains[each]) for each in weights]
    return tuple(sorted(found, key=lambda each: (-each.total_gain, each.feature)))


def own_importance(share: ModelShare) -> tuple[Importance, ...]:
    """Return what a party's share says by itself, the most important column first.

    At a passive party these are its own columns with their numbers of splits: gains depend on labels, and are known to
    the active party only. At the active party they are its own columns, and every other party as a whole.
    """
    if share.trees:
        mine = tuple(Feature(share.party, column, share.columns[column]) for column in share.own.columns)
        others = {
            peer: (Feature(peer, 0, WHOLE),) * share.records_of(peer) for peer in share.parties if peer != share.party
        }
        return importance(share, {share.party: mine, **others})
    counts = Counter(share.own.columns)
    found = [
        Importance(
            feature=Feature(share.party, column, share.columns[column]), weight=counts[column], total_gain=math.nan
        )
        for column in counts
    ]
    return tuple(sorted(found, key=lambda each: (-each.weight, each.feature)))


def explain(
    ctx: Context, share: ModelShare, features: Features, own: predict.Own, rows: int, background: int
) -> Explanation:
    """Return the SHAP values of the first ``rows`` rows, with the ``background`` rows after them as background.

    The passive parties run :func:`~labelward.protocols.secureboost.predict.predict_passive` on all
    ``rows + background`` rows. Costs rows x background x trees descents.

    Args:
        features: what :func:`columns_active` returned.
        own: as for :func:`~labelward.protocols.secureboost.predict.predict_active`, with all rows.
        rows: how many rows are explained.
        background: how many rows of background follow.

    Raises:
        DataError: no background rows.
        PeerError: a peer failed, or its answers do not fit.
    """
    if background < 1:
        reason = f"at least 1 row is needed but got {background}"
        raise DataError(reason, code="range", field="background", value=background)
    number, parts = 0, []
    for span in predict.row_batches(share, rows, rows + background):
        parts.append(predict.ask_answers(ctx, share, own, span, number))
        number += 1
    behind = {party: np.concatenate([part[party] for part in parts], axis=1) for party in parts[0]}
    players = tuple(sorted({each for named in features.values() for each in named}))
    values, margins = np.zeros((rows, len(players), share.outputs)), np.empty((rows, share.outputs))
    for start, stop in predict.row_batches(share, 0, rows):
        answers = predict.ask_answers(ctx, share, own, (start, stop), number)
        number += 1
        margins[start:stop] = predict.margins_of(share, predict.leaves_of(share, answers, stop - start))
        values[start:stop] = _shapley(share, _places(features, players), answers, behind, (stop - start, background))
    predict.end_requests(ctx, share, rows + background, dict.fromkeys(ctx.peers, number))
    expected = predict.margins_of(share, predict.leaves_of(share, behind, background)).mean(axis=0)
    return Explanation(features=players, values=values, expected=expected, margins=margins)


def _places(features: Features, players: tuple[Feature, ...]) -> dict[str, NDArray[np.int32]]:
    """Return for each party the position in ``players`` of each record's column."""
    place = {feature: position for position, feature in enumerate(players)}
    return {party: np.array([place[each] for each in named], np.int32) for party, named in features.items()}


def _shapley(
    share: ModelShare,
    places: Mapping[str, NDArray[np.int32]],
    answers: Mapping[str, predict.Bits],
    behind: Mapping[str, predict.Bits],
    counts: tuple[int, int],
) -> Floats:
    """Return float64 [rows, players, outputs] for a batch; ``counts``: rows explained, rows of background."""
    players = 1 + max((int(each.max()) for each in places.values() if len(each)), default=-1)
    sums: dict[int, Floats] = {}
    for tree in share.trees:
        weights = tree.leaf_values()
        here = sums.setdefault(tree.output, np.zeros((counts[0], players, weights.shape[1])))
        columns = [
            places[share.parties[owner]][record] for owner, record in zip(tree.owners, tree.records, strict=True)
        ]
        depth = max(map(depth_of, tree.leaves))
        add_shapley_values(
            tree.branches(),
            np.array(columns, np.int32),
            weights,
            predict.sides_of(tree, share.parties, answers, counts[0]),
            predict.sides_of(tree, share.parties, behind, counts[1]),
            coalition_weights(depth),
            here,
        )
    values = np.zeros((counts[0], players, share.outputs))
    for output, here in sums.items():
        values[:, :, margins_of_output(output)] += here
    return values / max(1, len(share.trees)) if share.kind == "forest" else values


def _numbered(columns: tuple[int, ...]) -> tuple[int, ...]:
    """Return for each record a number of its column: 0 for the first that occurs, 1 for the next other one, ..."""
    numbers = {column: number for number, column in enumerate(dict.fromkeys(columns))}
    return tuple(numbers[column] for column in columns)
