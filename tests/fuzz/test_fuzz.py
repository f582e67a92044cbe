"""A sample of the fuzzing: a reader refuses what is damaged with an error of the package, or reads what was written.

``make fuzz`` goes on for as long as one likes; what it found broken is kept in the corpus, and fed here first.
"""

from __future__ import annotations

from typing import get_type_hints

import pytest
from changed_inputs import changed
from corpus import kept
from hypothesis import HealthCheck, Phase, given, settings
from targets import SHARES, TARGETS, check

from labelward.federation.components import MODELS, model_family
from labelward.job import ComponentSpec

EXAMPLES = {"codec": 200, "records": 200, "envelopes": 200, "checkpoints": 60, "views": 60, "shares": 60, "jobs": 25}


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_before_and_what_is_valid(name: str) -> None:
    target = TARGETS[name]
    accepted = [check(target, data) for data in target.seeds()]
    assert sum(accepted) >= len(accepted) // 2
    for data in kept(name):
        check(target, data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_inputs_near_valid_ones(name: str) -> None:
    """Not Parquet, whose reader is a library's."""
    target = TARGETS[name]

    @settings(max_examples=EXAMPLES[name], phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(changed([*target.seeds(), *kept(name)]))
    def near(data: bytes) -> None:
        check(target, data)

    near()


def test_tables_near_valid_ones() -> None:
    target = TARGETS["tables"]

    @settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(changed([data[1:] for data in target.seeds() if data[:1] == b"\0"]))
    def near(data: bytes) -> None:
        check(target, b"\0" + data)

    near()


def test_shares_of_every_model_are_fed() -> None:
    files = {get_type_hints(model_family(ComponentSpec(kind)).load)["return"] for kind in MODELS.classes()}
    assert files == {get_type_hints(model_family(ComponentSpec(kind)).load)["return"] for kind in SHARES}
