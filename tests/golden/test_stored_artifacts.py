"""What an earlier version left on disk is read, and gives what it gave; ``assets/v1/README.md`` says what there is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import product
import pytest
import torch
from cases import HERE
from compare import differences, read_values
from made_tables import PEOPLE, read_columns, read_predictions

from labelward.errors import LabelwardError

pytestmark = pytest.mark.plots
torch.set_num_threads(1)  # sums of several threads round differently

STORED = HERE.parent / "assets" / "v1"
EXPECTED, TOLERANCES = read_values(STORED / "expected.json")


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    """A copy: nothing is ever written into the stored files."""
    return Path(shutil.copytree(STORED, tmp_path / "v1"))


def assert_expected(key: str, found: Any) -> None:
    stored = EXPECTED
    for each in key.split("/"):
        stored = stored[each]
    assert not list(differences(stored, found, TOLERANCES, key))


# -- an audit --------------------------------------------------------------------------------------------------------


def test_views_have_the_digest_that_they_had(v1: Path) -> None:
    views = sorted(path.relative_to(v1 / "audit") for path in v1.glob("audit/runs/*/*/*/view"))
    assert len(views) == 6
    assert_expected("audit/views", {str(path): product.view_digest(v1 / "audit" / path) for path in views})
    for path in sorted(v1.rglob("view")):
        if "unfinished" not in path.parts:
            product.run_command("view", "verify", path)
            assert "telco" in product.run_command("view", "show", path)


def test_the_page_of_an_audit_is_rendered(v1: Path) -> None:
    product.run_command("report", v1 / "audit")
    page = (v1 / "audit" / "report.html").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in (v1 / "audit" / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 6
    for row in rows:
        kind = "v_measure" if "v_measure" in row["leakage"] else row["leakage"]["primary"]
        assert f"{row['leakage'][kind]:.3f}" in page
        assert row["cost"]["messages"] > 0
    for words in ("id-lmid", "local-trees", "id2graph", "telco"):
        assert words in page.lower()


def test_a_stored_view_is_attacked_with_the_same_guess(v1: Path) -> None:
    data, view = v1 / "audit" / "data" / "1", v1 / "audit" / "runs" / "none" / "1" / "telco" / "view"
    guess = v1 / "guess.parquet"
    options = ["--features", data / "telco.parquet", "--attack", "id2graph", "--classes", 2, "--seed", 1]
    product.run_command("attack", view, *options, "--out", guess)
    assert_expected("audit/guess", read_columns(guess)["guess"])
    scored = json.loads(product.run_command("score", guess, "--truth", data / "truth.parquet", "--json"))
    for found in (scored, scored["chance"]):
        found.pop("matched_accuracy")  # 0.1.0 did not have it
    assert_expected("audit/scored", scored)
    row = next(
        each
        for each in map(json.loads, (v1 / "audit" / "results.jsonl").read_text(encoding="utf-8").splitlines())
        if each["defense"] == [] and each["attack"]["kind"] == "id2graph"
    )
    primary = row["leakage"]["primary"]
    assert scored[primary] == pytest.approx(row["leakage"][primary], rel=1e-12)


# -- trained models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "net"])
def test_a_stored_model_predicts_what_it_predicted(v1: Path, name: str) -> None:
    out = v1 / "predictions.parquet"
    product.run_command("predict", v1 / name, "--table", v1 / "table.csv", "--out", out)
    assert_expected(name, {key: values for key, values in read_predictions(out).items() if key != "id"})


def test_a_stored_model_is_explained_and_exported(v1: Path) -> None:
    found = json.loads(product.run_command("explain", "importance", v1 / "model", "--json"))
    assert found
    product.run_command("explain", "tree", v1 / "model", 1)
    product.run_command("export", v1 / "model", "--out", v1 / "export.json", "--consent", "telco")
    assert len(json.loads((v1 / "export.json").read_text())["learner"]["gradient_booster"]["model"]["trees"]) == 3


def test_a_saved_estimator_predicts_what_it_predicted(v1: Path) -> None:
    from sklearn.datasets import load_wine

    model = product.load_estimator("SecureBoostClassifier", v1 / "estimator")
    assert model.get_params()["n_estimators"] == 2
    found = model.predict_proba(load_wine().data[::9, :8])
    assert_expected("estimator/probabilities", found.tolist())


# -- each party's own folder -----------------------------------------------------------------------------------------


def test_parties_predict_with_their_stored_shares(v1: Path) -> None:
    company, out = v1 / "company", v1 / "predictions.parquet"
    tables = {party: company / f"{party}.csv" for party in PEOPLE}
    product.run_parties_prediction(product.Company(company, PEOPLE), tables, out)
    assert_expected("company/predictions", read_predictions(out))


def test_the_pages_of_parties_are_rendered(v1: Path) -> None:
    for party in PEOPLE:
        folder = v1 / "company" / f"run-{party}"
        product.run_command("report", folder)
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert f"certificate of {party}" in page
        assert "interrupted and resumed once" in page
    views = {party: v1 / "company" / f"run-{party}" / party / "view" for party in PEOPLE}
    assert_expected("company/views", {party: product.view_digest(view) for party, view in views.items()})


# -- a study, and a run that was cut off -----------------------------------------------------------------------------


def test_the_page_of_a_study_is_rendered(v1: Path) -> None:
    page = product.study_page(v1 / "study").read_text(encoding="utf-8")
    printed = {"attributes": 0.0, "tree_weights": "discount", "clusters": "classes"}
    for model in ("secureboost", "forest"):
        results = v1 / "study" / "default" / "breast_cancer" / model / "1" / "results.jsonl"
        rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        (row,) = [each for each in rows if each["attack"] == {**each["attack"], **printed}]
        assert f"{row['leakage']['v_measure']:.3f}".lstrip("0") in page
    assert "own columns .1" in page
    assert "not run" not in page


def test_a_stored_run_that_was_cut_off_does_not_go_on(v1: Path) -> None:
    """Its checkpoints say of which round they are, not of which history: they might be those of another run."""
    kept = sorted(path.name for path in (v1 / "unfinished" / "active" / "checkpoint").iterdir())
    assert len(kept) > 1
    with pytest.raises(LabelwardError) as caught:
        product.ended_run(v1 / "unfinished")
    assert (caught.value.code, caught.value.value) == ("format-version", 1)
