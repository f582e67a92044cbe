"""What a job will take, before it is trained: time by phase, bytes and memory, from operations measured here.

::

    found = plan(load_job("job.toml"), line=Line(bandwidth=100, latency=20))
    print(found.estimate.seconds, found.estimate.between.seconds)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from labelward.errors import JobError
from labelward.evaluate.costs.brought import Elsewhere, bring
from labelward.evaluate.costs.estimate import Line
from labelward.evaluate.costs.expected import Estimate
from labelward.evaluate.costs.prospect import Prospect
from labelward.evaluate.costs.units import UnitCosts
from labelward.federation.components import check_job, make_engine, make_policies, model_adapter, with_defaults
from labelward.federation.train import defense_variant
from labelward.job import Job
from labelward.protocols.secureboost.params import TreeModel
from labelward.runs.short_names import variant_without_defaults

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was found.

    Attributes:
        dataset: name of the data; empty where all of them are elsewhere.
        parties: the active one first.
        variant: slug of what defends the run.
        refusing: whether the run may be shorter, since something may be refused while trees grow.
        rows: training rows.
        looked_at: rows and trees of the dry run, from which the trees' shapes are taken.
        generated: parties whose columns were made up by their number.
        costs: of single operations.
    """

    dataset: str
    parties: tuple[str, ...]
    variant: str
    refusing: bool
    rows: int
    looked_at: tuple[int, int]
    generated: tuple[str, ...]
    costs: UnitCosts
    estimate: Estimate


def plan(
    job: Job,
    *,
    seed: int | None = None,
    variant: str | None = None,
    line: Line | None = None,
    elsewhere: Elsewhere | None = None,
) -> Plan:
    """Return what one training of a job takes, without training it.

    It reads the data as the job would, grows the first trees in the open (:mod:`.costs.dry`), and measures the job's
    engine for a second or two.

    Args:
        seed: of the run; the job's first.
        variant: slug of one of ``job.variants()``; None for the undefended run.
        line: between the parties, were they companies.
        elsewhere: of a job whose data are not all here.

    Raises:
        InputError: of any kind, as training the job would; or of a model that is not of trees.
    """
    seed = job.run.seeds[0] if seed is None else seed
    job = with_defaults(replace(job, run=replace(job.run, seeds=(seed,))))
    defended = defense_variant(job, variant_without_defaults(job.variants()[0]).slug if variant is None else variant)
    check_job(job)
    params = model_adapter(job.model).params
    if not isinstance(params, TreeModel):
        raise JobError(
            f"{job.model.kind!r} encrypts nothing and its time is that of the networks themselves, so "
            "that there is nothing to plan; plans are of 'secureboost' and 'forest'",
            code="unsupported",
            field="[model] kind",
            value=job.model.kind,
        )
    brought = bring(job, seed, elsewhere or Elsewhere(), make_policies(defended))
    engine = make_engine(job.encryption)
    try:
        prospect = Prospect(
            params=params,
            subject=brought.subject,
            validation=brought.validation,
            test=brought.test,
            engine=engine,
            encryption=job.encryption,
            seed=seed,
        )
        return Plan(
            dataset=brought.dataset,
            parties=brought.subject.parties,
            variant=variant_without_defaults(defended).slug,
            refusing=bool(defended.chain) or job.leakage.budget is not None,
            rows=brought.subject.rows,
            looked_at=(prospect.dry.rows, len(prospect.dry.trees)),
            generated=brought.generated,
            estimate=prospect.estimate(brought.policies, line),
            costs=prospect.units(brought.policies),
        )
    finally:
        engine.close()
