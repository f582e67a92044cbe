"""Errors as data."""

from __future__ import annotations

import pickle

import pytest

from labelward.errors import InputError, JobError, LabelwardError, PeerError, whole_interrupts
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
    assert str(moved.within("job.toml")) == str(moved)


@pytest.mark.parametrize(
    ("error", "field", "text"),
    [
        (JobError("is required", code="missing", field="kind"), "[[attack]] 1 kind", "[[attack]] 1: kind: is required"),
        (JobError("unknown key 'x'", code="unknown", value="x"), "[[attack]] 1", "[[attack]] 1: unknown key 'x'"),
    ],
)
def test_an_error_is_put_into_a_section(error: JobError, field: str, text: str):
    moved = error.under("[[attack]] 1:")
    assert (moved.field, str(moved)) == (field, text)
    assert (moved.code, moved.value, moved.reason) == (error.code, error.value, error.reason)


def test_an_error_of_another_class_says_the_same():
    error = InputError("is too large", code="range", field="eta", value=2).within("attack 'x'")
    turned = error.translated(JobError)
    assert type(turned) is JobError
    assert (str(turned), turned.__dict__) == (str(error), error.__dict__)


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


def test_an_interrupt_in_native_code_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), whole_interrupts():
        raise _native(_native(KeyboardInterrupt()))
    with pytest.raises(SystemError), whole_interrupts():
        raise _native(ValueError())


def _native(error: BaseException) -> BaseException:
    """Return what CPython raises for native code that returned with an error set."""
    raised = SystemError("returned a result with an exception set")
    raised.__cause__ = error
    return raised
