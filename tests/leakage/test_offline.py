"""A stored view attacked in another process with one party's features alone: the audit's figure to the last digit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from labelward.attacks.base import LabelGuess
from labelward.auditing.audit import audit
from labelward.data import load_dataset, load_tables
from labelward.errors import DataError, FileFormatError, JobError, OutputError
from labelward.federation.components import with_defaults
from labelward.leakage import stored_views
from labelward.leakage.stored_columns import score_stored_columns
from labelward.leakage.stored_guesses import read_guess, score_guess, write_guess
from labelward.leakage.stored_views import AttackerKnowledge, attack_view, load_models
from labelward.party.transcript import Transcript
from labelward.party.view import View
from labelward.runs.schema import ResultRow
from refusals import refused
from standing import listed

Finished = tuple[Path, list[ResultRow]]
Reader = Callable[[Path], object]
READERS = (read_guess, lambda path: score_stored_columns(path, path.with_name("truth.csv"), "telco"))
"""What reads guesses in files, of labels and of columns."""

ATTACK = """
import sys
from pathlib import Path
from labelward.leakage.stored_guesses import write_guess
from labelward.leakage.stored_views import attack_view

own, out = Path(sys.argv[1]), Path(sys.argv[2])
for kind in ("clustering", "id2graph"):
    ids, guess = attack_view(own / "view", own / "features.parquet", kind, {}, classes=2, seed=2)
    write_guess(out / kind, ids, guess, {"attack": {"kind": kind}, "party": "shop", "seed": 2})
"""
SCORE = """
import json, sys
from pathlib import Path
from labelward.leakage.stored_guesses import score_guess

out, truth = Path(sys.argv[1]), Path(sys.argv[2])
print(json.dumps({kind: score_guess(out / kind, truth) for kind in ("clustering", "id2graph")}))
"""


def without_last_record(data: bytes) -> bytes:
    start, position = 0, data.index(b"\n") + 1
    while position < len(data):
        start, position = position, position + 4 + int.from_bytes(data[position : position + 4], "little") + 32
    return data[:start]


def python(script: str, *arguments: object) -> str:
    run = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture
def shop(finished: Finished) -> tuple[Path, pa.Table]:
    """A view, and the columns of its party."""
    return finished[0] / "runs/none/1/shop/view", pq.read_table(finished[0] / "data/1/shop.parquet")


def attacked(view: Path, table: pa.Table, tmp_path: Path, **options: Any) -> dict[str, int]:
    path = tmp_path / "features.parquet"
    pq.write_table(table, path)
    ids, found = attack_view(view, path, "id2graph", {}, classes=2, seed=1, **options)
    return dict(zip(ids, found.values.tolist(), strict=True))


@pytest.fixture
def guess(tmp_path: Path) -> Path:
    """A guess that is right for all four rows."""
    path = tmp_path / "guess.parquet"
    about = {"attack": {"kind": "clustering"}, "party": "telco", "seed": 1}
    write_guess(path, ["a", "b", "c", "d"], LabelGuess(values=np.array([5, 5, 7, 7])), about)
    return path


@pytest.mark.slow
def test_other_processes_give_the_audit_s_figures_to_the_last_digit(finished: Finished, tmp_path: Path) -> None:
    out, rows = finished
    own, guesses = tmp_path / "own", tmp_path / "guesses"
    own.mkdir()  # that party's data alone: nothing else of the audit is within reach
    guesses.mkdir()
    (own / "view").write_bytes((out / "runs/none/2/shop/view/transcript.lwt").read_bytes())
    (own / "features.parquet").write_bytes((out / "data/2/shop.parquet").read_bytes())
    python(ATTACK, own, guesses)
    found = json.loads(python(SCORE, guesses, out / "data/2/truth.parquet"))
    for row in listed(rows):
        if (row.seed, row.party, row.defense) == (2, "shop", ()):
            kind, inline = (row.attack or {})["kind"], row.leakage or {}
            assert found.pop(kind) == {
                name: value
                for name, value in inline.items()
                if name not in ("without_view", "primary", "epsilon", "advantage")
            }
            about = read_guess(guesses / kind).about
            assert (about["attack"], about["party"], about["seed"]) == ({"kind": kind}, "shop", 2)
    assert found == {}


def test_the_truth_may_be_the_whole_table_by_row_numbers(finished: Finished, tmp_path: Path) -> None:
    from sklearn.datasets import load_breast_cancer

    out, _ = finished
    ids, found = attack_view(
        out / "runs/none/1/telco/view", out / "data/1/telco.parquet", "clustering", {}, classes=2, seed=1
    )
    stored, table = tmp_path / "guess.parquet", tmp_path / "all.parquet"
    write_guess(stored, ids, found, {"party": "telco", "seed": 1})
    pq.write_table(pa.table({"diagnosis": load_breast_cancer().target}), table)
    assert score_guess(stored, table, label="diagnosis") == score_guess(stored, out / "data/1/truth.parquet")


@pytest.mark.parametrize("labels", ["r1,0\nr2,\n", "r1,0\nr2,1\nr3,2\n"])
def test_known_labels_that_are_missing_or_too_many(labels: str, finished: Finished, tmp_path: Path) -> None:
    out, _ = finished
    features = out / "data/1/telco.parquet"
    ids = pq.read_table(features)["id"].to_pylist()
    for number in (3, 2, 1):
        labels = labels.replace(f"r{number},", f"{ids[number]},")
    (tmp_path / "known.csv").write_text(f"id,label\n{labels}", encoding="utf-8")
    told = AttackerKnowledge(known=tmp_path / "known.csv")
    with refused(DataError, "labels", field=f"table {str(tmp_path / 'known.csv')!r}"):
        attack_view(out / "runs/none/1/telco/view", features, "id2graph", {}, classes=2, seed=1, knowledge=told)


@pytest.mark.parametrize(("labels", "bins"), [(["0.5", "1.5"], None), (["a", "b"], 2)])
def test_advice_on_the_truth_is_of_the_command(
    labels: list[str], bins: int | None, finished: Finished, tmp_path: Path
) -> None:
    """There is no job whose [data] could say what the labels are."""
    out, _ = finished
    ids, found = attack_view(
        out / "runs/none/1/telco/view", out / "data/1/telco.parquet", "clustering", {}, classes=2, seed=1
    )
    stored, truth = tmp_path / "guess.parquet", tmp_path / "truth.csv"
    with refused(FileFormatError, "not-found", field=str(stored)):
        score_guess(stored, truth)
    write_guess(stored, ids, found, {"party": "telco", "seed": 1})
    lines = [f"{name},{labels[row % 2]}" for row, name in enumerate(ids)]
    truth.write_text("\n".join(["id,label", *lines]), encoding="utf-8")
    with refused(DataError, "labels", field=f"table {str(truth)!r}, label column 'label'") as caught:
        score_guess(stored, truth, bins=bins)
    assert "--bins" in caught.value.reason


def test_rows_and_columns_may_come_in_another_order(shop: tuple[Path, pa.Table], tmp_path: Path) -> None:
    view, table = shop
    expected = attacked(view, table, tmp_path)
    order = np.random.default_rng(0).permutation(table.num_rows)
    mixed = table.take(pa.array(order)).select(table.column_names[::-1])
    assert attacked(view, mixed, tmp_path) == expected
    renamed = mixed.rename_columns(["customer" if name == "id" else name for name in mixed.column_names])
    assert attacked(view, renamed, tmp_path, id_column="customer") == expected
    assert list(attacked(view, table.drop_columns(["id"]), tmp_path).values()) == list(expected.values())


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ({"task": "regression"}, (0.0, 5.0, 10.0)),  # fewer than the bins that the attack is told
        ({"positive": "a"}, ("a", "b")),
        ({}, ("a", "b")),
    ],
)
def test_labels_of_a_stored_view_are_encoded_as_in_training(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], values: tuple[Any, ...]
) -> None:
    draw, n = np.random.default_rng(3), 60
    ids, labels = [f"{one:03}" for one in range(n)], [values[row % len(values)] for row in range(n)]
    columns = {name: draw.normal(size=n) for name in ("a", "b", "c", "d")}
    pq.write_table(pa.table({"who": ids, "y": labels, **columns}), tmp_path / "table.parquet")
    data = {"table": str(tmp_path / "table.parquet"), "label": "y", "id": "who", **section}
    parties, model = {"active": 0.5, "telco": 0.5}, {"trees": 1, "depth": 2}
    made = with_defaults(
        job(data=data, parties=parties, model=model, defense=[], attack=[{"kind": "clustering"}], run={"seeds": [1]})
    )
    audit(made, tmp_path / "out", explained=False)
    trained = load_dataset(made, 1, load_tables(made)).train_values
    monkeypatch.setattr(stored_views, "run_attack", lambda attack, view, own, aux, *, seed: own)
    view = tmp_path / "out/runs/none/1/active/view"

    def read(model: Path | None = None, table: str = "out/data/1/truth.parquet", label: str = "label") -> Any:
        told = AttackerKnowledge(labels=tmp_path / table, label=label, models=load_models(view, model))
        own = tmp_path / "out/data/1/active.parquet"
        return attack_view(view, own, "bin-reconstruction", {}, classes=5, seed=1, knowledge=told)[1].labels

    np.testing.assert_array_equal(read(), trained)
    if section.get("task") != "regression":
        renamed = pa.table({"id": pq.read_table(tmp_path / "out/data/1/truth.parquet").column("id")})
        strange = [("a", "c")[row % 2] for row in range(renamed.num_rows)]
        pq.write_table(renamed.append_column("y", pa.array(strange)), tmp_path / "strange.parquet")
        with refused(DataError, "labels", value="c"):
            read(table="strange.parquet", label="y")
    share = (view.parent / "model").rename(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read(share), trained)
    assert sorted(set(read().tolist())) == list(range(len(values)))  # without the share they are classes, sorted


@pytest.mark.parametrize(
    ("categories", "columns"), [("native", ("calls", "plan")), ("dummies", ("calls", "plan=b", "plan=c"))]
)
def test_own_tables_are_encoded_as_for_the_run(
    job: Any, tmp_path: Path, categories: str, columns: tuple[str, ...]
) -> None:
    """The view knows the codes of categories, or has a column for each, though the table has the names."""
    draw, n = np.random.default_rng(3), 80
    ids, plan = [f"{one:03}" for one in draw.permutation(n)], draw.choice(["a", "b", "c"], n)
    gaps = [None if row % 9 == 0 else name for row, name in enumerate(plan)]
    telco = pa.table({"who": ids, "calls": draw.normal(size=n), "plan": gaps})
    pq.write_table(telco, tmp_path / "telco.parquet")
    pq.write_table(pa.table({"who": ids, "age": draw.normal(size=n), "y": plan == "a"}), tmp_path / "bank.parquet")
    parties = {
        "active": {"table": str(tmp_path / "bank.parquet"), "label": "y"},
        "telco": {"table": str(tmp_path / "telco.parquet")},
    }
    out = tmp_path / "out"
    data = {"id": "who", "categories": categories}
    audit(job(data=data, parties=parties, defense=None, run={"seeds": [1]}), out)
    view, stored = out / "runs/none/1/telco/view", pq.read_table(out / "data/1/telco.parquet")
    assert View.load(view).header.columns == columns
    trained = telco.filter(pc.is_in(telco["who"], value_set=stored["id"].combine_chunks()))
    assert attacked(view, trained, tmp_path, id_column="who") == attacked(view, stored, tmp_path)
    assert attacked(view, telco, tmp_path, id_column="who") == attacked(view, stored, tmp_path)  # all rows of the run
    with refused(DataError, "rows", value=79) as caught:
        attacked(view, telco.slice(1), tmp_path, id_column="who")
    assert "'telco' has 64" in caught.value.reason
    with refused(DataError, "rows", value=80):
        attacked(view, telco.drop_columns(["who"]), tmp_path)
    with refused(DataError, "columns", value=("who",)) as caught:
        attacked(view, trained, tmp_path)
    assert "unexpected columns: 'who'" in caught.value.reason


def test_rows_are_matched_by_id(guess: Path, tmp_path: Path) -> None:
    table = tmp_path / "truth.csv"
    table.write_text("key,label\nd,no\nx,yes\nb,yes\na,yes\nc,no\n")
    assert score_guess(guess, table, id_column="key")["v_measure"] == 1.0
    table.write_text("key,label\nd,no\nx,yes\nb,no\na,yes\nc,yes\n")
    assert score_guess(guess, table, id_column="key")["v_measure"] == pytest.approx(0.0, abs=1e-12)  # independent


def test_a_class_may_have_a_single_training_row(guess: Path, tmp_path: Path) -> None:
    """An audit writes such a truth if the split leaves one; the score of its own guess was refused."""
    table = tmp_path / "truth.csv"
    table.write_text("id,label\na,1\nb,1\nc,0\nd,2\n")
    assert score_guess(guess, table)["v_measure"] == pytest.approx(0.8)


def test_guess_round_trip(guess: Path) -> None:
    stored = read_guess(guess)
    assert stored.ids == ("a", "b", "c", "d")
    assert stored.values.tolist() == [5, 5, 7, 7]
    assert stored.about["format"] == 1


class TestBadInput:
    def test_features_of_other_rows(self, finished: Finished, tmp_path: Path) -> None:
        out, _ = finished
        table = tmp_path / "few.csv"
        table.write_text("x\n1\n2\n")
        with refused(DataError, "rows", field=f"table '{tmp_path / 'few.csv'}'", value=2) as caught:
            attack_view(out / "runs/none/1/telco/view", table, "clustering", {}, classes=2, seed=1)
        assert "'telco' has 455" in caught.value.reason

    def test_features_of_another_seed(self, finished: Finished, shop: tuple[Path, pa.Table], tmp_path: Path) -> None:
        view, table = shop
        other = pq.read_table(finished[0] / "data/2/shop.parquet").rename_columns(table.column_names)
        with refused(DataError, "rows", field=f"table '{tmp_path / 'features.parquet'}'"):
            attacked(view, other, tmp_path)

    def test_features_of_another_party(self, finished: Finished, shop: tuple[Path, pa.Table], tmp_path: Path) -> None:
        view, table = shop
        telco = pq.read_table(finished[0] / "data/1/telco.parquet")
        with refused(DataError, "columns", field=f"table '{tmp_path / 'features.parquet'}'") as caught:
            attacked(view, telco, tmp_path)
        assert "unexpected columns: '" in caught.value.reason
        assert "missing columns: '" in caught.value.reason
        last = table.column_names[-1]
        with refused(DataError, "columns", field=f"table '{tmp_path / 'features.parquet'}'", value=(last,)):
            attacked(view, table.drop_columns([last]), tmp_path)
        with refused(DataError, "columns", field=f"table '{tmp_path / 'features.parquet'}'", value=("label",)):
            attacked(view, table.append_column("label", pa.array([0] * table.num_rows)), tmp_path)

    def test_a_view_that_was_cut_off(self, shop: tuple[Path, pa.Table], tmp_path: Path) -> None:
        """What its end held is missing, so that the attack finds less: a false low figure."""
        view, table = shop
        cut = tmp_path / "cut"
        cut.mkdir()
        (cut / "transcript.lwt").write_bytes(without_last_record((view / "transcript.lwt").read_bytes()))
        with refused(FileFormatError, "incomplete", field=str(tmp_path / "cut")):
            attacked(cut, table, tmp_path)
        assert attacked(cut, table, tmp_path, incomplete=True) == attacked(view, table, tmp_path)

    def test_a_view_that_does_not_say_whose_rows(self, shop: tuple[Path, pa.Table], tmp_path: Path) -> None:
        header = msgspec.structs.replace(View.load(shop[0]).header, ids="")
        Transcript(header, tmp_path / "view").close(complete=True)
        with refused(FileFormatError, "unsupported", field=str(tmp_path / "view")):
            attacked(tmp_path / "view", shop[1], tmp_path)

    def test_unknown_attack_parameter_and_damaged_view(self, finished: Finished, tmp_path: Path) -> None:
        out, _ = finished
        view, features = out / "runs/none/1/telco/view", out / "data/1/telco.parquet"
        with refused(JobError, "unknown", value="id2grph") as caught:
            attack_view(view, features, "id2grph", {}, classes=2, seed=1)
        assert "'id2graph'?" in caught.value.reason
        with refused(JobError, "unknown", value="colour"):
            attack_view(view, features, "clustering", {"colour": 3}, classes=2, seed=1)
        damaged = tmp_path / "damaged"
        data = bytearray((view / "transcript.lwt").read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
        with pytest.raises(FileFormatError) as broken:
            attack_view(damaged, features, "clustering", {}, classes=2, seed=1)
        assert broken.value.code in ("damaged", "incomplete")  # as the byte lies in a length or in a content
        assert broken.value.field == str(damaged)
        assert broken.value.value > 0  # the number of the record
        with refused(FileFormatError, "unreadable", value=tmp_path / "nowhere"):
            attack_view(tmp_path / "nowhere", features, "clustering", {}, classes=2, seed=1)

    def test_truth_without_the_guess_s_rows(self, guess: Path, tmp_path: Path) -> None:
        table = tmp_path / "truth.csv"
        table.write_text("id,label\na,1\nb,1\nx,0\ny,0\n")
        with refused(DataError, "rows", field=f"table '{tmp_path / 'truth.csv'}'", value="c") as caught:
            score_guess(guess, table)
        assert "2 rows" in caught.value.reason
        table.write_text("key,label\na,1\nb,1\nc,0\nd,0\n")
        with refused(DataError, "rows", field=f"table '{tmp_path / 'truth.csv'}'", value="a") as caught:
            score_guess(guess, table)
        assert "'key', 'label'" in caught.value.reason
        assert "--id" in caught.value.reason
        with refused(DataError, "columns", field=f"table '{tmp_path / 'truth.csv'}'", value="lable") as caught:
            score_guess(guess, table, label="lable")
        assert "'label'?" in caught.value.reason

    @pytest.mark.parametrize("read", READERS)
    @pytest.mark.parametrize("content", [b"", b"PAR1 nonsense", None])
    def test_no_guess(self, content: bytes | None, read: Reader, tmp_path: Path) -> None:
        path = tmp_path / "guess.parquet"
        if content is not None:
            path.write_bytes(content)
        with refused(FileFormatError, "not-found" if content is None else "unreadable", field=str(path)):
            read(path)

    @pytest.mark.parametrize("read", READERS)
    @pytest.mark.parametrize("metadata", [None, {b"labelward": b"{"}, {b"labelward": b"[]"}])
    def test_a_table_that_is_no_guess(self, metadata: dict[bytes, bytes] | None, read: Reader, tmp_path: Path) -> None:
        path = tmp_path / "guess.parquet"
        pq.write_table(pa.table({"id": ["a"], "guess": [1]}).replace_schema_metadata(metadata), path)
        with refused(FileFormatError, "foreign", field=str(path)):
            read(path)

    @pytest.mark.parametrize("read", READERS)
    def test_a_later_format(self, read: Reader, tmp_path: Path) -> None:
        path = tmp_path / "guess.parquet"
        metadata = {b"labelward": b'{"format": 2, "party": "a", "seed": 1}'}
        pq.write_table(pa.table({"id": ["a"], "guess": [1]}).replace_schema_metadata(metadata), path)
        with refused(FileFormatError, "format-version", field=str(tmp_path / "guess.parquet"), value=2):
            read(path)

    def test_a_guess_of_labels_has_no_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "guess.parquet"
        write_guess(path, ["a"], LabelGuess(values=np.array([1])), {"party": "a", "seed": 1})
        with refused(FileFormatError, "foreign", field=str(path)):
            score_stored_columns(path, tmp_path / "truth.csv", "telco")

    def test_a_guess_cannot_be_written(self, tmp_path: Path) -> None:
        with refused(OutputError, "unwritable", field=str(tmp_path / "no" / "g.parquet")):
            write_guess(
                tmp_path / "no" / "g.parquet", ["a"], LabelGuess(values=np.array([1])), {"party": "a", "seed": 1}
            )
