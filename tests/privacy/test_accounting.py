import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blames import refused_about
from labelward.errors import JobError, PolicyError
from labelward.privacy import Budget, Spend, parallel, sequential
from refusals import refused


def test_disjoint_rows_cost_the_dearest_release() -> None:
    budget = Budget(epsilon=1.0, rows=10)
    assert (budget.spent, budget.unused, budget.spends) == (0.0, 10, [])
    budget.spend(np.arange(5), 0.5)
    budget.spend(np.array([9, 7]), 1)
    assert budget.spends == [Spend(epsilon=0.5, rows=5), Spend(epsilon=1.0, rows=2)]
    assert (budget.spent, budget.unused) == (1.0, 3)


def test_no_label_is_used_twice_and_a_refusal_records_nothing() -> None:
    budget = Budget(epsilon=1.0, rows=10)
    budget.spend(np.array([3, 4, 5]), 0.1)
    with refused_about("row 4", PolicyError, "budget", value=2):
        budget.spend(np.array([6, 5, 4]), 0.1)
    with refused(PolicyError, "budget", value=1.5):
        budget.spend(np.array([6]), 1.5)
    with refused_about("epsilon", JobError, "range"):
        budget.spend(np.array([6]), math.nan)
    assert (budget.spent, budget.unused) == (0.1, 7)
    budget.spend(np.array([6]), 1.0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one"),
        ([1.0], "whole numbers"),
        ([[1]], "whole numbers"),
        ([0, 10], "from 0 to 10"),
        ([-1, 3], "from -1 to 3"),
        ([3, 4, 3, 3], "row 3 .* 3 times"),
    ],
    ids=str,
)
def test_rows_are_rows_of_the_table(rows: list[int], message: str) -> None:
    budget = Budget(epsilon=1.0, rows=10)
    with pytest.raises(ValueError, match=message):
        budget.spend(np.array(rows), 0.1)
    assert budget.unused == 10


def test_a_budget_has_no_default_and_is_checked() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        Budget(rows=3)  # type: ignore[call-arg]
    with refused_about("epsilon", JobError, "range", value=math.inf):
        Budget(epsilon=math.inf, rows=3)
    for rows in (0, True, 2.0):
        with refused_about("rows", JobError, "range" if type(rows) is int else "type", value=rows):
            Budget(epsilon=1.0, rows=rows)  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 50), max_size=8))
def test_composition(epsilons: list[float]) -> None:
    assert parallel(epsilons) == max([0.0, *epsilons])
    exact, total = sum(map(Fraction, epsilons)), sequential(epsilons)
    assert exact <= Fraction(total) <= exact + Fraction(math.ulp(total)), "never understated, by rounding neither"


def test_composition_checks_what_it_adds() -> None:
    for rule in (parallel, sequential):
        with refused_about("epsilon", JobError, "range", value=-1):
            rule([0.5, -1])
