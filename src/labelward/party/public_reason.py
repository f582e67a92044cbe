"""What partners may know of a party's error: whose side it is, and a code that no label can change."""

from __future__ import annotations

from typing import Final

from labelward.errors import Code, DataError, DependencyError, JobError, LabelwardError, OutputError, PolicyError

CONSENT: Final = "[network] consent"
"""Where a party says what it agrees to after a training."""

_SIDES: dict[type[LabelwardError], str] = {
    JobError: "its job file",
    DataError: "its table",
    OutputError: "its folder",
    DependencyError: "its installation",
}
"""What may be to blame, as partners may know it; anything else, such as a defense, is "its settings"."""

_OF_CONTENT: Final = frozenset({"columns", "rows", "labels", "values"})
_CONTENT: Final[Code] = "values"
"""What partners hear of a table whose content is wrong, whichever of these codes the error has: told apart, they could
say that a class is rare, or that there is one class only."""

_PLAIN: dict[type[BaseException], str] = {
    KeyboardInterrupt: "it was interrupted by its user",
    OutputError: "it cannot write its files",
    MemoryError: "it is out of memory",
}
"""What ends a run and is no side of it."""


def public_reason(error: Exception) -> str:
    """Return what partners may know of an error that keeps a party from beginning: the side and the code.

    What a table holds has one code, ``"values"``, as it may follow from the labels whether rows, columns, labels or
    cells are wrong.
    """
    if not isinstance(error, LabelwardError):
        return f"it cannot begin ({type(error).__name__})"
    if isinstance(error, PolicyError) and error.field == CONSENT:
        return f"it does not consent to {error.value!r} ({CONSENT}, code {error.code!r})"
    side = _side(error) or "its settings"
    code = _CONTENT if isinstance(error, DataError) and error.code in _OF_CONTENT else error.code
    return f"it cannot begin because of {side} (code {code!r}); it knows more"


def reason_during_run(error: BaseException) -> str:
    """Return what partners may know of an error that ends a run: plain words, or the type of the error.

    Whether a job can be trained may follow from the labels, and so may any code of such an error; an error of the table
    has one code, whatever it has itself.
    """
    plain = next((words for kind, words in _PLAIN.items() if isinstance(error, kind)), "")
    side = _side(error)
    if plain or not side:
        return plain or type(error).__name__
    code = f" (code {_CONTENT!r})" if isinstance(error, DataError) else ""
    return f"it cannot go on because of {side}{code}; it knows more"


def _side(error: BaseException) -> str:
    """Return what may be to blame; empty: neither job file nor table, folder or installation."""
    return next((side for kind, side in _SIDES.items() if isinstance(error, kind)), "")
