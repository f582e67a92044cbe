"""Parameters: the annotation is what is checked, and what is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from msgspec import Meta

from blames import refused_about
from labelward.errors import Code, JobError
from labelward.parameters import Fraction, NonNegativeFloat, Parameters, PositiveInt, Text, documented_fields
from refusals import refused


@dataclass(frozen=True, kw_only=True)
class Sample(Parameters):
    section: ClassVar[str] = "[model]"

    steps: Annotated[PositiveInt, Meta(description="Number of steps.")] = 1
    depth: Annotated[int, Meta(ge=1, le=20)] = 3
    rate: Annotated[Fraction | None, Meta(description="Learning rate.")] = None
    penalty: NonNegativeFloat = 0.0
    optimizer: Literal["sgd", "adam"] = "sgd"
    weights: tuple[NonNegativeFloat, ...] = ()
    name: Text = "x"
    shuffle: bool = False
    size: int | str = 0
    directions: Mapping[str, int] = field(default_factory=dict)
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check_parameters(self) -> None:
        if self.steps < self.depth - 2:
            raise self.error("steps", "must be at least depth - 2")


@pytest.mark.parametrize(
    ("values", "code", "about"),
    [
        ({"steps": 0}, "range", "an integer ≥ 1"),
        ({"steps": True}, "type", "not true"),
        ({"steps": (2, 3)}, "type", "not [2, 3]"),
        ({"rate": {"a": ["b", False]}}, "type", '{a = ["b", false]}'),
        ({"steps": 1.0}, "type", "not 1.0"),
        ({"depth": 21}, "range", "from 1 to 20"),
        ({"rate": 0}, "range", "> 0"),
        ({"rate": "0.1"}, "type", "≤ 1"),
        ({"rate": math.nan}, "range", "a finite number"),
        ({"penalty": math.inf}, "range", "a finite number ≥"),
        ({"penalty": None}, "type", "a number ≥ 0"),
        ({"optimizer": "adma"}, "choice", "(did you mean 'adam'?)"),
        ({"optimizer": 3}, "choice", "'sgd' or 'adam'"),
        ({"weights": 1.0}, "type", "list of numbers ≥"),
        ({"name": " "}, "type", "a non-empty text"),
        ({"shuffle": 1}, "type", "true or false"),
        ({"size": 1.5}, "type", "an integer or a"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(values: dict[str, Any], code: Code, about: str) -> None:
    ((name, value),) = values.items()
    with refused_about(about, JobError, code, field=f"[model] {name}", value=value):
        Sample(**values)


@pytest.mark.parametrize(("element", "code"), [(-1.0, "range"), ("a", "type"), (math.inf, "range")])
def test_of_a_list_the_first_wrong_element_is_refused(element: Any, code: Code) -> None:
    with refused(JobError, code, field="[model] weights", value=element):
        Sample(weights=[1.0, element, -2.0])  # type: ignore[arg-type]


def test_values_are_converted_to_their_type() -> None:
    sample = Sample(rate=1, weights=[1, np.float64(0.5)], penalty=np.float64(2.0))  # type: ignore[arg-type]
    assert repr(sample) == repr(Sample(rate=1.0, weights=(1.0, 0.5), penalty=2.0))
    assert sample.parameters()["weights"] == (1.0, 0.5)
    assert "_state" not in sample.parameters()


def test_what_parameters_mean_together_is_checked_after_each_alone() -> None:
    with refused(JobError, "conflict", field="[model] steps", value=1):
        Sample(depth=9)
    with refused(JobError, "range", field="[model] depth", value=99):
        Sample(depth=99)


def test_the_description_is_the_help() -> None:
    help_texts = {each.name: description for each, description in documented_fields(Sample)}
    assert list(help_texts)[:3] == ["steps", "depth", "rate"]
    assert (help_texts["steps"], help_texts["rate"], help_texts["depth"]) == ("Number of steps.", "Learning rate.", "")
    assert "_state" not in help_texts
