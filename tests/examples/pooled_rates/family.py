"""Pooled rates: how often the label is 1 in each bin of one party's column, with labels on two parties.

Three roles. A ``holder`` labels some of the rows and owns a key. The ``source`` has the column. The ``collector`` sums
each holder's encrypted labels by bin, so no holder learns a row's bin, and neither source nor collector reads a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from labelward.protocols.pooled_rates.messages import (
    BinSums,
    EncryptedLabels,
    HolderKey,
    HolderRates,
    RowBins,
    RowRates,
)
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import JobError
from labelward.he import Counts, Engine
from labelward.he.base import Layout
from labelward.messages.base import Array
from labelward.parameters import Parameters
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.json_file import read_versioned
from labelward.party.roles import PASSIVE, Role, Topology
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.common import PartyInputs
from labelward.protocols.family import ModelFamily, PredictMode, RoleResult
from labelward.runs.schema import VisibilityCounts
from labelward.runs.secure_files import write_json

HOLDER, SOURCE, COLLECTOR = "holder", "source", "collector"
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PooledRates(Parameters):
    """The rate of the label in each bin of one column."""

    kind: ClassVar[str] = "pooled-rates"

    bins: Annotated[int, Meta(ge=2, description="Number of bins of the column.")] = 8


class RatesShare(msgspec.Struct, frozen=True, kw_only=True):
    """One party's part: edges and rates at the source, nothing elsewhere."""

    format: Literal[1] = 1
    kind: str = PooledRates.kind
    model: str
    party: str
    parties: tuple[str, ...]
    columns: tuple[str, ...] = ()
    categories: dict[str, tuple[str, ...]] = {}
    classes: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()

    def save(self, folder: Path) -> Path:
        """Write ``share.json`` in a folder, which is made."""
        folder.mkdir(parents=True)
        write_json(folder / "share.json", self)
        return folder / "share.json"

    def predicted(self, x: Floats) -> Floats:
        """Return the rate of each row, float64 [rows]."""
        return np.array(self.rates)[np.searchsorted(self.edges, x[:, 0])]


class PooledRatesFamily(ModelFamily[RatesShare]):
    """Rates of labels that two parties hold, in bins of a third one's column, summed by a fourth."""

    roles: ClassVar[Mapping[str, Role]] = {
        HOLDER: Role(attacks_as=(PASSIVE,), sends={COLLECTOR: (HolderKey, EncryptedLabels), SOURCE: (HolderRates,)}),
        SOURCE: Role(attacks_as=(PASSIVE,), sends={COLLECTOR: (RowBins,), HOLDER: (RowRates,)}),
        COLLECTOR: Role(attacks_as=(PASSIVE,), sends={HOLDER: (BinSums,)}),
    }
    metered: ClassVar[bool] = False
    grows: ClassVar[bool] = False

    def topology(self, parties: Sequence[str], holders: Sequence[str]) -> Topology:
        """Return the roles: of those without labels the first is the source, the second the collector."""
        others = [party for party in parties if party not in holders]
        if len(others) != 2:
            raise JobError("needs two parties without labels", code="unsupported", field="[parties]", value=parties)
        named = dict.fromkeys(holders, HOLDER) | {others[0]: SOURCE, others[1]: COLLECTOR}
        return Topology(assigned={party: named[party] for party in parties}, roles=self.roles)

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[RatesShare]:
        """Run the party's role."""
        if ctx.role == HOLDER:
            return self._hold(ctx, agreed, inputs, engine)
        return self._provide(ctx, agreed, inputs) if ctx.role == SOURCE else self._collect(ctx, agreed, engine)

    def _hold(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[RatesShare]:
        assert inputs.labels is not None
        (source,), (collector,) = ctx.topology.parties(SOURCE), ctx.topology.parties(COLLECTOR)
        held = ~np.isnan(inputs.labels.values)
        rows = np.stack([np.where(held, inputs.labels.values, 0), held], axis=1).astype(np.int64)
        private = engine.generate(agreed.bits, protection=ctx.protection, insecure=agreed.insecure)
        ctx.send(collector, HolderKey(private.public.material()), ())
        block = private.encrypt(rows, Layout(bounds=(1, 1), rows=len(rows), logical=2)).block()
        ctx.send(collector, EncryptedLabels(block), ())
        sums = private.decrypt(ctx.recv(collector, BinSums, ()).sums)[0]
        ctx.send(source, HolderRates(ctx.policies.release_unguarded(Array.pack(sums))), ())
        share = RatesShare(model="rates", party=ctx.party, parties=agreed.parties)
        return RoleResult(
            share=share,
            counts=private.public.counts,
            margins=self.predict(ctx, share, np.empty((0, 0))),
            fingerprint=private.public.fingerprint,
        )

    def _provide(self, ctx: Context, agreed: Agreement, inputs: PartyInputs) -> RoleResult[RatesShare]:
        (collector,) = ctx.topology.parties(COLLECTOR)
        column = inputs.data.train[:, 0]
        edges = np.quantile(column, np.arange(1, self.params.bins) / self.params.bins)
        bins = np.searchsorted(edges, column).astype(np.int32)[:, None]
        ctx.send(collector, RowBins(Array.pack(bins)), ())
        received = [ctx.recv(holder, HolderRates, ()).sums.value.unpack() for holder in ctx.topology.parties(HOLDER)]
        total = np.sum(received, axis=0)
        share = RatesShare(
            model="rates",
            party=ctx.party,
            parties=agreed.parties,
            columns=inputs.data.columns,
            edges=tuple(edges.tolist()),
            rates=tuple((total[:, 0] / np.maximum(total[:, 1], 1)).tolist()),
        )
        self.predict(ctx, share, inputs.data.test)
        return RoleResult(share=share, counts=Counts())

    def _collect(self, ctx: Context, agreed: Agreement, engine: Engine) -> RoleResult[RatesShare]:
        (source,) = ctx.topology.parties(SOURCE)
        bins = ctx.recv(source, RowBins, ()).bins.unpack().astype(np.int32)
        counts = Counts()
        for holder in ctx.topology.parties(HOLDER):
            key = ctx.recv(holder, HolderKey, ()).key
            public = engine.public(key, protection=ctx.protection, insecure=agreed.insecure)
            rows = public.rows(ctx.recv(holder, EncryptedLabels, ()).rows)
            ctx.send(holder, BinSums(rows.group_sums(bins, self.params.bins).rerandomize()), ())
            counts.add(public.counts.as_dict())
        return RoleResult(share=RatesShare(model="rates", party=ctx.party, parties=agreed.parties), counts=counts)

    def predict(self, ctx: Context, share: RatesShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`: the source sends the coordinator the rate of each row."""
        coordinator, (source,) = ctx.topology.coordinator, ctx.topology.parties(SOURCE)
        if ctx.party == source:
            rates = ctx.policies.release_unguarded(Array.pack(share.predicted(x)))
            ctx.send(coordinator, RowRates(rates), (0,))
        if ctx.party == coordinator:
            return ctx.recv(source, RowRates, (0,)).rates.value.unpack().astype(np.float64)[:, None]
        return np.empty((0, 0))

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`; the constructor checks all there is."""

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        return np.hstack([1 - margins, margins])

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return True

    @property
    def deviance_power(self) -> float | None:
        """See :attr:`ModelFamily.deviance_power`."""
        return None

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`: of the first column there is, else the mean."""
        return np.full((len(data.test_values), 1), data.train_values.mean())

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`."""
        sums = sum(int(np.prod(each.message.sums.value.shape)) for each in view.received(HolderRates))
        return VisibilityCounts(role=view.header.role, rows=view.rows, decrypted_sums=sums)

    def load(self, folder: Path) -> RatesShare:
        """See :meth:`ModelFamily.load`."""
        return read_versioned(folder / "share.json", RatesShare, 1)
