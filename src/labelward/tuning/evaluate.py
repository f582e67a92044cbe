"""Evaluation of one setting: a training without encryption, its attacks, and the counts of the engine it stands for.

No split depends on the engine, so trees, views and utility are those of an encrypted training, and every ciphertext
that it would need is counted (:class:`~labelward.planning.counting_engine.PricingEngine`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

from labelward.auditing.measure import Measured, attack_training, measure
from labelward.data import RawTables, VerticalDataset, load_dataset, load_tables
from labelward.errors import JobError, PolicyError, whole_interrupts
from labelward.federation.components import make_attack, make_engine, with_defaults
from labelward.he import Counts, NullEngine
from labelward.installation import version
from labelward.job import UNITS, ComponentSpec, EncryptionSection, Job, TuneSection, Variant
from labelward.leakage.run_attack import score_without_view
from labelward.party.checkpoint import RememberedStates
from labelward.planning.cost_model import cost_model
from labelward.planning.counting_engine import PricingEngine
from labelward.planning.textbook_paillier import textbook_units
from labelward.rng import PrivateSeed
from labelward.runs.private_seeds import Seeds
from labelward.runs.schema import Cost
from labelward.tuning.epochs import EpochScorer
from labelward.tuning.folds import fewer_rows, selection_rows
from labelward.tuning.ledger import Evaluation, Point, evaluation_key
from labelward.tuning.objectives import Figures, Leakage, Objectives
from labelward.tuning.prefixes import LENGTHS, PrefixScorer, attackers_left, begun_with, refusal, shortest
from labelward.tuning.space import EPOCHS, Setting, Space, Variable

Rows = Literal["validation", "test"]
Snapshot = tuple[Counts, Counts]
_MOST_COMBINATIONS = 256


@dataclass(frozen=True, kw_only=True)
class Task:
    """An evaluation to make.

    Attributes:
        rows: on which utility is measured.
        share: of the training rows.
        lengths: numbers of first trees or epochs that count beside the whole; empty: all.
        cheapest: cost of a setting within all limits; a training whose first trees or epochs cost no less, and leak
            beyond the limit, is cut short. None: it is not.
    """

    setting: Setting
    seed: int
    rows: Rows = "validation"
    share: float = 1.0
    lengths: tuple[int, ...] = ()
    cheapest: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all evaluations of a search share; it travels to worker processes.

    Attributes:
        job: completed, with its ``[tune]``.
        private: private seeds by party, hexadecimal.
        units: seconds of an operation; empty before they are known.
    """

    job: Job
    private: Mapping[str, str]
    units: Mapping[str, float] = field(default_factory=dict)


class Evaluator:
    """Makes the evaluations of a search.

    Raises:
        JobError: the space or an objective does not fit the job.
        DataError: the data cannot be used.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.section = plan, plan.job.tune or TuneSection()
        self.private: Seeds = {party: PrivateSeed.from_hex(text) for party, text in plan.private.items()}
        self.seed = plan.job.run.seeds[0]
        self.source: RawTables = load_tables(plan.job)
        full = self._full(self.seed)
        self.classes = len(full.classes)
        self.space = Space.of(plan.job, self.section.variables, self.classes)
        self.objectives = Objectives(plan.job, self.section, self.classes)
        self.digest, self.version = _digest(full), version("labelward")
        # the digest stands for the table, which may have been moved
        self._base = dataclasses.replace(
            plan.job, tune=None, data=dataclasses.replace(plan.job.data, table=self.source.name)
        ).to_toml()
        self._data: dict[tuple[int, Rows, float], VerticalDataset] = {(self.seed, "test", 1.0): full}

    @property
    def dataset(self) -> str:
        """Name of the data."""
        return self.source.name

    def data(self, seed: int, rows: Rows, share: float) -> VerticalDataset:
        """Return the data of a seed, scored on validation or test rows."""
        key = (seed, rows, share)
        if key not in self._data:
            found = (
                self._full(seed)
                if rows == "test"
                else selection_rows(self.data(seed, "test", 1.0), self.section.validation, seed)
            )
            if seed != self.seed:  # of further seeds only the one in use is kept
                self._data = {each: held for each, held in self._data.items() if each[0] == self.seed}
            self._data[key] = fewer_rows(found, share, seed)
        return self._data[key]

    def key(self, task: Task) -> str:
        """Return the key of an evaluation: settings that differ in idle defenses only have the same."""
        about = {"job": self._base, "setting": self.space.canonical(task.setting), "lengths": task.lengths}
        return evaluation_key(about, self.digest, task.seed, task.rows, task.share, self.version)

    def __call__(self, task: Task) -> Evaluation:
        """Return an evaluation; a setting that is refused, or whose training fails, has no points but a reason."""
        start = time.process_time()
        job, variant, reason = self._job(task.setting)
        found: dict[str, Any] = {"status": "refused", "reason": reason}
        if job is not None:
            try:
                with whole_interrupts():
                    found = self._measured(job, variant, task)
            except (PolicyError, JobError) as error:
                found = {"status": "refused", "reason": str(error)}
            except Exception as error:  # whatever it is, the search goes on, and the ledger says why
                found = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        return Evaluation(
            key=self.key(task),
            version=self.version,
            data=self.digest,
            setting=dict(task.setting),
            seed=task.seed,
            rows=task.rows,
            share=task.share,
            seconds=round(time.process_time() - start, 3),
            **found,
        )

    @property
    def length(self) -> str:
        """The variable that says how long a training is; empty: of this model none does."""
        return LENGTHS.get(self.plan.job.model.kind, "")

    def keeps_prefixes(self, setting: Setting) -> bool:
        """Return whether the first trees or epochs of a setting's training are settings of their own."""
        return self._passing(setting) is not None

    def few_lengths(self, setting: Setting) -> tuple[int, ...]:
        """Return the powers of two below a setting's length: enough for what is trained on fewer rows, to be compared.

        Attacks on each of the first trees take longer than the training.
        """
        variant = self._passing(setting)
        if variant is None or self.length not in setting:
            return ()
        return tuple(each for each in self._begins(setting, variant) if each.bit_count() == 1)

    def _passing(self, setting: Setting) -> Variant | None:
        """Return the defenses of a setting whose training passes shorter ones, None for any other."""
        job, variant, _ = self._job(setting)
        passes = self.section.prefixes and job is not None and not refusal(job, variant, self.section)
        return variant if passes else None

    def _begins(self, setting: Setting, variant: Variant) -> list[int]:
        """Return the lengths below a setting's that are settings as well: those that its variable takes."""
        takes = next(each.takes for each in self.space.variables if each.name == self.length)
        return [each for each in range(shortest(variant), int(setting[self.length])) if takes(each)]

    @cached_property
    def fixed(self) -> Setting:
        """What a search need not vary: the length, at its upper end, where every training passes all shorter ones.

        Empty where a combination of choices, all defenses acting, has no such prefixes, or no variable would be left.
        """
        longest = {each.name: each.top for each in self.space.variables if each.name == self.length}
        others = [each for each in self.space.variables if each.name not in longest]
        if not longest or not others:
            return {}
        axes = [each.choices or (each.at(0.5),) for each in others]
        combinations = itertools.islice(itertools.product(*axes), _MOST_COMBINATIONS + 1)
        settings = [dict(zip((each.name for each in others), values, strict=True)) | longest for values in combinations]
        if len(settings) > _MOST_COMBINATIONS or not all(map(self.keeps_prefixes, settings)):
            return {}
        return longest

    @property
    def searched(self) -> tuple[Variable, ...]:
        """The variables that a search varies."""
        return tuple(each for each in self.space.variables if each.name not in self.fixed)

    def units(self) -> dict[str, float]:
        """Return seconds of an operation: those of ``[tune] units``, else measured here; empty without encryption."""
        if self.section.units:
            return dict(self.section.units)
        job = with_defaults(dataclasses.replace(self.plan.job, tune=None))
        if job.encryption.engine == NullEngine.name:
            return {}
        section = _priced(job.encryption)
        if self.section.cost == "unpacked":
            return textbook_units(section.bits)
        with closing(make_engine(section)) as engine:
            model = cost_model(
                dataclasses.replace(job, encryption=section), self.data(self.seed, "test", 1.0), engine, self.seed
            )
            if model is None:
                reason = f"cannot be measured for {job.model.kind!r}; give them"
                raise JobError(reason, code="missing", field="[tune] units", value=job.model.kind)
            found = model.unit_costs(())
        return {name: getattr(found, name) for name in UNITS}

    def dearest(self) -> tuple[Figures, float | None]:
        """Return the figures of the dearest setting, and the leakage of the same attacks without any view.

        The dearest setting has each parameter of the model at its upper end, and no defense.
        """
        top = {each.name: each.top for each in self.space.variables}
        model = {name.partition(".")[2]: value for name, value in top.items() if name.startswith("model.")}
        spec = ComponentSpec(self.plan.job.model.kind, {**self.plan.job.model.params, **model})
        job = with_defaults(dataclasses.replace(self.plan.job, model=spec, defenses=(), tune=None))
        run = _Run(self, job, Variant(), Task(setting={}, seed=self.seed))
        measured = run.measured
        if "leakage" not in self.objectives.names:
            return run.whole(), None
        blind = {}
        for party, attack in measured.leakage:
            made, training = make_attack(attack), measured.training
            guess = score_without_view(
                made, training.view(party), training.data, seed=self.seed, own=training.attacker(party, made)
            )
            blind[party, attack] = guess.metrics
        return run.whole(), self.objectives.strongest(blind)

    def _full(self, seed: int) -> VerticalDataset:
        return load_dataset(self.plan.job, seed, self.source, private=self.private)

    def _job(self, setting: Setting) -> tuple[Job | None, Variant, str]:
        """Return the job of a setting and its defenses; without a job the reason."""
        try:
            return *self.space.job_of(setting), ""
        except (JobError, PolicyError) as error:
            return None, Variant(), str(error)

    def _measured(self, job: Job, variant: Variant, task: Task) -> dict[str, Any]:
        """Return what a training gave, as an evaluation has it."""
        reason, lengths = refusal(job, variant, self.section) if self.section.prefixes else "", list[int]()
        if self.length in task.setting and self.section.prefixes and not reason:
            whole = int(task.setting[self.length])
            lengths = [each for each in self._begins(task.setting, variant) if each in (task.lengths or (each,))]
            if task.cheapest is not None and (begun := begun_with(whole)) in lengths:
                first = self._begun(task, begun)
                if self._hopeless(first["points"], task.cheapest):
                    return first | {"status": "cut", "reason": f"leaks beyond the limit with {self.length} = {begun}"}
        run = _Run(self, job, variant, task, prefixes=bool(lengths))
        points = [Point(self.objectives.values(run.first(each)), each) for each in lengths]
        last = Point(self.objectives.values(run.whole()))
        counted = run.end[0].as_dict()
        return {
            "reason": reason,
            "varies": self.length if points else "",
            "points": (*points, last),
            "counts": {name: counted[name] for name in ("encryptions", "additions", "decryptions")},
        }

    def _begun(self, task: Task, length: int) -> dict[str, Any]:
        """Return what the first trees or epochs of a training give, as points of it."""
        setting = {**task.setting, self.length: length}
        found = self._measured(*self.space.job_of(setting), dataclasses.replace(task, setting=setting, cheapest=None))
        *points, last = found["points"]
        return found | {"varies": self.length, "points": (*points, Point(last.values, length))}

    def _hopeless(self, points: Sequence[Point], cheapest: float) -> bool:
        """Return whether the beginning leaks beyond the limit, and costs no less than a setting within all limits.

        What a party finds in the first trees or epochs it can find in all of them, by leaving the others out.
        """
        leakage, cost = (self.objectives.names.index(each) for each in ("leakage", "cost"))
        most = max(point.values[leakage] for point in points)
        return most > self.section.constraints["leakage"] and points[-1].values[cost] >= cheapest


class _Run:
    """One training of an evaluation, with the counts after each of its rounds."""

    def __init__(self, evaluator: Evaluator, job: Job, variant: Variant, task: Task, *, prefixes: bool = False) -> None:
        section, self.evaluator = job.encryption, evaluator
        data = evaluator.data(task.seed, task.rows, task.share)
        self.rounds: list[Snapshot] = []
        self.engine: PricingEngine | None = None
        if section.engine != NullEngine.name:
            priced = _priced(section)
            self.engine = PricingEngine(_engine(priced), priced.bits)
            plain = EncryptionSection(engine="plain", insecure=True, workers=1, precision=section.precision)
            job = dataclasses.replace(job, encryption=plain)
        epochs = prefixes and evaluator.length == EPOCHS
        self.states = {party.name: RememberedStates() for party in job.parties} if epochs else {}
        self.measured: Measured = measure(
            job,
            variant,
            seed=task.seed,
            data=data,
            engine=self.engine,
            private=evaluator.private,
            watch=self._hear,
            checkpoints=self.states,
        )
        self.end = self._snapshot()

    def whole(self) -> Figures:
        """Return the figures of the whole training."""
        return self._figures(self.measured.utility, self.end, self.measured.leakage, self.measured.cost)

    def first(self, length: int) -> Figures:
        """Return the figures of its first trees or epochs."""
        scorer, leakage = self._scorer, dict(self.measured.leakage)
        attackers = attackers_left(list(leakage))
        attacked = attack_training(scorer.first(length), attackers, by_chance=False)
        leakage |= {(each.party, each.attack): each.result.leakage for each in attacked}
        counts = self.rounds[scorer.rounds(length)] if self.rounds else self.end
        objectives = self.evaluator.objectives
        utility = scorer.utility(length, {*objectives.names, objectives.utility_metric})
        return self._figures(utility, counts, leakage, scorer.cost(length))

    @cached_property
    def _scorer(self) -> PrefixScorer | EpochScorer:
        training = self.measured.training
        return EpochScorer(training, self.states) if self.states else PrefixScorer(training)

    def _hear(self, event: str, done: int, total: int, detail: str) -> None:
        """Count what the rounds that are finished took; the active party's thread calls between two rounds."""
        if event == "trees" and done == len(self.rounds):
            self.rounds.append(self._snapshot())

    def _snapshot(self) -> Snapshot:
        return (Counts(), Counts()) if self.engine is None else self.engine.snapshot()

    def _figures(self, utility: Mapping[str, float], counts: Snapshot, leakage: Leakage, cost: Cost) -> Figures:
        units, section = self.evaluator.plan.units, self.evaluator.section
        wire = cost.bytes if self.engine is None else self.engine.wire_bytes(cost.bytes, cost.ciphertexts)
        packed, single = counts
        costs: dict[str, float] = {"seconds": cost.seconds, "bytes": wire, "messages": cost.messages}
        costs |= {name: getattr(packed, name) for name in ("encryptions", "additions", "decryptions")}
        chosen = single if section.cost == "unpacked" else packed
        operations = _operation_seconds(chosen, units)
        main = {"seconds": cost.seconds + operations, "bytes": float(wire)}.get(section.cost, operations)
        return Figures(utility=utility, cost=main, costs=costs, leakage=leakage)


def _operation_seconds(counts: Counts, units: Mapping[str, float]) -> float:
    """Return N_enc · T_enc + N_dec · T_dec + N_add · T_add, Equation 5 of the CMOSB paper; without units 0."""
    if not units:
        return 0.0
    seconds = counts.encryptions * units["encrypt"] + counts.decryptions * units["decrypt"]
    return seconds + counts.additions * units["add"]


@cache
def _engine(section: EncryptionSection) -> Any:
    return make_engine(dataclasses.replace(section, workers=1))


def _priced(section: EncryptionSection) -> EncryptionSection:
    """Return the encryption that is counted: the job's, or the default where the job encrypts nothing."""
    return EncryptionSection(precision=section.precision) if section.engine == "plain" else section


def _digest(data: VerticalDataset) -> str:
    """Return a digest of the data of all parties."""
    total = hashlib.sha256()
    for party in data.parties:
        total.update(repr(party.columns).encode())
        for rows in (party.train, party.validation, party.test):
            total.update(rows.tobytes())
    total.update(data.train_values.tobytes())
    return total.hexdigest()[:16]
