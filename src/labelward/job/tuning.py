"""``[tune]``: what is searched for, over which settings, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from labelward.errors import JobError, number_code
from labelward.job._validators import check_unique
from labelward.job.components import FrozenDict
from labelward.parameters import Fraction, NonNegativeFloat, Parameters, PositiveInt, Text, as_written

UNITS = ("encrypt", "decrypt", "add")
"""Operations of Equation 5 of the CMOSB paper, as ``[tune] units`` names them."""


@dataclass(frozen=True, kw_only=True)
class TuneVariable(Parameters):
    """``[[tune.variable]]``: a parameter of the model or of a defense, and the values that it may take.

    A range from ``low`` to ``high``, or a list of ``choices``.
    """

    section: ClassVar[str] = "[[tune.variable]]"

    name: Annotated[
        Text,
        Meta(
            description="'model.PARAMETER', 'DEFENSE.PARAMETER', or 'defenses': which defenses, in order; its choices "
            "are 'none' and kinds joined by '+'."
        ),
    ]
    low: Annotated[float | None, Meta(description="Least value.")] = None
    high: Annotated[float | None, Meta(description="Largest value.")] = None
    coding: Annotated[
        Literal["bits", "real"] | None,
        Meta(description="'bits': whole numbers; 'real'; left out: by the type of the parameter."),
    ] = None
    log: Annotated[bool, Meta(description="Whether real values are searched on a logarithmic scale.")] = False
    choices: Annotated[tuple[int | float | str | bool, ...], Meta(description="Values, instead of a range.")] = ()
    off: Annotated[
        float | None,
        Meta(description="Value of a defense's parameter that means that it does not act; left out: none."),
    ] = None
    levels: Annotated[
        Annotated[int, Meta(ge=2, le=100_000)] | None,
        Meta(
            description="Values of the range that 'grid' tries, both ends among them; left out: as many as the "
            "evaluations allow."
        ),
    ] = None

    def check_parameters(self) -> None:
        """Refuse what is neither a range nor a list."""
        if bool(self.choices) == (self.low is not None or self.high is not None):
            raise self.error("choices", "needs either low and high, or choices", code="missing")
        if self.choices:
            check_unique(self.field_path("choices"), self.choices, "value")
            if self.levels is not None:
                raise self.error("levels", "a grid tries all choices; remove the key", code="conflict")
            for name in ("log", "coding"):
                if getattr(self, name):
                    raise self.error(name, "is for a range, and this is a list; remove the key", code="conflict")
            return
        for name in ("low", "high"):
            if getattr(self, name) is None:
                raise self.error(name, "required with the other end of the range", code="missing")
        if not float(self.low or 0) < float(self.high or 0):
            raise self.error("high", f"must be above low ({self.low:g}), not {self.high:g}", code="range")
        if self.log and float(self.low or 0) <= 0:
            raise self.error("low", f"must be above 0 on a logarithmic scale, not {self.low:g}", code="range")

    def field_path(self, name: str) -> str:
        """Return how errors call a key: after the variable's name, as entries have no other."""
        return f"{self.section} {self.name}: {name}" if name != "name" else f"{self.section} name"

    def as_dict(self) -> dict[str, Any]:
        """Return the form in a file, without what is left out."""
        return {
            key: value for key, value in self.parameters().items() if value not in (None, ()) and value is not False
        }


@dataclass(frozen=True, kw_only=True)
class TuneSection(Parameters):
    """``[tune]``: search for the settings that no other setting beats in utility, cost and leakage."""

    section: ClassVar[str] = "[tune]"

    search: Annotated[
        Literal["tpe", "gp", "nsga2", "random", "grid", "bayes", "empirical"],
        Meta(
            description="'tpe' (models of the hypervolume that a training has, and adds), 'gp' (one model of all "
            "objectives), 'nsga2' (the paper's), 'random', 'grid', 'bayes' (a Gaussian process for each objective), "
            "'empirical' (settings of FATE, VF²Boost and their average)."
        ),
    ] = "tpe"
    evaluations: Annotated[PositiveInt, Meta(le=100_000, description="Number of trainings of the search.")] = 100
    population: Annotated[int, Meta(ge=2, le=10_000, description="Settings of a generation of 'nsga2'.")] = 20
    objectives: Annotated[
        tuple[Text, ...],
        Meta(
            min_length=1,
            description="What is minimized: 'utility' (its loss), 'cost', 'leakage', or a metric of result rows, such "
            "as 'logloss', 'bytes' or 'id2graph.v_measure'.",
        ),
    ] = ("utility", "cost", "leakage")
    constraints: Annotated[
        Mapping[str, float], Meta(description="Upper limits by objective, such as { cost = 100, leakage = 0.6 }.")
    ] = FrozenDict[float]({})
    handling: Annotated[
        Literal["feasible-first", "penalty", "none"],
        Meta(
            description="Settings beyond a limit: 'feasible-first' (behind all within), 'penalty' (the paper's: "
            "20 · excess / limit is added to the objective), 'none' (limits are for the result only)."
        ),
    ] = "feasible-first"
    cost: Annotated[
        Literal["operations", "unpacked", "seconds", "bytes"],
        Meta(
            description="'operations': seconds of ciphertext operations (Equation 5); 'unpacked': each number a "
            "textbook ciphertext, as in the paper; 'seconds' of the training with them; 'bytes' sent."
        ),
    ] = "operations"
    units: Annotated[
        Mapping[str, float],
        Meta(description="Seconds of an operation: { encrypt, decrypt, add }; left out: measured."),
    ] = FrozenDict[float]({})
    leakage: Annotated[
        Text,
        Meta(
            description="'strongest': of all attacks, in balanced accuracy, best matching; 'ica': accuracy of instance "
            "clustering, as in the paper (Equation 6)."
        ),
    ] = "strongest"
    prefixes: Annotated[
        bool,
        Meta(description="Count first trees, or epochs of a network, as settings of their own, where they are."),
    ] = True
    cut_short: Annotated[
        bool,
        Meta(
            description="End a training whose first trees or epochs leak beyond a limit and cost no less than a known "
            "setting within all limits."
        ),
    ] = True
    validation: Annotated[
        float,
        Meta(gt=0, lt=1, description="Share of the rows that are no test rows on which settings are compared."),
    ] = 0.25
    fidelity: Annotated[
        tuple[Fraction, ...],
        Meta(description="Shares of rows: all settings are trained on the first, the better half on the next."),
    ] = ()
    confirm: Annotated[
        int, Meta(ge=0, le=1000, description="Number of further seeds on which the front is measured again.")
    ] = 5
    margin: Annotated[
        NonNegativeFloat,
        Meta(description="Standard errors by which the mean of a confirmed setting must stay below each limit."),
    ] = 1.0
    variables: tuple[TuneVariable, ...] = field(default=())
    """The entries ``[[tune.variable]]``; without any, those of the CMOSB paper."""

    def check_parameters(self) -> None:
        """Refuse a population that the search never fills, limits of nothing, and shares that do not grow."""
        check_unique("[tune] objectives", self.objectives, "objective")
        if self.search == "nsga2" and self.population > self.evaluations:
            raise self.error("population", f"must be at most the {self.evaluations} evaluations", code="range")
        object.__setattr__(self, "constraints", _numbers("[tune] constraints", self.constraints, self.objectives))
        object.__setattr__(self, "units", _numbers("[tune] units", self.units, UNITS))
        if self.units and set(self.units) != set(UNITS):
            raise self.error("units", f"needs all of {', '.join(UNITS)}", code="missing")
        if self.fidelity and (list(self.fidelity) != sorted({*self.fidelity}) or self.fidelity[-1] != 1.0):
            raise self.error("fidelity", "must grow and end in 1", code="range")
        check_unique("[[tune.variable]] name", [each.name for each in self.variables], "variable")

    def as_dict(self) -> dict[str, Any]:
        """Return the keys of ``[tune]`` in a file, without the variables."""
        return {key: value for key, value in self.parameters().items() if key != "variables"}


def _numbers(place: str, given: Any, known: tuple[str, ...]) -> FrozenDict[float]:
    """Return positive numbers by name; :class:`JobError` for anything else."""
    if not isinstance(given, Mapping):
        raise JobError(f"must be names with numbers, not {as_written(given)}", code="type", field=place, value=given)
    for name, value in given.items():
        if name not in known:
            reason = f"{name!r} is none of {', '.join(known)}"
            raise JobError(reason, code="unknown", field=f"{place} {name}", value=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            reason = f"must be a number above 0, not {as_written(value)}"
            raise JobError(reason, code=number_code(value), field=f"{place} {name}", value=value)
    return FrozenDict({name: float(value) for name, value in given.items()})
