"""What the page about the estimators says is so: its examples run, and its tables equal the code."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from test_scikit_learn_checks import EXPECTED_FAILURES

from labelward.estimators import FederatedForestClassifier, FederatedForestRegressor, SecureBoostClassifier

PAGE = (Path(__file__).parents[2] / "docs" / "how-to-estimators.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number}", "exec"), names)
    assert names["model"].score(names["X_test"], names["y_test"]) > 0.9
    assert capsys.readouterr().out.splitlines()[-1] == "True"


def _rows(heading: str) -> list[list[str]]:
    body = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[1:]]


def test_the_table_has_every_parameter_with_its_default_and_key() -> None:
    written = {row[0].strip("`"): ast.literal_eval(row[1].strip("`")) for row in _rows("Parameters")}
    keys = {row[0].strip("`"): row[2].strip("`") for row in _rows("Parameters")}
    known: dict[str, Any] = {}
    for cls in (SecureBoostClassifier, FederatedForestClassifier):
        defaults = {name: one.default for name, one in inspect.signature(cls).parameters.items()}
        assert all(known.setdefault(name, default) == default for name, default in defaults.items())
        assert defaults == {name: written[name] for name in defaults}
        assert {name: keys[name] for name in cls.names().values()} == {name: key for key, name in cls.names().items()}
    assert written.keys() == known.keys()


def test_defaults_are_those_of_a_job_but_where_the_page_says_otherwise() -> None:
    remarks = {row[0].strip("`"): row[3] for row in _rows("Parameters")}
    for cls in (SecureBoostClassifier, FederatedForestClassifier):
        model, given = cls.model(), cls().get_params()
        differ = {
            name for key, name in cls.names().items() if given[name] is not None and given[name] != getattr(model, key)
        }
        assert differ == {name for name in cls.names().values() if "in a job file" in remarks[name]}


def test_the_checks_that_fail_are_those_of_the_tests() -> None:
    reasons = {check: reason for one in EXPECTED_FAILURES.values() for check, reason in one.items()}
    assert {row[0].strip("`"): row[2] for row in _rows("What scikit-learn's checks say")} == reasons
    assert {name for name, those in EXPECTED_FAILURES.items() if those} == {
        FederatedForestClassifier.__name__,
        FederatedForestRegressor.__name__,
    }
