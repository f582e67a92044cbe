"""Search space: variables with their ranges, and the job that a setting of them stands for.

Source: Section VI-A of the CMOSB paper, whose decision variables these are by default; its ranges are lost, and those
here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from labelward.defenses import DEFENSES
from labelward.errors import JobError, unknown_name
from labelward.federation.components import MODELS, with_defaults
from labelward.job import ComponentSpec, Job, TuneVariable, Variant, check_unique
from labelward.parameters import check_value, parameter_annotation

Value = int | float | str | bool
Setting = Mapping[str, Value]
"""A value for each variable, by its name."""

TREES, EPOCHS = "model.trees", "model.epochs"
CHAIN = "defenses"
"""The variable that says which defenses act, in which order."""
_OFF = {"local-trees.count": 0.0, "purity-threshold.threshold": 1.0}
_FIXED = {"local-trees": {"mode": "add"}}
_DIGITS = 6
_NEAR = 0.02
"""Share of a range next to ``off`` that stands for it: no search would draw the very value from real numbers."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable: a range of numbers, or a list of choices.

    Attributes:
        name: as in :class:`~labelward.job.TuneVariable`.
        whole: whether it takes whole numbers, which evolutionary search codes as bits.
        off: the value at which the defense does not act, as it does not where a real number comes near; None: it always
            acts.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False
    choices: tuple[Value, ...] = ()
    off: float | None = None
    levels: int | None = None

    @property
    def bits(self) -> int:
        """Bits of its code; 0 for a real number."""
        if self.choices:
            return (len(self.choices) - 1).bit_length()
        return int(self.high - self.low).bit_length() if self.whole else 0

    @property
    def count(self) -> int:
        """Number of its values; 0 for a real number."""
        return len(self.choices) or (int(self.high - self.low) + 1 if self.whole else 0)

    @property
    def top(self) -> Value:
        """The largest value; of words the last."""
        numbers = [each for each in self.choices if isinstance(each, int | float)]
        return max(numbers) if numbers and len(numbers) == len(self.choices) else self.at(1.0)

    def takes(self, value: int) -> bool:
        """Return whether a whole number is one of the values."""
        return value in self.choices if self.choices else self.low <= value <= self.high

    def at(self, place: float) -> Value:
        """Return the value at a place from 0 to 1: of the range, of its logarithm, or of the list."""
        if self.choices:
            return self.choices[min(int(place * len(self.choices)), len(self.choices) - 1)]
        if self.whole:
            return int(self.low) + min(int(place * (self.high - self.low + 1)), int(self.high - self.low))
        if self.log:
            return self.rounded(math.exp(math.log(self.low) + place * math.log(self.high / self.low)))
        return self.rounded(self.low + place * (self.high - self.low))

    def place(self, value: Value) -> float:
        """Return where a value lies from 0 to 1, in the middle of what :meth:`at` makes the same value."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices)
        number = float(value)
        if self.whole:
            return (number - self.low + 0.5) / (self.high - self.low + 1)
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def decoded(self, code: int) -> Value:
        """Return the value of a code of :attr:`bits` bits; all codes have one, spread evenly."""
        last = (len(self.choices) or int(self.high - self.low) + 1) - 1
        place = round(code * last / max(1, (1 << self.bits) - 1))
        return self.choices[place] if self.choices else int(self.low) + place

    def rounded(self, value: float) -> float:
        """Return a real value with as many digits as a job file shows, within the range; near ``off`` that value."""
        if self.off is not None and self.low <= self.off <= self.high:
            near = _NEAR * (self.high - self.low)
            value = self.off if abs(value - self.off) <= near else value
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Space:
    """The variables of a search, and the job that they vary.

    Raises:
        JobError: a variable that neither the model nor a defense has, or a range outside what it takes; or several
            variants where one is meant.
    """

    job: Job
    variables: tuple[Variable, ...]

    @classmethod
    def of(cls, job: Job, given: Sequence[TuneVariable], classes: int) -> Space:
        """Return the space of a job: its ``[[tune.variable]]``, or the default one.

        Args:
            classes: of the labels; 0: a regression, for which the default has no purity threshold.
        """
        if len(job.defenses) > 1:
            reason = "a search varies one chain of defenses; keep one entry, or none"
            raise JobError(reason, code="conflict", field="[[defense]]", value=len(job.defenses))
        if not given:
            return cls(job, default_variables(job, classes))
        found = cls(job, tuple(_variable(job, each) for each in given))
        found.check_chains()
        return found

    def check_chains(self) -> None:
        """Refuse a chain of defenses of which one cannot be made, such as for want of a parameter that it requires."""
        usual = {each.name: each.at(0.5) for each in self.variables}
        for choice in next((each.choices for each in self.variables if each.name == CHAIN), ()):
            for spec in self._defenses({**usual, CHAIN: choice}):
                try:
                    DEFENSES.make(spec.kind, spec.without("party").params)
                except JobError as error:
                    raise error.under(f"[[tune.variable]] {CHAIN}: choices:") from error

    @cached_property
    def _base(self) -> dict[str, dict[str, Any]]:
        """By kind the parameters of the job's own defenses."""
        chain = self.job.defenses[0].chain if self.job.defenses else ()
        return {spec.kind: dict(spec.params) for spec in chain}

    def job_of(self, setting: Setting) -> tuple[Job, Variant]:
        """Return the completed job of a setting, with its defenses as the only variant, and this variant.

        Raises:
            JobError: model or defenses refuse the setting.
        """
        model, specs = dict(self.job.model.params), self._defenses(setting)
        for variable in self.variables:
            kind, _, parameter = variable.name.partition(".")
            if kind == "model":
                model[parameter] = setting[variable.name]
        job = replace(
            self.job,
            model=ComponentSpec(self.job.model.kind, model),
            defenses=(Variant(specs),) if specs else (),
            tune=None,
        )
        job = with_defaults(job)
        return job, job.variants()[-1]

    def _defenses(self, setting: Setting) -> tuple[ComponentSpec, ...]:
        """Return the defenses that act in a setting, in their order."""
        kinds = {kind: dict(params) for kind, params in self._base.items()}
        for variable in self.variables:
            kind, _, parameter = variable.name.partition(".")
            if kind != "model" and variable.name != CHAIN:
                kinds.setdefault(kind, dict(_FIXED.get(kind, {})))[parameter] = setting[variable.name]
        chain, idle = list(kinds) if CHAIN not in setting else _chain(str(setting[CHAIN])), self._idle(setting)
        return tuple(ComponentSpec(kind, kinds.get(kind, {})) for kind in chain if kind not in idle)

    def canonical(self, setting: Setting) -> dict[str, Value]:
        """Return a setting without the parameters of defenses that do not act in it."""
        idle = self._idle(setting)
        return {name: value for name, value in setting.items() if name.partition(".")[0] not in idle}

    def _idle(self, setting: Setting) -> set[str]:
        """Return the kinds of defenses that a value of theirs, or the chain, leaves out."""
        off = {each.name: each.off for each in self.variables if each.off is not None}
        found = {name.partition(".")[0] for name, value in off.items() if setting[name] == value}
        if CHAIN in setting:
            named = {each.name.partition(".")[0] for each in self.variables} - {"model", CHAIN}
            found |= named - set(_chain(str(setting[CHAIN])))
        return found


def default_variables(job: Job, classes: int) -> tuple[Variable, ...]:
    """Return the decision variables of the CMOSB paper: those that the model has."""
    takes = MODELS.classes()[job.model.kind].__dataclass_fields__
    found = [
        Variable(name=TREES, low=1, high=32, whole=True),
        Variable(name="model.depth", low=1, high=8, whole=True),
        Variable(name="model.row_fraction", low=0.1, high=1.0),
        Variable(name="model.learning_rate", low=0.01, high=0.5),
    ]
    found = [each for each in found if each.name.partition(".")[2] in takes]
    if job.model.kind == "secureboost":
        found.append(Variable(name="local-trees.count", low=0, high=15, whole=True, off=0))
        if classes:
            found.append(Variable(name="purity-threshold.threshold", low=1 / classes, high=1.0, off=1.0))
    if not found:
        reason = f"{job.model.kind!r} has no default variables; name some"
        raise JobError(reason, code="missing", field="[[tune.variable]]", value=job.model.kind)
    return tuple(found)


def _chain(text: str) -> list[str]:
    """Return the kinds of defenses that a choice of :data:`CHAIN` names."""
    return [] if text == "none" else text.split("+")


def _variable(job: Job, given: TuneVariable) -> Variable:
    kind, _, parameter = given.name.partition(".")
    defenses, models = DEFENSES.classes(), MODELS.classes()
    if given.name == CHAIN:
        if not given.choices:
            reason = 'a chain of defenses has no range; give choices, such as ["none", "id-lmid"]'
            raise JobError(reason, code="missing", field=given.field_path("choices"))
        for choice in given.choices:
            for each in _chain(str(choice)):
                if each not in defenses:
                    raise _refused(unknown_name("defense", each, defenses), each)
            check_unique(given.field_path("choices"), _chain(str(choice)), "defense")
        return Variable(name=CHAIN, choices=given.choices)
    if kind != "model" and kind not in defenses:
        raise _refused(unknown_name("defense", kind, ["model", CHAIN, *defenses]), kind)
    owner: type[Any] = models[job.model.kind] if kind == "model" else defenses[kind]
    takes = [each.name for each in fields(owner) if each.init]
    if parameter not in takes:
        raise _refused(unknown_name("parameter", parameter, takes), parameter)
    annotation, inner = parameter_annotation(owner, parameter)
    if kind == "model" and given.off is not None:
        reason = "only a defense has a value at which it does not act; remove the key"
        raise JobError(reason, code="conflict", field=given.field_path("off"), value=given.off)
    off = _OFF.get(given.name) if given.off is None else given.off
    for key in ("choices",) if given.choices else ("low", "high"):
        for value in given.choices if given.choices else (getattr(given, key),):
            if value != off:
                whole = inner is int and isinstance(value, float) and value.is_integer()
                check_value(given.field_path(key), int(value) if whole else value, annotation)
    if given.choices:
        return Variable(name=given.name, choices=given.choices, off=off)
    assert given.low is not None
    assert given.high is not None
    whole = inner is int if given.coding is None else given.coding == "bits"
    if whole and not (given.low.is_integer() and given.high.is_integer()):
        reason = f"'bits' needs whole numbers as low and high, not {given.low:g} and {given.high:g}; write \"real\""
        raise JobError(reason, code="conflict", field=given.field_path("coding"), value=given.coding)
    if inner is int and not whole:
        raise JobError("takes whole numbers", code="conflict", field=given.field_path("coding"), value=given.coding)
    found = Variable(
        name=given.name, low=given.low, high=given.high, whole=whole, log=given.log, off=off, levels=given.levels
    )
    if given.levels is not None and 0 < found.count < given.levels:
        reason = f"the range has only {found.count} values, not {given.levels}"
        raise JobError(reason, code="range", field=given.field_path("levels"), value=given.levels)
    return found


def _refused(reason: str, value: str) -> JobError:
    return JobError(reason, code="unknown", field="[[tune.variable]] name", value=value)
