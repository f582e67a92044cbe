"""Errors as data: every raise gives its code, and no test reads a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from labelward import errors
from labelward.estimators._errors import InvalidInputError

SOURCE = Path(errors.__file__).parent
TESTS = Path(__file__).parent

PACKAGES = (
    *("job", "data", "studies", "estimators", "report", "cli"),
    *("auditing", "federation", "leakage", "metrics", "policy", "runs"),
    *("attacks", "defenses", "he", "kernels", "messages", "party", "privacy", "protocols", "testing", "transport"),
)
"""Whose errors give their code, and whose tests read no sentence."""

FILES = {"registry.py": "test_registry.py"}
"""Modules of no package that are held to the same, with their tests."""

MOST_WORDS = 4
"""Of a message that a test may look for: a name, a count, a key."""

SUBJECTS = ("str(caught.value)", "str(raised.value)", "str(error)", "caught.value.reason", "raised.value.reason")
"""What a test says that it looks into where it reads the text of an error."""

OUTPUTS = (".stdout", ".stderr", ".output")
"""Ends of what holds the output of a command, which golden pages compare as a whole."""

KINDS = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.LabelwardError)
} | {InvalidInputError.__name__}


def modules(base: Path, names: tuple[str, ...]) -> list[Path]:
    found = [path for name in names for path in sorted((base / name).rglob("*.py"))]
    assert found
    return found


def codeless(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where an error of labelward is made without a code; one that is passed on has its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            code = next((each.value for each in node.keywords if each.arg == "code"), None)
            if code is None or (isinstance(code, ast.Constant) and code.value is None):
                yield node.lineno
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in KINDS:
            yield node.lineno


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal that is matched with an error's text and has too many words."""
    for node in ast.walk(tree):
        looked: list[ast.expr] = []
        if isinstance(node, ast.Call):
            looked = [each.value for each in node.keywords if each.arg in ("match", "about")]
        elif isinstance(node, ast.Compare) and any(is_text(each) for each in node.comparators):
            looked = [node.left]
        elif isinstance(node, ast.Compare) and is_text(node.left):
            looked = node.comparators
        for text in looked:
            words = literal(text)
            if len(words.split()) > MOST_WORDS:
                yield node.lineno, words


def is_text(node: ast.expr) -> bool:
    """Whether an expression is the text of an error or the output of a command."""
    text = ast.unparse(node)
    return text in SUBJECTS or text.endswith(OUTPUTS)


def literal(node: ast.expr) -> str:
    """Return the text of a literal, with a letter for each value that is filled in; empty for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) if isinstance(part, ast.Constant) else "x" for part in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    if isinstance(node, ast.Call):  # such as re.escape
        return " ".join(literal(each) for each in node.args)
    return ""


def test_every_error_gives_its_code():
    paths = [*modules(SOURCE, PACKAGES), *(SOURCE / name for name in FILES)]
    wrong = [f"{path.relative_to(SOURCE)}:{line}" for path in paths for line in codeless(ast.parse(path.read_text()))]
    assert not wrong


def test_no_test_reads_a_sentence():
    paths = [*modules(TESTS, (*PACKAGES, "network")), *modules(SOURCE, ("testing",))]
    paths += [TESTS / name for name in FILES.values()]
    wrong = [
        f"{path.relative_to(TESTS)}:{line}: {words!r}"
        for path in paths
        for line, words in sentences(ast.parse(path.read_text()))
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise JobError("is required", code="missing")', []),
        ('raise JobError("is required")', [1]),
        ('raise JobError("is required", code=None)', [1]),
        ('raise JobError("is required").under("[data]") from error', [1]),
        ("raise JobError", [1]),
        ("raise error.within(place) from error", []),
        ('raise ValueError("is required")', []),
    ],
)
def test_what_is_taken_for_an_error_without_a_code(code: str, found: list[int]):
    assert [*codeless(ast.parse(code))] == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raises(JobError, match="must be one of")', []),
        ('raises(JobError, match="must be one of these")', ["must be one of these"]),
        ('raises(JobError, match=re.escape(f"{x} must be one of"))', ["x must be one of"]),
        ('assert "there is no such column" in str(caught.value)', ["there is no such column"]),
        ('assert caught.value.reason == "there is no " + "such column"', ["there is no such column"]),
        ('assert "there is no such column" in result.stderr', ["there is no such column"]),
        ('assert "no such column" in result.stderr', []),
        ('assert "there is no such column" in page', []),
    ],
)
def test_what_is_taken_for_a_sentence(code: str, found: list[str]):
    assert [words for _, words in sentences(ast.parse(code))] == found
