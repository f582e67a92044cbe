"""Search for the settings of a job that no other setting beats in utility, cost and leakage; resumable.

Every evaluation is on the disk before the search hears of it. A search that was killed asks for the same settings
again, is told of those that are stored, and goes on with the rest; the number of workers changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labelward.errors import InputError, JobError, LabelwardError, OutputError
from labelward.federation.components import check_job, with_defaults
from labelward.federation.progress import Watch, no_log
from labelward.job import Job, TuneSection, TuneVariable, as_job
from labelward.parameters import StrPath, as_path, as_paths
from labelward.runs.directory import check_output, locked_output, stored_job
from labelward.runs.private_seeds import Seeds, keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.secure_files import private_folder, write_bytes, write_json, write_lines
from labelward.runs.worker_process import check_jobs
from labelward.tuning import ledger
from labelward.tuning.confirm import confirm, confirmed_seeds
from labelward.tuning.constraints import exceeded, excesses, feasible, penalized
from labelward.tuning.evaluate import Evaluator, Plan, Task
from labelward.tuning.journal import JOURNAL, write_journal
from labelward.tuning.ledger import Evaluation, FrontPoint, Ledger, SearchRecord, SearchSummary
from labelward.tuning.pareto import Points, front_of, hypervolume, hypervolumes, pooled_bounds, ranks_of
from labelward.tuning.search import SEARCHES, Search, Told, require_libraries
from labelward.tuning.space import Setting
from labelward.tuning.workers import Workers, workers

_IDLE = 50
"""Times that a strategy may ask for known settings only before the search ends."""
_FAILURES = 8
"""Failures from which more than half ends a search."""
_ROUNDING = 1e-9
_PASSED_OVER = 8
"""Settings that wait to be trained on more rows at most, so that the time of a choice does not grow."""


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """What a search found.

    Attributes:
        record: what its evaluations share, with the bounds of the hypervolume.
        evaluations: of the search, in the order in which it asked.
        front: the points that no other within the limits beats; all of them where none is within.
    """

    record: SearchRecord
    evaluations: tuple[Evaluation, ...]
    front: tuple[FrontPoint, ...]


def tune(
    job: Job,
    space: Sequence[TuneVariable | Mapping[str, Any]] = (),
    *,
    out: StrPath,
    jobs: int = 1,
    force: bool = False,
    watch: Watch = no_log,
    repeat: Sequence[StrPath] = (),
    beside: Sequence[StrPath] = (),
) -> TuneResult:
    """Search the settings of a job, or go on with what is missing, and measure the front again.

    Args:
        job: with ``[tune]``; without one, its defaults hold.
        space: variables, with the keys of ``[[tune.variable]]``; none: those of ``[tune]``, or its defaults.
        out: a new folder, or that of the same search, which is resumed.
        jobs: number of evaluations side by side, each in a process of its own.
        force: clear a folder of any search first.
        watch: hears how far it is.
        repeat: folders of earlier runs whose private draws, such as which rows are tested on, are repeated.
        beside: folders of searches of the same job by other strategies. Where they have the same private draws, their
            trainings are taken over, so that none is made twice; each counts as an evaluation all the same.

    Raises:
        InputError: of any kind, before anything is written; or every setting is refused, or more than half of the
            trainings fail.
        DependencyError: Optuna or pymoo is not installed.
    """
    require_libraries()
    check_jobs(jobs)
    out, repeat, beside = as_path("out", out), as_paths("repeat", repeat), as_paths("beside", beside)
    section = as_job(job).tune or TuneSection()
    if space:
        section = dataclasses.replace(section, variables=tuple(space))  # type: ignore[arg-type]  # converted as it is checked
    job = dataclasses.replace(with_defaults(job), tune=section)
    _check(job)
    check_output(out, job, "tune", force=force)
    private = resolve_seeds([party.name for party in job.parties], None if force else out, repeat)
    plan = Plan(job=job, private={party: seed.hex() for party, seed in private.items()})
    evaluator = Evaluator(plan)
    if force or not ledger.is_search(out):
        evaluator.objectives.check_limits()
    search = SEARCHES[section.search](evaluator.searched, section, job.run.seeds[0])
    with locked_output(out, job, "tune", force=force):
        keep_seeds(out, private)
        record = _record(out, evaluator)
        evaluator.plan = dataclasses.replace(plan, units=record.units)
        held = Ledger(out)
        with workers(evaluator, jobs) as evaluate:
            run = _Tuning(evaluator, search, record, held, _made_beside(beside, job, private), evaluate, watch)
            asked = run.search_all()
            if asked and all(each.status == "refused" for each in asked):
                reason = f"model or defenses refuse every setting, the first one because: {asked[0].reason}"
                raise InputError(reason, code="unsupported", field="[[tune.variable]]", value=len(asked))
            front = confirm(evaluator, run.measured, _front(section, asked), watch)
        result = TuneResult(record=record, evaluations=tuple(asked), front=tuple(front))
        _store(out, evaluator, result, held)
        return result


def _check(job: Job) -> None:
    """Refuse a job that a search cannot vary."""
    if job.network is not None:
        reason = "a search trains all parties in one process; remove the section"
        raise JobError(reason, code="conflict", field="[network]")
    if len(job.run.seeds) > 1:
        reason = "a search has one seed; those on which its front is measured again follow from it"
        raise JobError(reason, code="conflict", field="[run] seeds", value=job.run.seeds)
    check_job(job)


def _record(out: Path, evaluator: Evaluator) -> SearchRecord:
    """Return what all evaluations of a folder share: as it is stored, or measured now.

    Raises:
        OutputError: it is of another version of labelward, or of other data.
    """
    path = out / ledger.SEARCH_FILE
    if ledger.is_search(out):
        record = ledger.read_one(path, SearchRecord)
        for what, stored, now in (
            ("version of labelward", record.version, evaluator.version),
            ("data", record.data, evaluator.digest),
        ):
            if stored != now:
                reason = f"is of another {what} ({stored}, now {now}); choose another folder, or use --force"
                raise OutputError(reason, code="other-run", field=str(path), value=stored)
        return record
    section, units = evaluator.section, evaluator.units()
    evaluator.plan = dataclasses.replace(evaluator.plan, units=units)
    dearest, own_columns = evaluator.dearest()
    best, worst = evaluator.objectives.bounds(dearest).tolist()
    record = SearchRecord(
        version=evaluator.version,
        data=evaluator.digest,
        dataset=evaluator.dataset,
        seed=evaluator.seed,
        search=section.search,
        evaluations=section.evaluations,
        objectives=section.objectives,
        constraints=dict(section.constraints),
        variables=tuple(dataclasses.asdict(each) for each in evaluator.space.variables),
        bounds=(tuple(best), tuple(worst)),
        units=units,
        own_columns=own_columns,
        utility_metric=evaluator.objectives.utility_metric,
        margin=section.margin,
    )
    write_json(path, record)
    return record


def _made_beside(folders: Sequence[Path], job: Job, private: Seeds) -> dict[str, Evaluation]:
    """Return by key what other searches trained, where all that its figures follow from is the same.

    First trees are left out, since which of them count depends on the path of a search. What cannot be read, such as
    the ledger of a search that ends just now, is trained again.
    """
    found: dict[str, Evaluation] = {}
    if job.tune is None or job.tune.prefixes:
        return found
    figures = _figures_of(job)
    for folder in folders:
        with contextlib.suppress(LabelwardError, OSError):
            other = stored_job(folder)
            if other is not None and _figures_of(other) == figures and stored_seeds(folder) == private:
                made = ledger.read_evaluations(folder)
                found |= {each.key: each for each in made if each.status in ("done", "refused")}
    return found


def _figures_of(job: Job) -> str:
    """Return a job without what only steers a search."""
    section, same = job.tune or TuneSection(), TuneSection()
    steering = ("search", "evaluations", "population", "constraints", "handling", "fidelity", "confirm", "margin")
    variables = tuple(dataclasses.replace(each, levels=None) for each in section.variables)
    return dataclasses.replace(
        job, tune=dataclasses.replace(section, variables=variables, **{name: getattr(same, name) for name in steering})
    ).to_toml()


@dataclass
class _Step:
    """The settings that were trained on one share of the rows.

    Attributes:
        known: all of them, by :func:`_named`.
        gone: evaluations of those that are trained on more rows.
        waiting: of the others those that may still be.
    """

    known: set[str] = field(default_factory=set)
    gone: list[Evaluation] = field(default_factory=list)
    waiting: list[tuple[Setting, Evaluation]] = field(default_factory=list)

    def take(self, settings: Sequence[Setting], found: Sequence[Evaluation]) -> None:
        """Add settings; those that are known stay what they are."""
        for setting, each in zip(settings, found, strict=True):
            if _named(setting) not in self.known:
                self.known.add(_named(setting))
                self.waiting.append((setting, each))


def _named(setting: Setting) -> str:
    return repr(sorted(setting.items()))


@dataclass
class _Tuning:
    """The loop: ask, evaluate what is not known, tell."""

    evaluator: Evaluator
    search: Search
    record: SearchRecord
    held: Ledger
    beside: Mapping[str, Evaluation]
    evaluate: Workers
    watch: Watch
    spent: float = 0.0
    cheapest: float | None = None
    asked: dict[str, Evaluation] = field(default_factory=dict)
    steps: dict[float, _Step] = field(default_factory=dict)
    worst: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        best, worst = self.record.bounds
        self.worst = tuple(2 * high - low for low, high in zip(best, worst, strict=True))

    def search_all(self) -> list[Evaluation]:
        """Return all evaluations of the search, in the order in which it asked."""
        section, idle = self.evaluator.section, 0
        while self.spent < section.evaluations and idle < _IDLE:
            asked, before = self.search.ask(), self.spent
            settings = [{**each, **self.evaluator.fixed} for each in asked]
            least = min(1.0, self._price(len(settings)))  # on all rows at once, or step by step
            if not settings or self.spent + least > section.evaluations + _ROUNDING:
                break
            found = self._measured_in_steps(settings)
            if len(found) == len(settings):
                self.search.tell([self._told(each, result) for each, result in zip(asked, found, strict=True)])
            idle = idle + 1 if self.spent == before else 0
        self.watch("runs", section.evaluations, section.evaluations, "")
        return list(self.asked.values())

    def measured(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Evaluation]]:
        """Yield evaluations, those that are stored at once, the others as they end, when they are stored as well."""
        missing = {}
        for task in tasks:
            key = self.evaluator.key(task)
            if key in self.beside and key not in self.held.known:
                self.held.add(self.beside[key])
            if key in self.held.known:
                yield task, self.held.known[key]
            else:
                missing[key] = task
        for task, evaluation in self.evaluate(list(missing.values())):
            self.held.add(evaluation)
            yield task, evaluation

    def _batch(self, settings: Sequence[Setting], share: float) -> list[Evaluation]:
        """Return the evaluations of settings, as many as the budget allows; a known one costs nothing."""
        budget, tasks = self.evaluator.section.evaluations, list[tuple[str, Task]]()
        for setting in settings:
            task = self._task(setting, share)
            key = self.evaluator.key(task)
            if key not in self.asked and key not in dict(tasks):
                if self.spent + share > budget + _ROUNDING:
                    break
                self.spent += share
            tasks.append((key, task))
        before = round(self.spent - share * len(tasks))
        for done, (task, evaluation) in enumerate(self.measured([task for _, task in tasks])):
            if evaluation.key not in self.asked:
                self.watch("runs", max(0, before) + done, budget, _describe(task.setting))
        found = [self.held.known[key] for key, _ in tasks]
        self.asked |= {each.key: each for each in found}
        self._keep_cheapest(found)
        self._keep_worst(found)
        self._check_failures()
        return found

    def _task(self, setting: Setting, share: float) -> Task:
        """Return the evaluation of a setting.

        On fewer rows few of its first trees or epochs count. Where all settings have one length, nothing is trained
        beyond the longest that counts.
        """
        seed = self.evaluator.seed
        if share == 1.0:
            return Task(setting=setting, seed=seed, cheapest=self.cheapest)
        lengths = self.evaluator.few_lengths(setting)
        if lengths and self.evaluator.fixed:
            setting, lengths = {**setting, self.evaluator.length: lengths[-1]}, lengths[:-1]
        return Task(setting=setting, seed=seed, share=share, lengths=lengths)

    def _measured_in_steps(self, settings: Sequence[Setting]) -> list[Evaluation]:
        """Return the first evaluations of settings; the better half on each share of rows is trained on the next.

        The half is that of all settings so far: one that was passed over may be taken later, when it adds more than
        what came since. Where what is left cannot pay for the last step, settings are trained on all rows at once.

        The strategy hears of the first share alone: on fewer rows trees cost less, so that settings that were passed
        over would seem the better ones.
        """
        shares, first = self.evaluator.section.fidelity or (1.0,), dict[str, Evaluation]()
        if self.spent + self._price(len(settings)) > self.evaluator.section.evaluations + _ROUNDING:
            shares = (1.0,)
        arrived = list(settings)
        for place, share in enumerate(shares):
            found = self._batch(arrived, share)
            first = {_named(setting): each for setting, each in zip(arrived, found, strict=False)} | first
            if place + 1 == len(shares):
                break
            self.steps.setdefault(share, _Step()).take(arrived[: len(found)], found)
            arrived = self._better_half(self.steps[share])
        return [first[name] for name in map(_named, settings) if name in first]

    def _price(self, settings: int) -> float:
        """Return what so many settings more cost, in trainings on all rows."""
        price = 0.0
        for share in self.evaluator.section.fidelity or (1.0,):
            price += share * settings
            step = self.steps.get(share, _Step())
            settings = (len(step.known) + settings + 1) // 2 - len(step.gone)
        return price

    def _better_half(self, step: _Step) -> list[Setting]:
        """Take the settings to be trained on more rows from those that wait, each for what it adds to those before."""
        found = list[Setting]()
        while step.waiting and len(step.gone) < (len(step.known) + 1) // 2:
            first, *_ = self._by_gain([each for _, each in step.waiting], step.gone)
            setting, evaluation = step.waiting.pop(first)
            step.gone.append(evaluation)
            found.append(setting)
        order = self._by_gain([each for _, each in step.waiting], step.gone)
        step.waiting = [step.waiting[at] for at in sorted(order[:_PASSED_OVER])]
        return found

    def _by_gain(self, found: Sequence[Evaluation], before: Sequence[Evaluation]) -> list[int]:
        """Return the order of evaluations on one share of rows: first what adds most to the others.

        Where none adds any, those come first that exceed the limits least, then those that fewer others beat.
        """
        if not found:
            return []
        known = self._counted(before)
        known = known[front_of(known)]
        parts = [np.concatenate([known, self._counted([each])]) for each in found]
        gains = np.array([hypervolume(part, np.array(self.record.bounds)) for part in parts])
        told = [self._told(each.setting, each) for each in found]
        beyond = np.array([exceeded(one.excess) for one in told])
        ranks = ranks_of(np.array([each.values for each in told]))
        return [int(at) for at in np.lexsort((ranks, beyond, -gains))]

    def _counted(self, evaluations: Sequence[Evaluation]) -> Points:
        """Return float64 [points, objectives]: those within the limits, where the search keeps any."""
        section = self.evaluator.section
        every = values_of([point.values for each in evaluations for point in each.points], len(section.objectives))
        return every if section.handling == "none" else every[feasible(section, every)]

    def _keep_cheapest(self, found: Sequence[Evaluation]) -> None:
        """Keep the cost of the cheapest setting within all limits, where trainings may be cut short."""
        section = self.evaluator.section
        limited = section.cut_short and section.handling != "none" and "leakage" in section.constraints
        if not limited or "cost" not in section.objectives:
            return
        place = section.objectives.index("cost")
        for each in found:
            for point in each.points if each.share == 1.0 else ():
                if max(excesses(section, point.values)) <= 0:
                    cost = point.values[place]
                    self.cheapest = cost if self.cheapest is None else min(self.cheapest, cost)

    def _keep_worst(self, found: Sequence[Evaluation]) -> None:
        """Keep the largest figure of each objective, which may lie beyond its bound: a log loss has none."""
        points = [point.values for each in found for point in each.points]
        self.worst = tuple(max(values) for values in zip(self.worst, *points, strict=True))

    def _check_failures(self) -> None:
        failed = [each for each in self.asked.values() if each.status == "failed"]
        if len(failed) >= _FAILURES and 2 * len(failed) > len(self.asked):
            raise InputError(
                f"{len(failed)} of {len(self.asked)} trainings failed, the last one with: {failed[-1].reason}",
                code="failed",
                field="[tune]",
                value=len(failed),
            )

    def _told(self, setting: Setting, evaluation: Evaluation) -> Told:
        """Return what the strategy hears."""
        section, heard = self.evaluator.section, self._heard(evaluation)
        excess = excesses(section, heard)
        if not evaluation.points:
            excess = tuple(max(1.0, each) for each in excess)
        return Told(setting, penalized(section, heard), excess, self._told_points(evaluation))

    def _told_points(self, evaluation: Evaluation) -> Points:
        """Return float64 [points, objectives], in shares of the bounds: with penalties, or those within the limits."""
        section, (best, worst) = self.evaluator.section, np.array(self.record.bounds)
        points = values_of([penalized(section, each.values) for each in evaluation.points], len(worst))
        if section.handling == "feasible-first":
            points = points[feasible(section, points)]
        if not len(points):
            points = values_of([penalized(section, self.worst)], len(worst))
        return np.asarray((points - best) / (worst - best))

    def _heard(self, evaluation: Evaluation) -> tuple[float, ...]:
        """Return the figures that stand for a training: of its last point, be it cut short or whole.

        Where the search varies no length, they are those of the point within all limits, if there is any, that has the
        most hypervolume by itself; with one objective, of the best. Where none has any, since all lie beyond a bound,
        they are those of the last one, no better than the bounds: cheap trees that learn nothing would seem as good as
        any on the front.

        One that was refused or failed has the worst of all so far, and worse than the bounds.
        """
        if not evaluation.points:
            return self.worst
        values, section = [each.values for each in evaluation.points], self.evaluator.section
        if not self.evaluator.fixed:
            return values[-1]
        within = [each for each in values if max(excesses(section, each), default=0.0) <= 0] or values
        if len(section.objectives) == 1:
            return min(within)
        bounds = np.array(self.record.bounds)
        volumes = [hypervolume(np.array([each]), bounds) for each in within]
        if max(volumes) > 0:
            return within[int(np.argmax(volumes))]
        return tuple(np.maximum(within[-1], bounds[1]).tolist())


Compared = tuple[dict[str, Any], tuple[float, ...]]
"""A setting and its objectives."""


def compared(evaluations: Sequence[Evaluation]) -> list[Compared]:
    """Return all settings of whole trainings, in the order of the search; of the same setting one."""
    found = {repr(sorted(each[0].items())): each for one in evaluations if one.share == 1.0 for each in one.compared()}
    return list(found.values())


def values_of(values: Sequence[tuple[float, ...]], objectives: int) -> Points:
    """Return float64 [points, objectives]."""
    return np.array(values, np.float64).reshape(-1, objectives)


def summary_of(section: TuneSection, result: TuneResult) -> SearchSummary:
    """Return the hypervolume of a search, evaluation by evaluation."""
    bounds, objectives = np.array(result.record.bounds), len(section.objectives)
    whole = [each for each in result.evaluations if each.share == 1.0]
    values = [values_of([point.values for point in each.points], objectives) for each in whole]
    every = np.concatenate([np.empty((0, objectives)), *values])
    ends = np.cumsum([len(each) for each in values], dtype=np.int64)
    within = feasible(section, every)
    all_points = [0.0, *hypervolumes(every, bounds)]
    counted = [0.0, *hypervolumes(every[within], bounds)]
    reached = [0, *np.cumsum(within).tolist()]
    states = [each.status for each in result.evaluations]
    return SearchSummary(
        hypervolume=tuple(all_points[end] for end in ends),
        feasible=tuple(counted[reached[end]] for end in ends),
        pooled=hypervolume(every, pooled_bounds([every])) if len(every) else 0.0,
        trainings=(states.count("done"), states.count("cut"), states.count("refused"), states.count("failed")),
    )


def _front(section: TuneSection, asked: Sequence[Evaluation]) -> list[FrontPoint]:
    """Return the points within the limits that none of these beats; without any within, those nearest to the limits."""
    points = compared(asked)
    values = values_of([each for _, each in points], len(section.objectives))
    within = feasible(section, values)
    if not within.any():
        far = np.array([exceeded(excesses(section, row)) for row in values.tolist()])
        chosen = np.flatnonzero(far == far.min()) if len(far) else np.empty(0, np.int64)
    else:
        chosen = np.flatnonzero(within)
    chosen = chosen[front_of(values[chosen])]
    ordered = sorted(chosen.tolist(), key=lambda at: points[at][1])
    return [
        FrontPoint(number=number, setting=points[at][0], found=points[at][1], feasible=bool(within[at]))
        for number, at in enumerate(ordered, 1)
    ]


def _store(out: Path, evaluator: Evaluator, result: TuneResult, held: Ledger) -> None:
    """Write the front, a job file for each of its points, and the search as Optuna's dashboard reads it."""
    write_lines(out / ledger.FRONT_FILE, result.front)
    write_json(out / ledger.RESULT_FILE, summary_of(evaluator.section, result))
    folder = out / ledger.SETTINGS
    shutil.rmtree(folder, ignore_errors=True)
    private_folder(folder)
    seeds = confirmed_seeds(evaluator.section, evaluator.seed)
    for point in result.front:
        job, _ = evaluator.space.job_of(point.setting)
        job = dataclasses.replace(job, run=dataclasses.replace(job.run, seeds=seeds))
        write_bytes(folder / f"{point.number}.toml", job.to_toml().encode())
    write_journal(out / JOURNAL, evaluator, result.evaluations)
    held.close()


def _describe(setting: Setting) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name.partition('.')[2] or name} {_text(value)}" for name, value in setting.items())


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
