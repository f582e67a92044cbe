"""What source coding and what goes with it refuse, as a user meets it: exit code 2, the field and its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_jobs import Call, refused, write_job, write_table

JOB = """
[data]
table = "{table}"
label = "label"
[parties]
active = ["a0", "a1"]
telco = ["t0", "t1", "t2"]
[model]
kind = "splitnn"
top = false
loss = "logistic"
active_bottom = false
epochs = 2
batch_size = 16
[[defense]]
kind = "lpsc"
[[attack]]
kind = "norm"
party = "passive"
[run]
seeds = [1]
"""
LABEL, LPSC, NORM = 'label = "label"', 'kind = "lpsc"', 'kind = "norm"\nparty = "passive"'
TWO, THREE = np.arange(120) % 2, np.arange(120) % 3


def inversion(column: str) -> dict[str, str]:
    return {NORM: f'kind = "inversion"\ncolumn = "{column}"\nauxiliary = 20\nparty = "active"'}


def with_another(defense: str) -> dict[str, str]:
    return {LPSC: f"chain = [{{ {LPSC} }}, {defense}]"}


@pytest.mark.filterwarnings("ignore::labelward.errors.DataWarning")
@pytest.mark.parametrize(
    ("changes", "columns", "words"),
    [
        pytest.param(
            {LABEL: f'{LABEL}\ntask = "regression"', '"logistic"': '"mse"'},
            {"label": np.arange(120) + 0.5},
            ["defense 'lpsc'", "quantities"],
            id="quantities",
        ),
        pytest.param({'"logistic"': '"auto"'}, {"label": THREE}, ["defense 'lpsc'", "3"], id="three classes"),
        pytest.param({}, {"label": THREE}, ["[model] loss", "'logistic'", "3"], id="one output for three classes"),
        pytest.param({'["a0", "a1"]': "[]"}, {}, ["defense 'lpsc'", "0"], id="no active columns"),
        pytest.param(
            {"active_bottom = false\n": ""}, {}, ["defense 'lpsc'", "active_bottom", "true"], id="active bottom model"
        ),
        pytest.param({'"logistic"': '"auto"'}, {}, ["defense 'lpsc'", "[model] loss", "'auto'"], id="loss"),
        pytest.param(
            {LABEL: f"{LABEL}\naligned = 0.15"},
            {},
            ["[model] batch_size", "16", "14", "aligned"],
            id="few aligned rows",
        ),
        pytest.param({LABEL: f"{LABEL}\naligned = 0"}, {}, ["[data] aligned", "0"], id="aligned"),
        pytest.param(with_another('{ kind = "lpsc" }'), {}, ["defense 'lpsc'", "combined", "'lpsc'"], id="two codes"),
        pytest.param(
            with_another('{ kind = "coae", weight = 0.5 }'), {}, ["defense 'lpsc'", "'coae'"], id="soft labels"
        ),
        pytest.param(
            {
                LPSC: f'{LPSC}\ncoding = "adaboost"',
                "epochs = 2": 'epochs = 10\noptimizer = "adam"\nlearning_rate = 0.05',
            },
            {"a0": 1.0 * TWO, "a1": 1.0 * TWO, "label": TWO},
            ["defense 'lpsc'", "'adaboost'", "error of 0;"],
            id="own model without an error",
        ),
        pytest.param(
            {"epochs = 2": 'epochs = 2\nbottoms = { shop = "linear" }'},
            {},
            ["[model] bottoms", "'shop'", "telco"],
            id="bottom model of nobody",
        ),
        pytest.param(inversion("telco.t0"), {}, ["[[attack]] 1: column", "'telco.t0'", "96"], id="column not binary"),
        pytest.param(inversion("active.a0"), {}, ["[[attack]] 1: column", "'active.a0'"], id="own column"),
        pytest.param(inversion("telco.t9"), {}, ["[[attack]] 1: column", "'telco.t9'"], id="no column"),
        pytest.param({NORM: f"{NORM}\nepoch = 3"}, {}, ["[[attack]] 1: epoch", "3", "2"], id="epoch"),
        pytest.param({LPSC: f'{LPSC}\ncoding = "logit"'}, {}, ["coding", "'logit'", "'logitboost'"], id="coding"),
        pytest.param({LPSC: f"{LPSC}\nfolds = 1"}, {}, ["'lpsc': folds", "1"], id="folds"),
        pytest.param({LPSC: f"{LPSC}\nfolds = 97"}, {}, ["'lpsc': folds", "97", "96"], id="folds without rows"),
        pytest.param({LPSC: f"{LPSC}\nscale = -1"}, {}, ["'lpsc': scale", "-1"], id="scale"),
        pytest.param(
            {LPSC: f'{LPSC}\nscale = "validation"'}, {}, ["'lpsc'", "validation_size"], id="scale without validation"
        ),
        pytest.param({LPSC: 'kind = "adversarial"\nbeta = -1'}, {}, ["beta", "-1"], id="beta"),
        pytest.param({LPSC: 'kind = "marvell"\ns = 0'}, {}, ["'marvell': s", "0"], id="s"),
        pytest.param({LPSC: 'kind = "mid"\nweight = -0.5'}, {}, ["'mid': weight", "-0.5"], id="weight"),
        pytest.param(
            {LABEL: f'{LABEL}\ncategories = "hashed"\nbuckets = 0'}, {}, ["[data] buckets", "0"], id="buckets"
        ),
    ],
)
def test_what_cannot_be(
    tmp_path: Path, call: Call, changes: dict[str, str], columns: dict[str, Any], words: list[str]
) -> None:
    write_table(tmp_path / "table.csv", **columns)
    refused(call("audit", write_job(tmp_path, JOB, changes=changes), "--out", tmp_path / "audit", "--quiet"), *words)
