"""Errors as data."""

from __future__ import annotations

import pickle

import pytest

from labelward.errors import JobError, LabelwardError, PeerError
from refusals import refused


def test_an_error_carries_what_its_text_says():
    with refused(JobError, "range", field="[data] test_size", value=1.5) as caught:
        raise JobError(
            "must lie strictly between 0 and 1 but got 1.5", code="range", field="[data] test_size", value=1.5
        )
    assert str(caught.value) == "[data] test_size: must lie strictly between 0 and 1 but got 1.5"
    assert caught.value.reason == "must lie strictly between 0 and 1 but got 1.5"


def test_a_refusal_of_another_code_or_field_is_not_taken_for_it():
    for code, field in (("type", "[data] test_size"), ("range", "[data] validation_size")):
        with (
            pytest.raises(AssertionError, match="not"),
            refused(JobError, code, field=field),
        ):
            raise JobError("is too large", code="range", field="[data] test_size")


def test_a_place_is_put_before_the_text_and_nothing_else_changes():
    error = JobError("is required", code="missing", field="[data] label")
    moved = error.within("job.toml")
    assert str(moved) == "job.toml: [data] label: is required"
    assert (moved.code, moved.field, moved.reason) == (error.code, error.field, error.reason)
    assert str(error) == "[data] label: is required"


@pytest.mark.parametrize(
    "error",
    [
        JobError("is required", code="missing", field="[data] label"),
        PeerError("telco", "is silent", code="peer-silent", message="Level", step=(1, 2)),
    ],
)
def test_an_error_passes_from_process_to_process(error: LabelwardError):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
