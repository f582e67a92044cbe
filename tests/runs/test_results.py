"""The stored results: what is written is read back, and what is damaged is named with its line."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from labelward.defenses import DEFENSES
from labelward.errors import Code, FileFormatError, OutputError
from labelward.runs.schema import (
    RESULTS_FILE,
    Cost,
    EngineInfo,
    KeyInfo,
    ResultRow,
    RunDetails,
    VisibilityCounts,
    WireFlow,
    append_row,
    budget_texts,
    defense_label,
    has_cut_off_row,
    kind_label,
    read_rows,
    read_run,
    run_folder,
    write_run,
)
from refusals import refused

LMID = {"kind": "id-lmid", "xi": 0.5}


def row(**changes: Any) -> ResultRow:
    values: dict[str, Any] = {
        "dataset": "breast_cancer",
        "model": {"kind": "secureboost", "trees": 5},
        "engine": EngineInfo(name="paillier", bits=2048, insecure=False, security_level=112),
        "seed": 1,
        "defense": (LMID,),
        "party": "telco",
        "attack": {"kind": "id2graph"},
        "leakage": {
            "v_measure": 0.7,
            "ari": 0.8,
            "chance": {"v_measure": 0.0, "ari": 0.0},
            "without_view": {"v_measure": 0.5, "ari": 0.6},
            "primary": "v_measure",
        },
        "utility": {"auc": 0.99, "alone": {"auc": 0.97}, "joined": {"auc": 0.99}, "primary": "auc"},
        "cost": Cost(seconds=1.5, bytes=1000, messages=10),
        "versions": {"labelward": "0.1.0"},
    }
    return ResultRow(**values | changes)


def details(**changes: Any) -> RunDetails:
    flow = WireFlow(sender="active", receiver="telco", type="Level", messages=3, bytes=99, readable="rows")
    key = KeyInfo(engine="paillier", bits=2048, security_level=112, fingerprint="ab", insecure=(), kernel="gmpy2")
    values: dict[str, Any] = {
        "seed": 1,
        "defense": (LMID,),
        "wire": (flow,),
        "phases": {"telco": {"sums": 0.5}},
        "key": key,
        "seen": {"telco": VisibilityCounts(role="passive", rows=455, max_node_information=0.4)},
        "applied": ({"kind": "id-lmid", "xi": 0.5, "hidden_splits": 3},),
        "processor": "a machine",
        "duration": 1.5,
    }
    return RunDetails(**values | changes)


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    rows = [row(), row(seed=2), row(defense=()), row(attack=None, leakage=None, party=None)]
    for each in rows:
        append_row(tmp_path, each)
    assert read_rows(tmp_path) == rows
    assert not has_cut_off_row(tmp_path)


def test_a_line_has_the_names_of_the_contract(tmp_path: Path) -> None:
    append_row(tmp_path, row())
    line = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert list(line) == [
        *("format", "dataset", "model", "engine", "seed", "defense", "party", "attack"),
        *("leakage", "utility", "cost", "versions", "behavior"),
    ]
    assert line["defense"] == [LMID]
    assert line["leakage"]["without_view"]["v_measure"] == 0.5
    assert line["cost"].keys() == {
        *("seconds", "bytes", "messages", "encryptions", "additions", "decryptions", "ciphertexts"),
        *("logical_sums", "logical_rows"),
    }


def test_no_file_means_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []
    assert not has_cut_off_row(tmp_path)


@pytest.mark.parametrize("cut", [1, 2, 50])
def test_a_row_cut_off_by_a_kill_is_reported_and_dropped_by_the_next_write(tmp_path: Path, cut: int) -> None:
    append_row(tmp_path, row())
    append_row(tmp_path, row(seed=2))
    path = tmp_path / RESULTS_FILE
    path.write_bytes(path.read_bytes()[:-cut])
    assert has_cut_off_row(tmp_path)
    assert [each.seed for each in read_rows(tmp_path)] == [1]
    append_row(tmp_path, row(seed=3))
    assert [each.seed for each in read_rows(tmp_path)] == [1, 3]
    assert not has_cut_off_row(tmp_path)


def with_field(name: str, value: Any) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(row(seed=2)) | {name: value})


@pytest.mark.parametrize(
    ("line", "about"),
    [
        (b"{not json", "damaged"),
        (b"", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[]", "damaged"),
        (with_field("format", 2), "format 2"),
        (with_field("format", "1"), "damaged"),
        (with_field("novel", 1), "novel"),
        (with_field("seed", "one"), "seed"),
        (with_field("leakage", None), "attack and leakage"),
        (with_field("attack", {"alpha": 3}), "defense or attack"),
        (with_field("leakage", {"v_measure": 0.1, "chance": {}, "without_view": {}}), "no primary metric"),
        (with_field("utility", {"auc": None, "alone": {}, "joined": {}, "primary": "auc"}), "utility"),
        (with_field("utility", {"auc": 0.9, "alone": {}, "joined": {}}), "utility names no primary"),
        (
            with_field("utility", {"auc": 0.9, "alone": {}, "joined": {}, "primary": "f1"}),
            "'f1' of utility",
        ),
        (msgspec.json.encode(row()), "line 1"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes, about: str) -> None:
    append_row(tmp_path, row())
    with (tmp_path / RESULTS_FILE).open("ab") as file:
        file.write(line + b"\n")
    code: Code = "format-version" if about == "format 2" else "damaged"
    with refused(FileFormatError, code, field=f"{tmp_path / RESULTS_FILE}, line 2") as caught:
        read_rows(tmp_path)
    assert about in caught.value.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"leakage": None},
        {"party": None},
        {"utility": {"auc": math.nan, "alone": {}, "joined": {}, "primary": "auc"}},
        {"utility": {"auc": 1.0, "alone": {"f1": 1.0}, "joined": {}, "primary": "auc"}},
        {"utility": {"auc": 1.0, "alone": {}, "joined": {}, "rmse": "large", "primary": "auc"}},
        {"leakage": {"ari": 1.0, "chance": {"ari": 0.0}, "without_view": {"ari": 0.0}, "primary": "v_measure"}},
        {"leakage": {"ari": 1.0, "chance": {"ari": 0.0}, "without_view": {}, "primary": "ari"}},
        {"cost": Cost(seconds=math.inf, bytes=0, messages=0)},
        {"model": {}},
    ],
)
def test_a_row_that_breaks_the_contract_is_not_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"model|metric|finite|given|party"):
        append_row(tmp_path, row(**changes))
    assert not (tmp_path / RESULTS_FILE).exists()


def test_an_active_party_without_columns_has_no_model_alone(tmp_path: Path) -> None:
    append_row(tmp_path, row(utility={"auc": 0.9, "alone": {}, "joined": {"auc": 0.9}, "primary": "auc"}))
    assert read_rows(tmp_path)[0].utility["alone"] == {}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with refused(OutputError, "unwritable", value=str(tmp_path / "absent" / "results.jsonl")):
        append_row(tmp_path / "absent", row())


def test_run_details_come_back(tmp_path: Path) -> None:
    assert read_run(tmp_path, (LMID,), 1) is None
    path = write_run(tmp_path, details())
    assert path == tmp_path / "runs" / "id-lmid-xi-0.5" / "1" / "run.json"
    assert read_run(tmp_path, [LMID], 1) == details()
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [("{", "damaged", None), ('{"format": 7}', "format-version", 7), ('{"format": 1}', "damaged", None)],
)
def test_damaged_run_details(tmp_path: Path, text: str, code: Code, value: int | None) -> None:
    path = write_run(tmp_path, details())
    path.write_text(text)
    with refused(FileFormatError, code, field=str(path), value=value):
        read_run(tmp_path, (LMID,), 1)


def test_names_of_defenses(tmp_path: Path) -> None:
    chain = [{"kind": "local-trees", "count": 1, "mode": "replace"}, LMID]
    assert defense_label([]) == "no defense"
    assert defense_label(chain) == "local-trees (count 1) + id-lmid (xi 0.5)"
    assert defense_label([{"kind": "local-trees", "count": 2, "mode": "add"}]) == "local-trees (count 2, mode add)"
    assert kind_label({"kind": "id2graph", "eta": None, "alpha": 3.0, "starts": 9}) == "id2graph (starts 9)"
    assert kind_label({"kind": "of another project", "p": 1}) == "of another project (p 1)"
    assert (
        defense_label([{"kind": "lp-mst", "epsilon": 1.0, "stages": 2}])
        == "lp-mst (epsilon 1.0 per training or validation label)"
    )
    private = {"kind": "ppdl", "theta": 0.5, "epsilon": 1.8}
    assert defense_label([private]) == "ppdl (theta 0.5, epsilon 1.8 per gradient of a batch)"
    published = defense_label([{**private, "form": "published"}])
    assert published == "ppdl (theta 0.5, epsilon 1.8 without a bound, form published)"
    assert run_folder(tmp_path, [private], 1).parent.name == "ppdl-epsilon-1.8-theta-0.5"
    assert run_folder(tmp_path, [], 1) == tmp_path / "runs" / "none" / "1"
    assert run_folder(tmp_path, chain, 2).parent.name == "local-trees-count-1+id-lmid-xi-0.5"


def test_every_budget_of_a_registered_defense_says_what_it_covers_and_excludes() -> None:
    named = {"epsilon", "xi", "threshold"}
    for kind, made in DEFENSES.classes().items():
        parameters = {field.name for field in fields(made) if field.init}  # type: ignore[arg-type]
        stored = {"kind": kind, **dict.fromkeys(parameters & named, 0.5)}
        texts = budget_texts([stored])
        assert set(texts) == {f"{kind} {name}" for name in parameters & named}
        assert all("; excludes " in text for text in texts.values())
    assert budget_texts([{"kind": "noisy-gradients", "scale": 0.1, "epsilon": None}]) == {}


def test_rows_say_what_their_budgets_cover_and_rows_without_budgets_are_as_before(tmp_path: Path) -> None:
    private = [{"kind": "randomized-response", "epsilon": 1.0}]
    for each in (row(), row(defense=tuple(private), budgets=budget_texts(private))):
        append_row(tmp_path, each)
    first, second = (json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines())
    assert "budgets" not in first
    assert second["budgets"]["randomized-response epsilon"].startswith("1 per training or validation label; excludes ")
    assert read_rows(tmp_path)[1].budgets == budget_texts(private)
