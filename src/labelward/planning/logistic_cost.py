"""Costs of a logistic regression before it is trained: a few of its batches are, under the job's own engine.

All batches of a training are alike, so that two short trainings tell what a batch costs and what is paid once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import numpy as np

from labelward.data import PartyDataset
from labelward.errors import JobError
from labelward.federation.components import make_engine
from labelward.federation.simulation import SimulationResult, job_session, party_inputs, run_simulation
from labelward.he import Engine
from labelward.job import Job
from labelward.party.handshake import RowMasks
from labelward.planning.dry_run import ANY_SEED, TrainingData
from labelward.planning.workload import RemoteShape, plan_run
from labelward.protocols.logistic.columns import encoded_width, scales_of_party
from labelward.protocols.logistic.descent import check_batches
from labelward.protocols.logistic.family import LogisticFamily
from labelward.protocols.logistic.params import LogisticRegression

_FEW, _MORE = 1, 3
"""Batches of the two trainings."""
_TEST = 2
"""Their test rows."""
_IDLE = ("wait", "handshake")


@dataclass(frozen=True, kw_only=True)
class LogisticCost:
    """Costs of one training.

    Attributes:
        rows: training rows.
        batches: of all epochs.
        tried: batches that were trained.
        phases: seconds by party and phase, each party in its turn.
        bytes: sent, by party.
        encryptions, additions, decryptions: in ciphertexts, of all parties.
        seconds: of all phases of all parties together.
    """

    dataset: str
    variant: str
    parties: tuple[str, ...]
    engine: str
    bits: int
    rows: int
    batches: int
    tried: int
    generated: tuple[str, ...]
    phases: Mapping[str, Mapping[str, float]]
    bytes: Mapping[str, int]
    encryptions: int
    additions: int
    decryptions: int
    seconds: float


def estimate_logistic(
    job: Job, *, seed: int | None = None, variant: str | None = None, remote: RemoteShape | None = None
) -> LogisticCost:
    """Return the costs of one training of a logistic regression, from a few batches of it.

    Args:
        job: as it was read.
        seed: of the run; None for the job's first.
        variant: slug of one of ``job.variants()``; None for the undefended run.
        remote: the shape of tables that are not here.

    Raises:
        InputError: of any kind, as training the job would; or for another model.
    """
    run = plan_run(job, LogisticRegression, "is no logistic regression", seed=seed, variant=variant, remote=remote)
    job, params, workload = run.job, run.params, run.workload
    data, pieces = workload.data, params.batches(workload.data.rows)
    size = max(piece.stop - piece.start for piece in pieces)
    with closing(make_engine(job.encryption)) as engine:
        trial = _Trial(job, params, data, engine, run.seed)
        check_batches(params, run.seed, data.labels.values, trial.passive_columns())
        with suppress(JobError):  # of few rows all categories may be rare
            trial.run(1, min(size, 64))  # code is compiled and libraries are loaded
        few, more = trial.run(_FEW, size), trial.run(_MORE, size)
        bits = engine.key_bits(job.encryption.bits)
    batches = params.epochs * len(pieces)
    phases = {party: _scaled(few, more, party, batches) for party in data.parties}
    counts = {
        name: round(_linear(getattr(few.cost, name), getattr(more.cost, name), batches))
        for name in ("encryptions", "additions", "decryptions")
    }
    sent = [{party: sum(each.meters[party].bytes.values()) for party in data.parties} for each in (few, more)]
    return LogisticCost(
        dataset=workload.dataset,
        variant=run.variant,
        parties=data.parties,
        engine=engine.name,
        bits=bits,
        rows=data.rows,
        batches=batches,
        tried=_FEW + _MORE,
        generated=workload.generated,
        phases=phases,
        bytes={party: round(_linear(sent[0][party], sent[1][party], batches)) for party in data.parties},
        seconds=sum(sum(each.values()) for each in phases.values()),
        **counts,
    )


def _linear(few: float, more: float, batches: int) -> float:
    """Return what so many batches cost, from the costs of few and of more."""
    each = max(0.0, more - few) / (_MORE - _FEW)
    return max(0.0, few - _FEW * each) + batches * each


def _scaled(few: SimulationResult, more: SimulationResult, party: str, batches: int) -> dict[str, float]:
    """Return the seconds of each phase of a party."""
    spent = [dict(each.meters[party].seconds) for each in (few, more)]
    found = {name: _linear(spent[0].get(name, 0.0), spent[1][name], batches) for name in spent[1] if name not in _IDLE}
    if "key" in found:
        found["key"] = spent[1]["key"]
    return found


@dataclass(frozen=True)
class _Trial:
    """Trains some batches in this process."""

    job: Job
    params: LogisticRegression
    data: TrainingData
    engine: Engine
    seed: int

    def run(self, batches: int, size: int) -> SimulationResult:
        """Train one epoch of so many batches of so many rows, each drawn from the job's; fewer rows come again."""
        rows = np.resize(np.arange(self.data.rows), batches * size)
        parties = [self._party(name, rows) for name in self.data.parties]
        ids = [str(row) for row in range(len(rows) + _TEST)]
        masks = RowMasks.in_order(len(rows), 0, _TEST)
        session = job_session(self.job, ids, self.engine, seed=self.seed, masks=masks)
        labels = self.data.labels
        held = replace(labels, values=labels.values[rows], weights=labels.weights[rows])
        family = LogisticFamily(replace(self.params, epochs=1, batch_size=size, rows_per_column=0))
        return run_simulation(session, family, party_inputs(parties, {parties[0].name: held}), self.engine)

    def passive_columns(self) -> int:
        """Return how many encoded columns all passive parties have together, by all rows of the job."""
        rows = np.arange(self.data.rows)
        parties = [self._party(name, rows) for name in self.data.parties[1:]]
        return sum(encoded_width(scales_of_party(self.params, party)) for party in parties)

    def _party(self, name: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> PartyDataset:
        own = self.data.columns[name]
        train = own.x[rows]
        return PartyDataset(
            name=name,
            columns=own.names,
            train=train,
            validation=train[:0],
            test=np.resize(train, (_TEST, train.shape[1])),
            categories=own.categories,
            private=ANY_SEED,
        )
