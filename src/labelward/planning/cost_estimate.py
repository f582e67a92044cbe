"""Cost estimate of a job: time by phase, traffic and memory of a training that has not begun.

::

    found = estimate_cost(load_job("job.toml"), link=NetworkLink(bandwidth=100, latency=20))
    print(found.estimate.seconds, found.estimate.between.seconds)
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace

from labelward.federation.components import make_engine
from labelward.federation.engine_choice import AUTO, EngineChoice, alternatives, choose_engine
from labelward.job import Job, as_job
from labelward.planning.cost_model import CostModel
from labelward.planning.estimate import NetworkLink
from labelward.planning.unit_costs import UnitCosts
from labelward.planning.workload import RemoteShape, plan_run
from labelward.protocols.secureboost.params import TreeModel
from labelward.runs.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """The costs of one training."""

    dataset: str  # name of the data; empty if all tables are remote
    parties: tuple[str, ...]  # the active one first
    variant: str  # slug of the run's defenses
    defended: bool  # whether there are any, which acted in the dry run
    budgeted: bool  # whether a leakage budget may end trees earlier, which is not estimated
    rows: int
    sample: tuple[int, int]  # rows and trees of the dry run
    generated: tuple[str, ...]  # parties with synthetic columns
    costs: UnitCosts  # of single operations
    estimate: Estimate  # of the run
    choice: EngineChoice | None = None  # of the engine, where the job says ``auto``
    engines: dict[str, Estimate] = field(default_factory=dict)  # then the run under each engine of the choice


def estimate_cost(
    job: Job,
    *,
    seed: int | None = None,
    variant: str | None = None,
    link: NetworkLink | None = None,
    remote: RemoteShape | None = None,
) -> CostEstimate:
    """Return the costs of one training of a job, without training it.

    It reads the data as the job would, runs the first rounds without encryption
    (:mod:`~labelward.planning.dry_run`), and measures the job's engine for a second or two.

    Args:
        job: as it was read.
        seed: of the run; None for the job's first.
        variant: slug of one of ``job.variants()``; None for the undefended run.
        link: between the parties, were they companies.
        remote: the shape of tables that are not here.

    Raises:
        InputError: of any kind, as training the job would; or for a model that is not of trees.
    """
    if as_job(job).encryption.engine != AUTO:
        return _estimate(job, seed, variant, link, remote)
    found = {
        name: _estimate(replace(job, encryption=section), seed, variant, link, remote)
        for name, section in alternatives(job.encryption).items()
    }
    estimates = {name: each.estimate for name, each in found.items()}
    choice = choose_engine(estimates)
    return replace(found[choice.engine], choice=choice, engines=estimates)


def _estimate(
    job: Job, seed: int | None, variant: str | None, link: NetworkLink | None, remote: RemoteShape | None
) -> CostEstimate:
    unsupported = (
        "plans are of 'secureboost', 'forest' and 'logistic', and of the bytes of 'splitnn'; the time of "
        f"{job.model.kind!r} is best measured on a part of the rows"
    )
    run = plan_run(job, TreeModel, unsupported, seed=seed, variant=variant, remote=remote)
    workload = run.workload
    with closing(make_engine(run.job.encryption)) as engine:
        model = CostModel(job=run.job, params=run.params, data=workload.data, engine=engine, seed=run.seed)
        dry = model.dry(workload.policies)
        return CostEstimate(
            dataset=workload.dataset,
            parties=workload.data.parties,
            variant=run.variant,
            defended=run.defended,
            budgeted=run.job.leakage.budget is not None,
            rows=workload.data.rows,
            sample=(dry.sample.rows, dry.trees),
            generated=workload.generated,
            estimate=model.estimate(workload.policies, link),
            costs=model.unit_costs(workload.policies),
        )
