"""Cost model of a job's runs on one seed's data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from labelward.data import VerticalDataset
from labelward.defenses.leakage_meter import LeakageMeter, MonitorConfig
from labelward.errors import LabelwardError
from labelward.federation.components import model_family
from labelward.he import Engine
from labelward.job import Job
from labelward.planning.dry_run import DryRun, TrainingData, dry_run
from labelward.planning.estimate import NetworkLink, deployment_time, estimate
from labelward.planning.monitor_cost import count_groups, monitor_seconds, reading_cost
from labelward.planning.operation_counts import OperationCounts, RunShape, count_operations, run_shape
from labelward.planning.unit_costs import OperationShape, UnitCosts, measure_units
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import TreeModel
from labelward.runs.estimate import Estimate


def training_data(data: VerticalDataset) -> TrainingData:
    """Return the training rows of a seed's data, and the numbers of its other rows."""
    columns = {
        party.name: Columns(party.columns, party.train, party.categories, party.monotone) for party in data.parties
    }
    labels = LabelVector(values=data.train_values.astype(np.float64), weights=data.train_weights, classes=data.classes)
    return TrainingData(
        columns=columns, labels=labels, validation=len(data.validation_values), test=len(data.test_values)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CostModel:
    """A tree model on one seed's data. Runs with the same defenses share a dry run."""

    job: Job
    params: TreeModel
    data: TrainingData
    engine: Engine
    seed: int
    _dry: dict[str, DryRun] = field(default_factory=dict, init=False)
    _reading_costs: list[tuple[float, float]] = field(default_factory=list, init=False)

    def estimate(self, policies: Sequence[Policy], link: NetworkLink | None = None) -> Estimate:
        """Return the costs of a run.

        Args:
            policies: of the active party; they must be new, since they act in the dry run.
        """
        dry, shape = self.dry(policies), self.shape(policies)
        works = count_operations(dry, shape)
        monitor = self._monitor(dry, shape, policies)
        found = estimate(works, shape, dry, self.unit_costs(policies), monitor=monitor, limit=self.engine.memory_limit)
        if link is None:
            return found
        return msgspec.structs.replace(found, between=deployment_time(found, works, shape, link))

    def dry(self, policies: Sequence[Policy]) -> DryRun:
        """Return the dry run with these policies, or with others of the same parameters."""
        key = json.dumps([(each.kind, each.parameters()) for each in policies], sort_keys=True, default=str)
        if key not in self._dry:
            self._dry[key] = dry_run(self.job, self.params, self.data, self.engine, policies, seed=self.seed)
        return self._dry[key]

    def operations(self, policies: Sequence[Policy]) -> dict[str, OperationCounts]:
        """Return the operations of each party, the active one first."""
        return count_operations(self.dry(policies), self.shape(policies))

    def unit_costs(self, policies: Sequence[Policy]) -> UnitCosts:
        """Return what the engine's operations take on the numbers of such a run."""
        layout, dry = self.shape(policies).layout, self.dry(policies)
        columns, bins = max(each.widest for each in dry.parties.values())
        sample = OperationShape(layout=layout, rows=layout.rows, columns=columns, bins=bins)
        return measure_units(self.engine, sample, bits=self._bits, insecure=self.job.encryption.insecure)

    def shape(self, policies: Sequence[Policy]) -> RunShape:
        """Return the shape of such a run."""
        return run_shape(self.params, self.data, self.dry(policies), self.engine, self._bits)

    @property
    def _bits(self) -> int:
        return self.engine.key_bits(self.job.encryption.bits)

    def _monitor(self, dry: DryRun, shape: RunShape, policies: Iterable[Policy]) -> float:
        """Return the seconds of the leakage meter, by what each passive party knows in the dry run."""
        if not dry.leaves or not any(isinstance(policy, LeakageMeter) for policy in policies):
            return 0.0
        seen = {name: leaves for name, leaves in dry.leaves.items() if len(leaves)}  # the others have no part in a tree
        if not seen:
            return 0.0
        groups = {name: count_groups(leaves) for name, leaves in seen.items()}
        values = dry.sample.labels.values
        bins = None if self.data.labels.classes else np.quantile(values, (0.25, 0.5, 0.75))
        labels = (values if bins is None else np.searchsorted(bins, values)).astype(np.int64)
        model: dict[str, Any] = {"kind": self.params.kind, "multi_strategy": self.params.multi_strategy}
        measure = MonitorConfig.of(model, int(labels.max()) + 1, self.seed)
        if not self._reading_costs:  # per row and per group they are those of any run
            party = max(groups, key=lambda name: groups[name][-1])
            self._reading_costs.append(reading_cost(dry.leaves[party], labels, party, measure))
        cost, rows = self._reading_costs[0], (dry.sample.rows, self.data.rows)
        return sum(
            monitor_seconds(cost, each, rows=rows, trees={name: shape.trees[name]}) for name, each in groups.items()
        )


def cost_model(job: Job, data: VerticalDataset, engine: Engine, seed: int) -> CostModel | None:
    """Return the cost model of a completed job on a seed's data; None for a model that is not of trees."""
    params = model_family(job.model).params
    if not isinstance(params, TreeModel):
        return None
    return CostModel(job=job, params=params, data=training_data(data), engine=engine, seed=seed)


def forecast(job: Job, data: VerticalDataset, engine: Engine, seed: int, policies: Sequence[Policy]) -> Estimate | None:
    """Return the costs of a run, before it begins; None if they cannot be estimated."""
    return estimate_or_none(cost_model(job, data, engine, seed), policies)


def estimate_or_none(model: CostModel | None, policies: Sequence[Policy]) -> Estimate | None:
    """Return the costs of a run; None if they cannot be estimated, which is no reason not to run."""
    try:
        return None if model is None else model.estimate(policies)
    except LabelwardError:
        return None
