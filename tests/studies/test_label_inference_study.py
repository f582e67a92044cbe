"""The label inference study: jobs, tables of images and texts, columns, claims, rankings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from labelward.auditing import audit as auditing
from labelward.data.column_partition import assign_columns
from labelward.job import ComponentSpec, Job
from labelward.report.plots import DefenseMark, Image
from labelward.report.study import StudyReport, write_study
from labelward.report.study.verdicts import claim_verdict, ranking_verdict
from labelward.studies import datasets
from labelward.studies.label_inference import LABEL_INFERENCE
from labelward.studies.references import NO_DEFENSE, UTILITY, Claim, FigureKey
from labelward.studies.results import study_figures
from labelward.studies.run import StudyResult, run_study
from labelward.studies.spec import Study, StudyTask

torch.set_num_threads(1)  # the parties of a rehearsal share the cores

FULL = LABEL_INFERENCE.full
assert FULL is not None


def _tasks(study: Study) -> list[StudyTask]:
    return list(study.tasks(study.parts, study.datasets, 1))


def test_figures_and_claims_belong_to_what_their_part_shows() -> None:
    """A printed figure and a claim belong to a dataset, a model and a column that their part shows."""
    study, parts = LABEL_INFERENCE, {part.name: part for part in LABEL_INFERENCE.parts}
    claimed = [(claim.part, key) for claim in study.claims for group in claim.groups for key in group]
    beside = {each.name: each.like for each in study.own}
    for part, key in [*study.printed, *claimed]:
        assert beside.get(key.dataset, key.dataset) in parts[part].datasets
        assert key.model in parts[part].models
        assert key.column in (*parts[part].columns, UTILITY)


def test_what_takes_long_is_run_only_where_it_is_named() -> None:
    named = [part.name for part in LABEL_INFERENCE.select_parts([])]
    assert named == ["table 2", "table 4", "table 6", "appendix e", "second step"]
    assert [part.name for part in LABEL_INFERENCE.select_parts(["figure 3"])] == ["figure 3"]
    quick = [table.name for table in LABEL_INFERENCE.select_datasets([], on_request=False)]
    assert quick == ["breast_cancer_published", "digits"]
    assert LABEL_INFERENCE.select_datasets([]) == LABEL_INFERENCE.datasets
    assert [table.name for table in LABEL_INFERENCE.select_datasets(["criteo"], on_request=False)] == ["criteo"]


def test_splits_of_breast_cancer() -> None:
    """The published attacker holds 14 columns without radius, perimeter and area; the paper's has two of these."""
    held = {
        table.name: table.party_columns for table in LABEL_INFERENCE.datasets if table.catalog_name == "breast_cancer"
    }
    published, paper = held["breast_cancer_published"], held["breast_cancer_paper"]
    assert (len(published["telco"]), len(paper["telco"])) == (14, 15)
    assert not {"mean radius", "mean perimeter", "mean area"} & set(published["telco"])
    assert {"mean perimeter", "mean area"} <= set(paper["telco"])
    assert "mean radius" not in (*paper["telco"], *paper["active"])
    assert "mean area" not in (*published["telco"], *published["active"])
    for columns in (published, paper):
        assert len({*columns["telco"], *columns["active"]}) == 29


def test_halves_of_images() -> None:
    task = next(each for each in _tasks(LABEL_INFERENCE) if each.dataset.name == "digits")
    columns = [f"r{row}c{column}" for row in range(8) for column in range(8)]
    active, attacker = LABEL_INFERENCE.job(task, "digits", columns).parties
    assert set(attacker.columns or ()) == {f"r{row}c{column}" for row in range(8) for column in range(4)}
    assert set(active.columns or ()) == set(columns) - set(attacker.columns or ())


def test_parties_share_the_columns_alike() -> None:
    task = next(each for each in _tasks(LABEL_INFERENCE) if each.setting.name == "parties-10")
    parties = LABEL_INFERENCE.job(task, "credit_default").parties
    assert [party.name for party in parties] == ["active", *(f"party{at}" for at in range(2, 10)), "telco"]
    assert {party.share for party in parties} == {0.1}


def _ten_parties(setting: str, dataset: str, columns: list[str]) -> tuple[Job, ...]:
    """Return the jobs of a dataset of seeds 1 and 2."""
    (found,) = (each for each in LABEL_INFERENCE.settings if each.name == setting)
    (table,) = LABEL_INFERENCE.select_datasets([dataset])
    tasks = (StudyTask(setting=found, dataset=table, model="top", seed=seed) for seed in (1, 2))
    return tuple(LABEL_INFERENCE.job(task, "table.parquet", columns) for task in tasks)


def test_an_overlapping_attacker_has_a_column_of_two_others() -> None:
    columns = [f"c{at:02}" for at in range(23)]
    dealt = []
    for seed, job in enumerate(_ten_parties("overlap", "credit_default", columns), start=1):
        assert job.data.overlap
        assert [party.name for party in job.parties][::9] == ["active", "telco"]
        (apart,) = _ten_parties("parties-10", "credit_default", columns)[seed - 1 : seed]
        assert not apart.data.overlap
        held = assign_columns(apart, seed, pa.table({name: [] for name in columns}), sorted)
        assert tuple(party.columns for party in job.parties[:-1]) == held[:-1]
        assert job.parties[-1].columns == (*held[-1], held[0][0], held[1][0])
        dealt.append(held)
    assert dealt[0] != dealt[1]


def test_a_patch_of_each_party_and_three_of_an_overlapping_attacker() -> None:
    columns = [f"{at}r{row}c{column}" for at in range(10) for row in range(30) for column in range(10)]
    apart, overlapping = (_ten_parties(name, "bhi_made_up", columns)[0] for name in ("parties-10", "overlap"))
    assert [party.columns for party in apart.parties] == [tuple(columns[at : at + 300]) for at in range(0, 3000, 300)]
    assert overlapping.parties[:-1] == apart.parties[:-1]
    wide = overlapping.parties[-1].columns or ()
    assert len(wide) == 900
    assert wide[:30] == tuple(f"{at}r0c{column}" for at in (9, 0, 1) for column in range(10))
    assert wide[30:60] == tuple(f"{at}r1c{column}" for at in (9, 0, 1) for column in range(10))


def test_made_up_patches_are_those_of_their_seed() -> None:
    made = datasets.made_up_patches(1, patients=6, each=40, width=4)
    assert made.equals(datasets.made_up_patches(1, patients=6, each=40, width=4))
    assert not made.equals(datasets.made_up_patches(2, patients=6, each=40, width=4))
    assert made.shape == (240, 3 * 16 + 2)
    values = np.column_stack([made[name].to_numpy() for name in made.column_names[1:-1]])
    assert (values.min() >= 0, values.max() <= 1) == (True, True)
    labels = made["label"].to_numpy()
    assert labels.mean() == pytest.approx(0.28, abs=0.1)
    assert values[labels == 1].mean() < values[labels == 0].mean()
    (named,) = LABEL_INFERENCE.select_datasets(["bhi_made_up"])
    assert named.on_request
    assert named.substitute


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the order of the rows:labelward.errors.DataWarning")  # patches come by class
def test_overlapping_patches_are_trained_on(tmp_path: Path) -> None:
    (made,) = LABEL_INFERENCE.select_datasets(["bhi_made_up"])
    few = replace(
        made,
        generate=partial(datasets.made_up_patches, patients=4, each=200, width=10),
        model={**made.model, "epochs": 1},
        completion={"auxiliary": 8, "steps": 10},
        upper_bound=False,
    )
    study = replace(LABEL_INFERENCE, datasets=(few,), seeds=1)
    result = run_study(study, tmp_path / "study", parts=["ten parties", "overlap", "figure 5"])
    assert not result.failed
    found = study_figures(result, tmp_path / "study")
    for setting in ("parties-10", "overlap"):
        assert 0 <= found[setting, FigureKey("bhi_made_up", "top", NO_DEFENSE, "active")][1] <= 1
    sections = StudyReport(result, tmp_path / "study").sections
    assert [section.tables[0].rows[0][1][2].paper for section in sections[:2]] == ["0.645", "0.764"]
    names = [name for name, _ in sections[2].tables[0].rows]
    assert (names[0], len(names)) == ("undefended", 11)


def test_texts_become_numbers_of_their_words() -> None:
    first, second = datasets.token_halves("The fox; the DOG's fox", 4, 100)  # the fox the | dog s fox
    assert first[0] == first[2]
    assert first[1] == second[2]
    assert first[3] == second[3] == 0
    assert set(first[:3]) | set(second[:3]) <= set(range(1, 100))
    cut, _ = datasets.token_halves("one two three four", 1, 100)
    assert len(cut) == 1
    assert not datasets.token_halves("", 3, 100).any()


def test_texts_are_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"title": ["Red fox", None], "body": ["runs far", "alone"], "label": [1, 2]})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    found = datasets.texts(1, name="any")
    assert found.column_names == [*(f"{side}{at}" for side in ("first", "second") for at in range(32)), "label"]
    words = datasets.token_halves("red fox runs far", 32, datasets.VOCABULARY)
    assert [found[f"first{at}"][0].as_py() for at in range(32)] == words[0].tolist()
    assert [found[f"second{at}"][0].as_py() for at in range(32)] == words[1].tolist()
    assert found["second0"][1].as_py() == 0  # a single word has no second half


def test_some_texts_are_drawn_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"text": [f"word{at} again" for at in range(40)], "label": [at % 2 for at in range(40)]})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    found = datasets.texts(1, name="any", rows=10)
    assert (found.num_rows, sum(found["label"].to_pylist())) == (10, 5)
    assert found.equals(datasets.texts(1, name="any", rows=10))
    assert not found.equals(datasets.texts(2, name="any", rows=10))


def test_color_images_are_columns_by_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    table = pa.table({"image": [each.tobytes() for each in pixels], "split": ["train", "test"], "label": [3, 7]})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    found = datasets.cifar10(1)
    assert found.num_columns == 3 * 32 * 32 + 1
    for color, channel in zip("rgb", range(3), strict=True):
        assert found[f"{color}5_9"][1].as_py() == pytest.approx(pixels[1, 5, 9, channel] / 255)
    assert found.column_names[: 32 + 1][-1] == "r1_0"  # row by row
    small = datasets.cifar10(1, width=16)
    assert small.num_columns == 3 * 16 * 16 + 1
    for color, channel in zip("rgb", range(3), strict=True):
        block = pixels[1, 4:6, 8:10, channel]
        assert small[f"{color}2_4"][1].as_py() == pytest.approx(block.mean() / 255, rel=1e-6)  # float32


def test_clicks_are_hashed_by_name_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"I1": [3, None, -3], "C1": ["a", "a", None], "C2": ["a", "b", None], "label": [0, 1, 0]})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    found = datasets.criteo(1, buckets=4096)
    values = np.array([found[f"h{at}"].to_numpy() for at in range(4096)]).T
    assert np.sort(values[0])[-3:] == pytest.approx([1, 1, np.log(4)])  # "a" of another column is another category
    assert (values[0] * values[1]).sum() == 1  # C1 = a
    assert values[1].sum() == 2
    assert values[2].sum() == pytest.approx(-np.log(4))


def test_drawn_rows_are_those_of_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(200)
    table = pa.table({"p0": values, "label": values % 4})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    found = datasets.fashion_mnist(1, rows=40)
    assert found.equals(datasets.fashion_mnist(1, rows=40))
    assert not found.equals(datasets.fashion_mnist(2, rows=40))
    assert np.unique(found["label"].to_numpy(), return_counts=True)[1].tolist() == [10] * 4
    assert found["p0"].to_numpy().max() <= 1
    assert datasets.credit_default(1, rows=8).num_rows == 8


def test_the_whole_study_takes_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"p0": np.arange(40), "label": np.arange(40) % 4})
    monkeypatch.setattr(datasets, "load_catalog_table", lambda name: table)
    whole = {each.name: each.generate for each in FULL.datasets}
    for name in ("fashion_mnist", "credit_default"):
        generate = whole[name]
        assert generate is not None
        assert generate(1).num_rows == 40


def test_parts_speak_of_the_networks_that_their_settings_train() -> None:
    for study in (LABEL_INFERENCE, FULL):
        (part,) = study.select_parts(["table 6"])
        (setting,) = (each for each in study.settings if each.name in part.settings)
        assert ("linear layer" in part.about) is (setting.model.get("bottom") == "linear")
    assert not [each.name for each in FULL.parts if "networks than the paper's" in each.reason]


@pytest.mark.parametrize(
    ("groups", "claim", "met"),
    [
        ([[[0.9, 0.9], [0.8, 0.8]], [[0.7, 0.6]]], {}, True),  # the least of the upper group counts
        ([[[0.9, 0.9], [0.6, 0.6]], [[0.7, 0.6]]], {}, False),
        ([[[0.9, 0.5]], [[0.6, 0.6]]], {"every_seed": True}, False),  # one seed of two
        ([[[0.9, 0.8]], [[0.6, 0.6]]], {"every_seed": True, "margin": 0.2}, True),
        ([[[0.5]], [[0.5]]], {}, False),  # equal is not above
        ([[[0.93]]], {"margin": 0.93}, True),
        ([[[0.5]], [[0.4]], [[0.3]]], {}, True),  # a chain
        ([[[0.5]], [[0.2]], [[0.3]]], {}, False),
    ],
)
def test_claims_are_judged_by_their_order(groups: list[list[list[float]]], claim: dict[str, object], met: bool) -> None:
    claimed = Claim(part="p", text="w", groups=(), **claim)  # type: ignore[arg-type]
    assert claim_verdict(claimed, [np.array(group) for group in groups])[1] is met


QUICK = replace(
    LABEL_INFERENCE,
    datasets=tuple(
        replace(table, model={**table.model, "epochs": 1}, completion={"steps": 20}, upper_bound=table.name == "digits")
        for table in LABEL_INFERENCE.datasets
        if table.name in ("breast_cancer_published", "digits")
    ),
    settings=tuple(
        replace(each, defenses={name: chain[::8] for name, chain in each.defenses.items()})
        for each in LABEL_INFERENCE.settings
    ),
    seeds=1,
)


@pytest.mark.slow
def test_a_quick_study_fills_its_page(tmp_path: Path) -> None:
    parts = ["table 2", "table 4", "table 6", "appendix e"]
    result = run_study(QUICK, tmp_path / "study", parts=parts)
    assert not result.failed
    found = study_figures(result, tmp_path / "study")
    digits = "digits", "top", NO_DEFENSE
    for column in (*QUICK.parts[0].columns, "model under active attack", UTILITY):
        assert 0 <= found["default", (*digits, column)][1] <= 1
    honest, attacked = (found["default", (*digits, name)][1] for name in (UTILITY, "model under active attack"))
    assert honest != attacked  # of two trainings
    assert found["direct", ("digits", "sum", NO_DEFENSE, "least number")][1] == 1.0
    assert ("appendix-e", ("digits", "top", NO_DEFENSE, "λ_U 1")) not in found
    report = StudyReport(result, tmp_path / "study")
    page = write_study(report, tmp_path / "study").read_text(encoding="utf-8")
    assert "mean federated accuracy" in page
    assert "epochs fit two cores" in page
    assert "tolerances and claims hold" in report.verdict()


@pytest.mark.slow
def test_further_metrics_have_rows_of_their_own(tmp_path: Path) -> None:
    study = replace(
        QUICK,
        datasets=tuple(replace(each, extra_metrics=("auc",)) for each in QUICK.datasets if each.name == "digits"),
        claims=(),
        settings=tuple(
            replace(each, columns=("passive, head only", "λ_U 1")) if each.name == "default" else each
            for each in QUICK.settings
        ),
        columns=tuple(each for each in QUICK.columns if each.title in ("passive, head only", "λ_U 1")),
    )
    part = replace(study.parts[0], columns=("passive, head only", "λ_U 1"), rankings=())
    result = run_study(replace(study, parts=(part,)), tmp_path / "study")
    found = study_figures(result, tmp_path / "study")
    share, area = (
        found["default", (name, "top", NO_DEFENSE, "passive, head only")] for name in ("digits", "digits, auc")
    )
    assert share != area
    assert ("default", ("digits, auc", "top", NO_DEFENSE, "λ_U 1")) not in found  # that column is accuracy, in any row
    (grid,) = StudyReport(result, tmp_path / "study").sections[0].tables
    assert [name for name, _ in grid.rows] == ["digits, top model, accuracy", "digits, top model, AUC"]
    assert grid.rows[1][1][1].ours != "not run"


@pytest.mark.parametrize(("optimizer", "more"), [("sgd", 0), ("adam", 1)])
def test_a_finished_study_of_a_version_that_scaled_velocities_goes_on(
    optimizer: str, more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside SGD it is whole, beside Adam one run more is trained, and the page has the figures of that one."""
    column = next(each for each in QUICK.columns if each.title == "active, head only")
    study = replace(
        QUICK,
        datasets=tuple(
            replace(
                each,
                generate=lambda seed: datasets.synthetic(100, 2, seed),
                image_width=0,
                completion={"steps": 5, "auxiliary": 10, "unlabeled_weight": 1.0},
                model={"epochs": 1, "batch_size": 32, "optimizer": optimizer},
                upper_bound=False,
            )
            for each in QUICK.datasets
            if each.name == "digits"
        ),
        settings=tuple(
            replace(each, columns=(column.title,)) if each.name == "default" else each for each in QUICK.settings
        ),
        columns=(column,),
        claims=(),
        parts=(replace(QUICK.parts[0], columns=(column.title,), rankings=()),),
    )
    earlier = replace(column, attack=ComponentSpec(column.attack.kind, {**column.attack.params, "base": "momentum"}))
    out = tmp_path / "study"
    first = study_figures(run_study(replace(study, columns=(earlier,)), out), out)
    trained, run_training = [], auditing.run_training

    def count(*args: Any, **options: Any) -> Any:
        trained.append(options["seed"])
        return run_training(*args, **options)

    monkeypatch.setattr(auditing, "run_training", count)
    result = run_study(study, out)
    assert not result.failed
    assert len(trained) == more
    (key,) = (key for key in first if key[1].column == column.title)
    second = study_figures(result, out)
    assert second.keys() == first.keys()
    assert (second[key] == first[key]) is (not more)
    StudyReport(result, out)


def test_a_column_takes_the_parameters_of_its_data_set() -> None:
    table = replace(LABEL_INFERENCE.datasets[0], completion={"auxiliary": 20, "steps": 7})
    columns = {column.title: column for column in LABEL_INFERENCE.columns}
    passive = LABEL_INFERENCE.attack_of(columns["passive, 120"], table)
    assert passive == ComponentSpec("passive-completion", {"steps": 7, "auxiliary": 120})
    gently = replace(table, fine_tuning={"learning_rate": 1e-4})
    assert LABEL_INFERENCE.attack_of(columns["passive, 120"], gently) == passive  # the head alone
    tuned = {"auxiliary": 20, "steps": 7, "learning_rate": 1e-4, "fine_tune": True}
    assert LABEL_INFERENCE.attack_of(columns["passive"], gently) == ComponentSpec("passive-completion", tuned)
    assert LABEL_INFERENCE.attack_of(columns["first negative"], table) == ComponentSpec(
        "direct", {"rule": "first-negative"}
    )


def test_defenses_against_active_attacks_are_drawn_by_the_attacked_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {UTILITY: 0.9, "active, head only": 0.5, "active": 0.4, "model under active attack": 0.8}
    found = {("defended", ("digits", "top", NO_DEFENSE, column)): {1: value} for column, value in columns.items()}
    drawn: dict[str, tuple[float, float]] = {}

    def defense_plot(title: str, *_: object, undefended: DefenseMark, **__: object) -> Image:
        drawn[title] = undefended.utility.mean, undefended.leakage.mean
        return Image(title=title, words="", address="")

    monkeypatch.setattr("labelward.report.study.page.study_figures", lambda *_: found)
    monkeypatch.setattr("labelward.report.study.page.defense_plot", defense_plot)
    parts, tables = LABEL_INFERENCE.select_parts(["figure 5"]), LABEL_INFERENCE.select_datasets(["digits"])
    report = StudyReport(StudyResult(study=LABEL_INFERENCE, parts=parts, datasets=tables, seeds=1, jobs={}), tmp_path)
    assert list(drawn.values()) == [(0.8, 0.5), (0.8, 0.4)]
    name, cells = report.sections[0].tables[0].rows[0]
    assert (name, [cell.ours for cell in cells]) == ("undefended", ["0.900", "0.500", "0.400", "0.800"])


@pytest.mark.parametrize(
    ("second", "word"), [([0.7, 0.71, 0.69], "it wins"), ([0.95, 0.6, 0.8], "no clear winner"), ([0.7], "one seed")]
)
def test_a_ranking_has_a_winner_only_beyond_chance(second: list[float], word: str) -> None:
    best = np.array([0.8, 0.82, 0.81])[: len(second)]
    verdict = ranking_verdict("digits", {"worst": best - 0.5, "second": np.array(second), "best": best})
    assert "best is best (0.8" in verdict
    assert "ahead of second" in verdict
    assert word in verdict
