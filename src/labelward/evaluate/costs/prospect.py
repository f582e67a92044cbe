"""What a job's runs will take, from its data: one look at the data serves all runs of a seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import VerticalDataset
from labelward.defenses.leakage_meter import LeakageMeter, MonitorConfig
from labelward.errors import LabelwardError
from labelward.evaluate.costs.dry import ANY_SEED, Dry, Subject, dry_run, may_own, trees_of_a_round
from labelward.evaluate.costs.estimate import Line, between, estimate
from labelward.evaluate.costs.expected import Estimate
from labelward.evaluate.costs.meter import groups_of, meter_seconds, reading_cost
from labelward.evaluate.costs.units import Sample, UnitCosts, additions_of, measured
from labelward.evaluate.costs.work import Form, PartyWork, Run, work
from labelward.federation.components import model_adapter
from labelward.he import Engine, Layout
from labelward.job import EncryptionSection, Job
from labelward.policy.base import Policy, Schedule
from labelward.policy.chain import PolicyChain
from labelward.protocols.secureboost.inputs import Columns, LabelVector
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_encoding import GradientEncoder, sample_rows
from labelward.protocols.secureboost.targets import class_weighted, fitted_objective

__all__ = ["Prospect", "expected", "foresee", "subject_of"]

_LOOKED_AT = 2_000


def subject_of(data: VerticalDataset) -> Subject:
    """Return what a rehearsal trains on, without validation and test rows."""
    columns = {
        party.name: Columns(party.columns, party.train, party.categories, party.monotone) for party in data.parties
    }
    labels = LabelVector(values=data.train_values.astype(np.float64), weights=data.train_weights, classes=data.classes)
    return Subject(columns=columns, labels=labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prospect:
    """A tree model on one seed's data.

    Attributes:
        params: of the model.
        subject: the training rows.
        validation, test: numbers of further rows.
        engine: of the runs.
        encryption: the job's section.
        seed: of the runs.
    """

    params: TreeModel
    subject: Subject
    validation: int
    test: int
    engine: Engine
    encryption: EncryptionSection
    seed: int

    @cached_property
    def dry(self) -> Dry:
        """A dry run of the first rounds."""
        precision = self.encryption.precision
        return dry_run(self.params, self.subject, additions_of(self.engine), seed=self.seed, precision=precision)

    @property
    def active(self) -> str:
        """The party that has the labels."""
        return self.subject.parties[0]

    @property
    def passive(self) -> tuple[str, ...]:
        """The other parties."""
        return self.subject.parties[1:]

    @property
    def bits(self) -> int:
        """Of the keys; 0 for an engine without."""
        return self.encryption.bits if self.engine.bits_offered else 0

    def estimate(self, policies: Iterable[Policy], line: Line | None = None) -> Estimate:
        """Return what a run takes.

        Args:
            policies: what defends it; how they thin out the trees of passive parties is counted, but not what they
                refuse on the way.
            line: between the parties, were they companies.
        """
        chain = PolicyChain(policies)
        run = self.run(chain)
        works = work(self.dry, run)
        meter = 0.0
        if any(isinstance(policy, LeakageMeter) for policy in chain.policies):
            cost, groups = self._reading
            meter = meter_seconds(cost, groups, rows=(self.dry.rows, run.rows), takes_part=run.takes_part)
        limit = self.engine.memory_limit
        found = estimate(works, run, self.dry, self.costs(run.form.layout), meter=meter, limit=limit)
        return found if line is None else msgspec.structs.replace(found, between=between(found, works, run, line))

    def works(self, policies: Iterable[Policy]) -> dict[str, PartyWork]:
        """Return the work of each party in such a run."""
        return work(self.dry, self.run(PolicyChain(policies)))

    def units(self, policies: Iterable[Policy]) -> UnitCosts:
        """Return what the engine's operations take in such a run."""
        return self.costs(self.run(PolicyChain(policies)).form.layout)

    def costs(self, layout: Layout) -> UnitCosts:
        """Return what the engine's operations take on numbers of a layout."""
        root = [level[0].sums for tree in self.dry.trees for level in tree.levels.values() if level]
        largest = max((sums for level in root for sums in level), key=lambda sums: len(sums.columns), default=None)
        sample = Sample(
            layout=layout,
            rows=layout.rows,
            columns=len(largest.columns) if largest else 1,
            bins=max(largest.sizes) if largest else 2,
        )
        return measured(self.engine, sample, bits=self.bits, insecure=self.encryption.insecure)

    def run(self, chain: PolicyChain) -> Run:
        """Return what is fixed of a run beside its data."""
        params, subject = self.params, self.subject
        apart = params.kind != "forest" and params.multi_strategy == "one_output_per_tree"
        together = trees_of_a_round(params, len(subject.labels.classes))
        everyone = Schedule(participants=(frozenset(self.passive),) * params.trees)
        rounds = chain.schedule(everyone).participants if self.passive else everyone.participants
        able = [name for name in subject.parties if subject.columns[name].names]
        takes_part, federated = dict.fromkeys(self.passive, 0), 0
        for tree in range(len(rounds) * together):
            playing = [
                name
                for name in rounds[tree // together]
                if any(may_own(params, together, able, name, tree, depth) for depth in range(params.depth))
            ]
            federated += bool(playing)
            for name in playing:
                takes_part[name] += 1
        return Run(
            active=self.active,
            kind=params.kind,
            mode=params.mode,
            side_by_side=len(rounds) / -(-len(rounds) // params.trees_at_once) if params.kind == "forest" else 1.0,
            rows=subject.rows,
            test=self.test,
            route=self.validation,
            takes_part=takes_part,
            federated=federated,
            trees=len(rounds) * together,
            columns={name: len(own.names) for name, own in subject.columns.items()},
            form=Form.of(self.engine.name, self._layout(chain, apart=apart), self.bits),
        )

    def _layout(self, chain: PolicyChain, *, apart: bool) -> Layout:
        """Return the layout of a tree's numbers: bounds depend on no row, and their number on the draw alone."""
        params, few = self.params, self.subject.some(_LOOKED_AT, self.seed)
        labels, classes = few.labels, len(few.labels.classes)
        objective = fitted_objective(params, classes)
        weights = class_weighted(params, labels.weights, labels.values, classes)
        uneven = (self.subject.labels.weights != 1.0).any()  # in any row: few of them may look even
        weighted = bool(uneven) or params.scale_pos_weight != 1.0 or params.sampling == "goss"
        bins = classes or (0 if chain.bins is None else int(chain.bins.max()) + 1)
        flagged = bool(bins and chain.purities and (weighted or objective.implied != "count"))
        flags = np.zeros((few.rows, bins - 1 if flagged else 0), dtype=np.int64)
        outputs = 1 if apart else objective.outputs
        base = objective.start(labels.values, weights, None if params.kind == "forest" else params.base_score)
        g, h = (each[:, :outputs] for each in objective.gradients(np.tile(base, (few.rows, 1)), labels.values))
        encoder = GradientEncoder(objective, flags, self.encryption.precision, weighted=weighted)
        layout = encoder.encode(g, h, weights, np.arange(few.rows), outputs).layout
        return Layout(bounds=layout.bounds, rows=self._drawn(), logical=layout.logical)

    def _drawn(self) -> int:
        """Return the rows of a tree that are encrypted."""
        if self.params.kind == "forest":
            return self.subject.rows
        sizes = np.ones(self.subject.rows)
        counts = sample_rows(self.params, sizes, seed=self.seed, party=self.active, tree=0, private=ANY_SEED).counts
        return int(np.count_nonzero(counts))

    @cached_property
    def _reading(self) -> tuple[tuple[float, float], list[int]]:
        """What a reading of the leakage meter takes, and the groups that it finds."""
        leaves = np.stack([tree.leaves for tree in self.dry.trees])
        few = self.subject.some(self.dry.rows, self.seed).labels
        labels = few.values.astype(np.int64) if few.classes else _bins(few.values)
        model: dict[str, Any] = {"kind": self.params.kind, "multi_strategy": self.params.multi_strategy}
        measure = MonitorConfig.of(model, int(labels.max()) + 1, self.seed)
        return reading_cost(leaves, labels, self.passive[0] if self.passive else "", measure), groups_of(leaves)


def foresee(job: Job, data: VerticalDataset, engine: Engine, seed: int) -> Prospect | None:
    """Return what runs of a completed job on a seed's data are estimated by; None for a model that is not of trees."""
    params = model_adapter(job.model).params
    if not isinstance(params, TreeModel):
        return None
    return Prospect(
        params=params,
        subject=subject_of(data),
        validation=len(data.validation_values),
        test=len(data.test_values),
        engine=engine,
        encryption=job.encryption,
        seed=seed,
    )


def expected(prospect: Prospect | None, policies: Iterable[Policy]) -> Estimate | None:
    """Return what a run is expected to take; None where that cannot be told, which stops no run."""
    try:
        return None if prospect is None else prospect.estimate(policies)
    except LabelwardError:
        return None


def _bins(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.searchsorted(np.quantile(values, (0.25, 0.5, 0.75)), values).astype(np.int64)
