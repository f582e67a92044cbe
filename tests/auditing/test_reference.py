"""The reference figures of boosted trees and forests, from the job files in ``examples/reference``, with tolerances.

The figures are means of five seeds of an implementation of its own on the same data and splits. AUC ± .01, and ± .03
under ID-LMID; clustering ± .01, since splits and k-means are the same; ID2Graph ± .10 on breast cancer, ± .15 where it
is defended (few groups make Louvain's result jump) and on obesity, ± .20 on phishing, where its standard deviation is
.11 to .18.

One figure has no mean to compare: the breast cancer forest at xi 0.5, .08. A seed gives next to nothing where no tree
has a root that may be shown, and what clustering gives where one has; of 40 seeds 19 and 21 did, so that means of five
seeds scatter by .13 about .29.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from labelward.auditing.audit import audit
from labelward.job import load_job
from labelward.runs.schema import ResultRow, defense_label

EXAMPLES = Path(__file__).parents[2] / "examples" / "reference"
Figures = dict[str, list[float]]

BREAST_CLUSTERING = [0.634, 0.614, 0.577, 0.521, 0.424]


@dataclass(frozen=True)
class Reference:
    """What one job file should give.

    Attributes:
        clustering: mean V-measure of clustering, by anyone.
        auc, id2graph: of the undefended run.
        within: how far ID2Graph may be off where nothing defends.
        defended: AUC and ID2Graph's V-measure by defense.
        same: defenses under which every figure is that of the undefended run.
        either: defenses under which a seed gives next to nothing, or about what clustering gives.
    """

    job: str
    clustering: float
    auc: float
    id2graph: float
    within: float
    defended: dict[str, tuple[float, float]]
    same: tuple[str, ...] = ()
    either: tuple[str, ...] = ()


def lmid(*figures: tuple[float, float, float], sampled: bool = False) -> dict[str, tuple[float, float]]:
    more = ", sampled true" if sampled else ""
    return {f"id-lmid (xi {xi}{more})": (auc, leakage) for xi, auc, leakage in figures}


REFERENCES = [
    Reference(
        "breast_cancer",
        0.554,
        0.988,
        0.700,
        0.10,
        lmid((0.1, 0.988, 0.554), (0.5, 0.990, 0.577)) | {"local-trees (count 1)": (0.987, 0.717)},
        same=("id-lmid (xi 1.0)", "id-lmid (xi 2.0)"),
    ),
    Reference(
        "breast_cancer_forest",
        0.554,
        0.986,
        0.786,
        0.10,
        lmid((0.1, 0.989, 0.00), sampled=True),
        same=("id-lmid (xi 1.0, sampled true)", "id-lmid (xi 2.0, sampled true)"),
        either=("id-lmid (xi 0.5, sampled true)",),
    ),
    Reference(
        "obesity",
        0.253,
        0.998,
        0.629,
        0.15,
        lmid((0.1, 0.922, 0.231), (0.5, 0.962, 0.412), (1.0, 0.986, 0.542), (2.0, 0.997, 0.614))
        | {"local-trees (count 1)": (0.997, 0.584)},
    ),
    Reference(
        "obesity_forest",
        0.253,
        0.991,
        0.634,
        0.15,
        lmid((0.1, 0.891, 0.085), (0.5, 0.932, 0.418), (1.0, 0.972, 0.544), (2.0, 0.990, 0.644), sampled=True),
    ),
    Reference("phishing", 0.001, 0.987, 0.393, 0.20, {}),
    Reference("phishing_forest", 0.001, 0.984, 0.311, 0.20, {}),
]


def by_defense(rows: list[ResultRow], attack: str) -> tuple[Figures, Figures]:
    """Return AUC and V-measure of each seed, by defense."""
    auc: Figures = {}
    leakage: Figures = {}
    for row in rows:
        if row.attack is not None and row.attack["kind"] == attack and row.leakage is not None:
            label = defense_label(row.defense)
            auc.setdefault(label, []).append(float(row.utility["auc"]))  # type: ignore[arg-type]
            leakage.setdefault(label, []).append(float(row.leakage["v_measure"]))  # type: ignore[arg-type]
    return auc, leakage


def mean(values: list[float]) -> float:
    assert len(values) == 5
    return sum(values) / 5


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: reference.job)
def test_reference(reference: Reference, tmp_path: Path) -> None:
    job = load_job(EXAMPLES / f"{reference.job}.toml")
    if job.data.table != "breast_cancer" and "LABELWARD_DATA" not in os.environ:
        pytest.skip(f"LABELWARD_DATA names no folder with the {job.data.table} table")
    rows = audit(job, tmp_path)
    _, clustering = by_defense(rows, "clustering")
    auc, leakage = by_defense(rows, "id2graph")
    if job.data.table == "breast_cancer":
        assert clustering["no defense"] == pytest.approx(BREAST_CLUSTERING, abs=0.0005)  # digits given
    assert mean(clustering["no defense"]) == pytest.approx(reference.clustering, abs=0.01)
    assert mean(auc["no defense"]) == pytest.approx(reference.auc, abs=0.01)
    assert mean(leakage["no defense"]) == pytest.approx(reference.id2graph, abs=reference.within)
    for label, (expected_auc, expected) in reference.defended.items():
        assert mean(auc[label]) == pytest.approx(expected_auc, abs=0.03 if label.startswith("id-lmid") else 0.01), label
        assert mean(leakage[label]) == pytest.approx(expected, abs=0.15), label
    for label in reference.either:
        assert mean(auc[label]) == pytest.approx(reference.auc, abs=0.03)
        assert all(value < 0.05 or 0.35 < value < 0.70 for value in leakage[label])
    for label in reference.same:
        assert auc[label] == auc["no defense"]
        assert leakage[label] == leakage["no defense"]
