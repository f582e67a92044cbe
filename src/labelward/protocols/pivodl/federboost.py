"""The family of FederBoost: trees that the label holder grows alone, on buckets of the others' columns.

Setting: semi-honest parties. Each passive party sends once, for every training row and column, the number of the row's
bucket: the exact one, or under ``epsilon`` kept with probability e^ε / (e^ε + q - 1) of q buckets, else another one
(randomized response; columns have so few that it is .7 at least, or two). How many buckets a column has, and whether
one of them is that of missing values, is sent as it is: a row that alone has a gap, or a value of its own, shows in it.
Where buckets end follows from all rows, so that a cell moves other rows into other buckets: given the edges its noise
is of ε, but who knows all other cells learns of it from every row that it moves (:func:`most_moved`). Where the party
states the edges of a column, all of this follows from no row, and ε is that of a cell. Answers in
predictions carry no noise, also where the active party asks for training rows. The active party grows all trees by
itself and tells each passive party which of its buckets it must answer for in prediction. Nothing is encrypted.

What is learned: the *active* party learns the order of all rows in all columns up to the width of a bucket, exactly
without ``epsilon``; this is a protocol for columns that need no protection, or that noise protects. A *passive* party
learns which of its buckets split, and nothing of rows, nodes and sums.

Reference: Tian et al., FederBoost (2022), the vertical protocol; with no ``epsilon`` the variant of PIVODL for one
label holder (Zhu et al. 2023, Section V-F). Differences: a missing value is a bucket of columns that have any; under
``epsilon`` there are fewer buckets; the chosen buckets travel once, each once and sorted, instead of node by node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError, wrong_message
from labelward.he import Counts, Engine
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.base import RowMask
from labelward.messages.federboost import ChosenBuckets, OwnSides
from labelward.messages.pivodl import MISSING, Candidate, ColumnCodes, SplitSides
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.roles import ACTIVE, PASSIVE, Role
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.privacy.mechanisms import RandomizedResponse
from labelward.privacy.noise import KeyedDraws
from labelward.protocols.common import LabelVector, PartyInputs, class_probabilities
from labelward.protocols.common.columns import OwnColumns, SourceColumns, received_columns
from labelward.protocols.family import ModelFamily, PredictMode, RoleResult, label_vector, one_round
from labelward.protocols.pivodl.agreed_sizes import chosen_bytes, codes_bytes, expect_predictions, sides_bytes
from labelward.protocols.pivodl.family import check_data
from labelward.protocols.pivodl.fixed import Fixed
from labelward.protocols.pivodl.joined import grow_trees, train_joined
from labelward.protocols.pivodl.params import FederBoost
from labelward.protocols.pivodl.predict import received_sides, route, send_sides
from labelward.protocols.pivodl.share import PUBLIC, PivodlShare, SharedTree
from labelward.rng import SecureRandom
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]
Codes = NDArray[np.uint16]
_MOST_SIZE = 1000  # buckets of a column
_OF_ALL_ROWS = (
    "of columns without stated edges how many buckets they have, whether they have gaps and which categories, "
    "which follow from all rows; "
)


class FederBoostFamily(ModelFamily[PivodlShare]):
    """FederBoost, with one label holder."""

    roles: ClassVar[Mapping[str, Role]] = {
        ACTIVE: Role(attacks_as=(ACTIVE,), sends={PASSIVE: (ChosenBuckets,)}),
        PASSIVE: Role(attacks_as=(PASSIVE,), sends={ACTIVE: (ColumnCodes, SplitSides)}),
    }
    encrypts: ClassVar[bool] = False
    metered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    states_sizes: ClassVar[bool] = True
    takes_edges: ClassVar[bool] = True

    share_type: ClassVar[type[PivodlShare]] = PivodlShare

    params: FederBoost

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        check_data(self.params.kind, data)
        if not data.classes:
            raise JobError("is for two classes, not quantities", code="unsupported", field="[model] kind")
        others = tuple(party.name for party in data.parties[1:]) if passive is None else tuple(passive)
        context = PolicyContext(model=self.params.kind, classes=2, passive=others)
        topology = self.topology((data.parties[0].name, *others), data.holders)
        self.check_policies(policies, topology, dict.fromkeys((ACTIVE, PASSIVE), context))
        for party in data.parties:
            self._check_edges(party, party.name == topology.coordinator)

    def _check_edges(self, party: PartyDataset, own: bool) -> None:
        """Refuse stated edges of more buckets than noise leaves, or of a column with gaps, which are a bucket."""
        most = _MOST_SIZE if own or self.params.epsilon is None else self.params.sent_bins or _MOST_SIZE
        for position, edges in party.edges.items():
            column, place = party.columns[position], f"party {party.name!r}: edges"
            if len(edges) >= most:
                reason = f"column {column!r} must have at most {most - 1}, not {len(edges)}"
                if most < _MOST_SIZE:
                    reason += f"; more buckets tell less under epsilon = {self.params.epsilon:g}"
                raise DataError(reason, code="range", field=place, value=len(edges))
            if np.isnan(party.train[:, position]).any():
                reason = f"column {column!r} has missing values; give them a number, such as one below all others"
                raise DataError(reason, code="values", field=place, value=column)

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[PivodlShare]:
        """See :meth:`ModelFamily.program`."""
        data = inputs.data
        self._check_edges(data, inputs.labels is not None)  # over a network a party knows its own columns alone
        with ctx.phase("binning"):
            own = OwnColumns.of(data, self.params.sent_bins if inputs.labels is None else self.params.most_bins)
        if inputs.labels is None:
            share = self._answer(ctx, own, data)
            return RoleResult(share=share, counts=Counts(), margins=self.predict(ctx, share, data.test))
        for peer, columns in agreed.columns.items():
            ctx.expect(peer, codes_bytes(columns, len(data.train)))
        share = self._grow(ctx, own, inputs.labels, agreed.precision, data)
        return RoleResult(share=share, counts=Counts(), margins=self.predict(ctx, share, data.test))

    def _answer(self, ctx: Context, own: OwnColumns, data: PartyDataset) -> PivodlShare:
        """Send the buckets, and receive those that split."""
        active, codes = ctx.topology.coordinator, own.codes
        if self.params.epsilon is not None:
            codes = noisy_buckets(own, self.params.epsilon, ctx)
            stated = len(own.stated) == len(own.sizes)
            ctx.applied({"stage": "end", **self._account(most_moved(own, data.train), stated=stated)})
        sizes, kinds = tuple(own.sizes.tolist()), tuple(own.kinds.tolist())
        ctx.expect(active, chosen_bytes(self.params, sizes, len(codes)))
        ctx.send(active, ColumnCodes(sizes, kinds, codes.astype("<u2").tobytes()), ())
        chosen = ctx.recv(active, ChosenBuckets, ())
        splits = chosen.splits.value
        if not all(0 <= each.column < len(own.sizes) and own.offers(each) for each in splits):
            raise wrong_message(active, "ChosenBuckets", "chose no bucket")
        records = tuple(own.record(each) for each in splits)
        ctx.observe(OwnSides(tuple(RowMask.pack(record.goes_left(data.train)) for record in records)))
        return PivodlShare(
            kind="federboost",
            model=chosen.model,
            party=ctx.party,
            parties=tuple(ctx.topology.assigned),
            holders=(active,),
            columns=data.columns,
            own=records,
            trees=(),
            categories={data.columns[at]: names for at, names in data.categories.items()},
        )

    def _account(self, moved: Sequence[int], *, stated: bool) -> dict[str, object]:
        """Return what the noise on buckets gives, as an account of a defense, by :func:`most_moved`.

        Args:
            stated: whether the edges of all columns are.
        """
        epsilon = self.params.epsilon or 0.0
        return {
            "kind": "noisy-buckets",
            "parameters": {"epsilon": epsilon},
            "epsilon_of_a_cell": epsilon * max(moved, default=0),
            "epsilon_of_a_row": epsilon * sum(moved),
            "epsilon_of_a_cell_given_edges": epsilon,
            "epsilon_of_a_row_given_edges": epsilon * len(moved),
            "not_covered": ("" if stated else _OF_ALL_ROWS)
            + "sides of splits in predictions; other trainings on the same columns",
        }

    def _grow(
        self, ctx: Context, own: OwnColumns, labels: LabelVector, precision: int, data: PartyDataset
    ) -> PivodlShare:
        """Receive all buckets, grow all trees, and tell each party which of its buckets split."""
        rows, model = len(data.train), ctx.protection.bytes(8).hex()
        sources = [SourceColumns(own.sizes, own.kinds, own.codes)]
        for peer in ctx.peers:
            message = ctx.recv(peer, ColumnCodes, ())
            sources.append(received_columns(message, peer, rows, self.params.sent_bins))
        with ctx.phase("grow"):
            grown, picks = grow_trees(Fixed.of(self.params, rows, precision), sources, labels.values[:rows])
        distinct = [sorted(set(each), key=msgspec.structs.astuple) for each in picks]
        for peer, splits in zip(ctx.peers, distinct[1:], strict=True):
            ctx.expect(peer, sides_bytes(len(splits), len(data.test)))
            ctx.send(peer, ChosenBuckets(model, ctx.policies.release_opened(tuple(splits))), ())
        return PivodlShare(
            kind="federboost",
            model=model,
            party=ctx.party,
            parties=tuple(ctx.topology.assigned),
            holders=(ctx.party,),
            columns=data.columns,
            own=tuple(own.record(each) for each in distinct[0]),
            trees=tuple(renumbered(tree, picks, distinct) for tree in grown),
            classes=labels.classes,
            categories={data.columns[at]: names for at, names in data.categories.items()},
        )

    def predict(self, ctx: Context, share: PivodlShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`: passive parties answer all their splits for all rows at once."""
        one_round(mode)
        expect_predictions(ctx, share, len(x))
        asker = ctx.topology.coordinator
        if ctx.party != asker:
            send_sides(ctx, share, x, (0,))
            return np.empty((0, 0))
        answers = {ctx.party: share.sides(x)}
        answers |= {peer: received_sides(ctx, share, peer, len(x), (0,)) for peer in ctx.peers}
        reached = route(share, answers, len(x))
        margins = np.zeros(len(x))
        for tree, leaves in zip(share.trees, reached, strict=True):
            margins += np.array(tree.weights)[leaves]
        return margins[:, None]

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        return class_probabilities(margins[:, 0])

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`."""
        labels = label_vector(data).values
        return train_joined(self.params, parties, labels, precision=precision).margins([p.test for p in parties])

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`: the buckets of others that it holds, or its own that split."""
        cells = sum(len(each.message.codes) // 2 for each in view.received(ColumnCodes))
        chosen = sum(len(each.message.splits.value) for each in view.received(ChosenBuckets))
        return VisibilityCounts(
            role=view.header.role, rows=view.rows, columns=len(own.columns), own_splits=chosen, numbers=cells
        )


def renumbered(tree: SharedTree, picks: list[list[Candidate]], distinct: list[list[Candidate]]) -> SharedTree:
    """Return a tree whose records are places among the distinct splits of each owner."""
    pairs = zip(tree.owners, tree.records, strict=True)
    records = tuple(distinct[owner].index(picks[owner][record]) for owner, record in pairs)
    return msgspec.structs.replace(tree, records=records, keepers=(PUBLIC,) * len(tree.leaves))


def most_moved(own: OwnColumns, x: Floats) -> list[int]:
    """Return for each column how many rows at most have another bucket when one cell changes.

    Each of these rows' noise has a ratio of e^ε at most, so that ε times their number is the differential privacy of a
    cell against who knows all other cells, where the change leaves a column's number of buckets, its categories and
    whether it has gaps as they are.

    - *Stated edges, and categories*: the row itself.
    - *Values that all differ, before and after*: the number of buckets q. Edge j is the p_j-th smallest of n values;
      p_j follows from n alone, and grows by 0 or 1 with n. Where a cell changes, or comes or goes, an edge thus passes
      one row of the others at most: with q - 1 edges, q rows with its own. From one end to the other it is q.
    - *Any other column*: all rows. An edge may jump over all rows of a value, and a value that a single row has
      shifts the buckets of all rows beyond it.

    Args:
        own: the party's columns, in its own order.
        x: float64 [rows, columns], the same.
    """
    moved = []
    for column, (values, size, kind) in enumerate(zip(x.T, own.sizes.tolist(), own.kinds, strict=True)):
        known = values[~np.isnan(values)]
        differ = len(np.unique(known)) == len(known)
        alone = kind == CATEGORICAL or column in own.stated
        moved.append(1 if alone else size if differ else len(x))
    return moved


def noisy_buckets(own: OwnColumns, epsilon: float, ctx: Context) -> Codes:
    """Return the buckets of a party's rows as it sends them: uint16 [rows, columns].

    The draws follow from the private seed, the run's seed and the buckets themselves, so that a repeated run sends the
    same and spends nothing, and a run with other columns or another epsilon has independent noise.

    Args:
        own: the party's columns.
        epsilon: of each cell.
        ctx: of the party.
    """
    noisy = np.empty_like(own.codes)
    for column, (codes, size) in enumerate(zip(own.codes.T, own.sizes.tolist(), strict=True)):
        buckets = size + int((codes == MISSING).any())
        if buckets < 2:
            noisy[:, column] = codes
            continue
        place = f"buckets {epsilon} {buckets} {hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()}"
        drawn = _Repeated(ctx.private.key(ctx.seed, column, place))
        answer = RandomizedResponse(epsilon=epsilon, classes=buckets).release(
            np.minimum(codes, size).astype(np.int64), drawn
        )
        noisy[:, column] = np.where(answer == size, MISSING, answer)
    return noisy


class _Repeated(SecureRandom):
    """Bytes that a secret key fixes."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._draws = KeyedDraws(key)

    def bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        return self._draws.words(-(-count // 8)).tobytes()[:count]
