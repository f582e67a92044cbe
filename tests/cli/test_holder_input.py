"""Labels on several parties: what a user may get wrong ends with exit code 2 and one line that names the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from small_jobs import Call, refused, write_job

JOB = """
[data]
table = "{table}"
label = "label"
labels = {{bank = 0.4, clinic = 0.6}}
[parties]
bank = ["b0", "b1"]
clinic = ["c0", "c1"]
shop = ["s0", "s1"]
[model]
kind = "pivodl"
aggregation = "masks"
trees = 1
[encryption]
engine = "plain"
insecure = true
[[attack]]
kind = "node-sums"
[leakage]
privacy = false
[run]
seeds = [1]
"""
LABELS, MODEL, RUN = "labels = {bank = 0.4, clinic = 0.6}", "trees = 1", "[run]"


def write_table(folder: Path) -> None:
    rng = np.random.default_rng(3)
    table = {f"{party}{number}": rng.normal(size=150) for party in "bcs" for number in range(2)}
    table["label"] = (table["b0"] + table["c0"] + table["s0"] > 0).astype(np.int64)
    pyarrow.csv.write_csv(pa.table(table), folder / "table.csv")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({LABELS: "labels = {bank = 1.0}"}, ["[data] labels", "two label holders"]),
        ({LABELS: "labels = {bank = 0.4, clinic = 0.4}"}, ["[data] labels", "0.8"]),
        ({LABELS: "labels = {bank = 0.4, lab = 0.6}"}, ["[data] labels lab", "'lab'", "clinic"]),
        ({LABELS: "labels = {bank = 1.4, clinic = -0.4}"}, ["[data] labels bank", "1.4"]),
        ({LABELS: "labels = {bank = 0.9999, clinic = 0.0001}"}, ["[data] labels clinic", "no label"]),
        ({LABELS: f'{LABELS}\nlabel_skew = "rows"'}, ["[data] label_skew", "'rows'", "'classes'"]),
        ({MODEL: "instance_threshold = 90"}, ["[model] instance_threshold", "'bank'", "90"]),
        ({MODEL: 'threshold = "one-side"'}, ["[model] threshold", "'one-side'", "'both-sides'"]),
        ({'"masks"': '"oil"'}, ["[model] aggregation", "'oil'", "'masks'"]),
        ({'"pivodl"': '"secureboost"', 'aggregation = "masks"': ""}, ["[data] label", "bank, clinic"]),
        ({RUN: '[[defense]]\nkind = "partial-dp"\ndelta = 0.01\n[run]'}, ["'partial-dp' delta", "0.01"]),
        (
            {RUN: '[[defense]]\nkind = "label-dp-sums"\nepsilon = 8.0\ndelta = 0.01\n[run]'},
            ["'label-dp-sums' delta", "0.01"],
        ),
        ({RUN: '[[defense]]\nkind = "id-lmid"\nxi = 0.1\n[run]'}, ["'id-lmid'", "pivodl"]),
        ({RUN: '[[defense]]\nkind = "label-dp-sums"\n[run]'}, ["label-dp-sums", "epsilon"]),
    ],
    ids=lambda value: next(iter(value.values())).replace("\n", " ") if isinstance(value, dict) else "",
)
def test_a_job_that_cannot_be(tmp_path: Path, call: Call, changes: dict[str, str], words: list[str]) -> None:
    write_table(tmp_path)
    job, out = write_job(tmp_path, JOB, changes=changes), tmp_path / "audit"
    refused(call("audit", job, "--out", out), *words)
    assert not out.exists()


def test_two_parties_are_warned(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path)
    changes = {'clinic = ["c0", "c1"]\nshop = ["s0", "s1"]': 'clinic = ["c0", "c1", "s0", "s1"]'}
    result = call("audit", write_job(tmp_path, JOB, changes=changes), "--out", tmp_path / "audit")
    assert result.exit_code == 0, result.output
    assert "two parties" in result.stderr


@pytest.mark.filterwarnings("always::labelward.errors.DataWarning")
def test_a_holder_of_one_class_is_told_and_attacks(tmp_path: Path, call: Call) -> None:
    """No model of its own labels can be fitted, so that what stands beside its attack is a constant."""
    write_table(tmp_path)
    tables = pa.csv.read_csv(tmp_path / "table.csv")
    label, rows = tables["label"].to_numpy(), np.arange(150)
    clinic = (label == 1) & (rows % 3 == 0)
    parts = {"bank": ("b", ~clinic), "clinic": ("c", clinic), "shop": ("s", np.zeros(150, np.bool_))}
    sections = []
    for party, (letter, held) in parts.items():
        columns = {"id": rows} | {f"{letter}{number}": tables[f"{letter}{number}"] for number in range(2)}
        labels = {"label": pa.array(label, mask=~held)} if held.any() else {}
        pyarrow.csv.write_csv(pa.table(columns | labels), tmp_path / f"{party}.csv")
        sections += [
            f"[parties.{party}]",
            f'table = "{party}.csv"\nid = "id"',
            *(['label = "label"'] if labels else []),
        ]
    text = "\n".join([*sections, ""]) + JOB.partition("shop = ")[2].partition("\n")[2]
    result = call("audit", write_job(tmp_path, text), "--out", tmp_path / "audit")
    assert result.exit_code == 0, result.output
    assert "one class" in result.stderr
    assert "'clinic'" in result.stderr
