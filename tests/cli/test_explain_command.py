"""``labelward explain`` and ``labelward export``: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pyarrow.parquet
import pytest
from small_jobs import Call, refused, write_job, write_table


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """The folder of a training, with its table beside it; tests only read it."""
    folder = tmp_path_factory.mktemp("explained")
    write_table(folder / "table.csv")
    result = call("train", write_job(folder), "--out", folder / "run", "--defense", "none", "--quiet")
    assert result.exit_code == 0, result.output
    return folder / "run"


@pytest.fixture
def table(run: Path) -> Path:
    return run.parent / "table.csv"


def test_help(call: Call) -> None:
    assert "Explain a trained model" in call("--help").stdout
    for command in ("importance", "tree", "rows"):
        assert command in call("explain", "--help").stdout
        assert call("explain", command, "--help").exit_code == 0
    assert call("export", "--help").exit_code == 0


def test_importance_is_a_table_with_numbers_for_the_columns_of_others(call: Call, run: Path) -> None:
    shown = call("explain", "importance", run)
    assert shown.exit_code == 0, shown.output
    for word in ("party", "splits", "total gain", "a0", "telco", "column 0"):
        assert word in shown.stdout
    assert "t0" not in shown.stdout
    assert "t0" in call("explain", "importance", run, "--names", "telco").stdout


def test_importance_as_json(call: Call, run: Path) -> None:
    for options, named in (((), False), (("--names", "telco"), True)):
        entries = json.loads(call("explain", "importance", run, "--json", *options).stdout)["importance"]
        assert [list(one) for one in entries] == [["party", "column", "name", "splits", "gain", "total_gain"]] * len(
            entries
        )
        assert {one["party"] for one in entries if one["name"]} == ({"active", "telco"} if named else {"active"})
        gains = [one["total_gain"] for one in entries]
        assert gains == sorted(gains, reverse=True)
        assert gains == pytest.approx([one["gain"] * one["splits"] for one in entries])


def test_a_tree_as_text_and_picture(call: Call, run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tree.svg"
    shown = call("explain", "tree", run, 1, "--svg", picture)
    assert shown.exit_code == 0, shown.output
    first, *lines, last = shown.stdout.splitlines()
    assert first == "tree 1"
    assert any("split of telco" in line for line in lines)
    assert any(line.lstrip("│ ").startswith("└─ no:  leaf ") for line in lines)
    assert last == f"wrote {picture}"
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert stat.S_IMODE(picture.stat().st_mode) == 0o600
    refused(call("explain", "tree", run, 0, "--svg", picture), "tree.svg", "--force")
    refused(call("explain", "tree", run, 0, "--force"), "--force", "--svg")
    assert call("explain", "tree", run, 0, "--svg", picture, "--force").exit_code == 0


def test_rows_from_one_table_or_from_each_party(call: Call, run: Path, table: Path, tmp_path: Path) -> None:
    one, each = tmp_path / "one.parquet", tmp_path / "each.parquet"
    result = call("explain", "rows", run, "--table", table, "--out", one, "--background-rows", 9)
    assert result.stdout == f"wrote {one}: 120 rows\n"
    own = [option for name in ("active", "telco") for option in ("--party", f"{name}={table}")]
    behind = [option for name in ("active", "telco") for option in ("--background-party", f"{name}={table}")]
    result = call("explain", "rows", run, *own, *behind, "--background-rows", 9, "--out", each, "--names", "telco")
    assert result.exit_code == 0, result.output
    hidden, named = (pyarrow.parquet.read_table(path) for path in (one, each))
    assert hidden.column_names[:3] == ["id", "margin", "expected"]
    assert [name for name in hidden.column_names if "t0" in name] == []
    assert "telco.t0" in named.column_names
    assert named.rename_columns(hidden.column_names).equals(hidden)


def test_an_exported_model_needs_every_consent(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    refused(call("export", run, "--out", out), "'telco' is missing")
    refused(call("export", run, "--out", out, "--names", "telco"), "'telco' is missing")
    assert [*tmp_path.iterdir()] == []
    assert call("export", run, "--out", out, "--consent", "telco").stdout == f"wrote {out}\n"
    assert json.loads(out.read_text())["learner"]["feature_names"] == ["a0", "a1", "telco.f0", "telco.f1", "telco.f2"]
    refused(call("export", run, "--out", out, "--consent", "telco"), "model.json", "--force")
    named = call("export", run, "--out", out, "--consent", "telco", "--names", "telco", "--force")
    assert named.exit_code == 0
    assert json.loads(out.read_text())["learner"]["feature_names"] == ["a0", "a1", "t0", "t1", "t2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["importance", "{folder}"], ["holds no model"]),
        (["importance", "{table}"], ["no such folder"]),
        (["importance", "{run}", "--names", "tleco"], ["unknown party 'tleco'", "'telco'"]),
        (["tree", "{run}", "2"], ["tree: ", "below 2"]),
        (["tree", "{run}", "0", "--svg", "{folder}/tree.png"], ["tree.png", ".svg"]),
        (["tree", "{run}", "0", "--svg", "{folder}/nowhere/tree.svg"], ["does not exist"]),
        (["rows", "{run}", "--out", "{out}"], ["--table", "--party"]),
        (["rows", "{run}", "--table", "{table}", "--out", "{folder}/shap.csv"], ["shap.csv", ".parquet"]),
        (["rows", "{run}", "--table", "{short}", "--out", "{out}"], ["short.csv", "'t2'"]),
        (["rows", "{run}", "--table", "{folder}/none.csv", "--out", "{out}"], ["none.csv", "no such file"]),
        (["rows", "{run}", "--party", "active={table}", "--out", "{out}"], ["--party", "no table for 'telco'"]),
        (
            ["rows", "{run}", "--table", "{table}", "--background-party", "telco={table}", "--out", "{out}"],
            ["--background-party", "no table for 'active'"],
        ),
        (
            [
                "rows",
                "{run}",
                "--table",
                "{table}",
                "--background",
                "{table}",
                "--background-party",
                "a=b",
                "--out",
                "{out}",
            ],
            ["either --background TABLE"],
        ),
        (["rows", "{run}", "--table", "{table}", "--background", "{short}", "--out", "{out}"], ["short.csv", "'t2'"]),
    ],
)
def test_what_cannot_be(
    call: Call, run: Path, table: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    lines = table.read_text().splitlines()
    short = tmp_path / "short.csv"
    short.write_text("\n".join(",".join(line.split(",")[:4]) for line in lines))  # without t2 and label
    places = {"run": run, "table": table, "short": short, "folder": tmp_path, "out": tmp_path / "shap.parquet"}
    refused(call("explain", *(one.format(**places) for one in arguments)), *words)
    assert [*tmp_path.iterdir()] == [short]


@pytest.mark.parametrize("arguments", [["tree", "{run}", "-1"], ["rows", "{run}", "--background-rows", "0"]])
def test_numbers_below_the_least(call: Call, run: Path, arguments: list[str]) -> None:
    result = call("explain", *(one.format(run=run) for one in arguments))
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_shares_of_two_trainings_do_not_go_together(call: Call, run: Path, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    trained = call("train", run.parent / "job.toml", "--out", other, "--defense", "none", "--quiet")
    assert trained.exit_code == 0
    (other / "telco/model/share.json").write_bytes((run / "telco/model/share.json").read_bytes())
    refused(call("explain", "importance", other), "another model", "'active'", "'telco'", f"{other}/telco/model")
    refused(call("export", other, "--out", tmp_path / "model.json", "--consent", "telco"), "model")
    assert not (tmp_path / "model.json").exists()
