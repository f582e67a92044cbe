"""What a refusal must say, as data: code, field and value, never its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from labelward.errors import Code, LabelwardError

_ANY = object()


@contextmanager
def refused(
    kind: type[LabelwardError], code: Code, *, field: str | None = None, value: Any = _ANY
) -> Iterator[pytest.ExceptionInfo[LabelwardError]]:
    """Expect an error of this kind and code, and where given of this field and value; yields what is raised."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    said: dict[str, Any] = {"code": error.code}
    wanted: dict[str, Any] = {"code": code}
    if field is not None:
        said["field"], wanted["field"] = error.field, field
    if value is not _ANY:
        said["value"], wanted["value"] = error.value, value
    assert said == wanted, f"{said} of {error!r}, not {wanted}"
