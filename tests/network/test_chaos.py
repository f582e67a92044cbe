"""A sample of ``make chaos``, short enough for every day: most kinds of model and of fault have their turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import CASES, FURTHER, FURTHER_FROM, MOMENTS, Fault, Plan, draw, play
from troubled import Weather
from undisturbed import Undisturbed

pytestmark = [pytest.mark.network, pytest.mark.slow]

CALM = Weather()


def fault(kind: str, party: str, moment: str, *, other: str = "", wait: float = 0.0, seconds: float = 0.5) -> Fault:
    return Fault(kind=kind, party=party, other=other, moment=moment, count=1, wait=wait, seconds=seconds)


SAMPLE = {
    "two at once, in the middle": Plan(
        1, "noise", False, False, CALM, (fault("kill two", "bank", "trees", other="shop"),)
    ),
    "right after it is back": Plan(
        2, "budget", False, False, CALM, (fault("kill again", "telco", "trees", wait=0.02),)
    ),
    "at the end": Plan(3, "stops early", False, False, CALM, (fault("kill", "telco", "saved"),)),
    "all, at the end": Plan(4, "classes", False, False, CALM, (fault("kill all", "bank", "saved", seconds=0.1),)),
    "connections": Plan(
        5,
        "forest",
        False,
        False,
        Weather(delay=0.02, rate=1e6),
        (fault("cut", "bank", "agreed"), fault("freeze", "telco", "trees"), fault("partition", "shop", "trees")),
    ),
    "a relay that mangles, and dies": Plan(
        6, "paillier 512", True, True, CALM, (fault("kill relay", "bank", "trees"), fault("kill", "shop", "trees"))
    ),
    "files and tables": Plan(
        7, "stops early", False, False, CALM, (fault("damage", "bank", "trees"), fault("table", "telco", "trees"))
    ),
    "a network with noise": Plan(8, "network, ppdl", False, False, CALM, (fault("delete", "bank", "trees"),)),
    "a message of 300 MB": Plan(10, "boosted", False, False, CALM, (), ("telco", "large", 8)),
    "a hostile peer": Plan(9, "six parties", False, False, CALM, (), ("rail", "nested", 5)),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_disturbed_run_ends_as_if_it_had_not_been(name: str, tmp_path: Path, undisturbed: Undisturbed) -> None:
    result = play(SAMPLE[name], tmp_path / "run", undisturbed)
    assert result.attempts >= 1


def test_a_seed_says_all_that_is_planned() -> None:
    plans = [draw(seed) for seed in range(300)]
    assert plans == [draw(seed) for seed in range(300)]
    assert {plan.case for plan in plans} == set(CASES)
    assert {draw(FURTHER_FROM + number).case for number in range(30)} == set(FURTHER)
    assert {fault.moment for plan in plans for fault in plan.faults} == set(MOMENTS)
