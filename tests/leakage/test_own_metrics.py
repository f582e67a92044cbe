"""Metrics that an attack brings: what it declares and what its score returns are checked, and errors name both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks import ATTACKS
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.auditing.audit import audit
from labelward.errors import Code, InputError, JobError
from labelward.job import Job
from labelward.leakage.run_attack import check_own_metrics, score_values
from labelward.metrics.registry import Metric
from labelward.party.view import View
from refusals import refused

VALUES, LABELS = np.array([0, 0, 1, 1]), ["a", "a", "b", "b"]


@dataclass(frozen=True, kw_only=True)
class Pure(Attack):
    """All rows share a cluster."""

    kind: ClassVar[str] = "pure"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(name="purity", title="purity"),)
    primary: ClassVar[str] = "purity"
    scored: ClassVar[Any] = {"purity": 0.5}

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return one cluster."""
        return LabelGuess(values=np.zeros(view.rows, dtype=np.int64))

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return what the test wants."""
        scored: dict[str, float] = self.scored
        return scored


@pytest.fixture(autouse=True)
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the attacks of a test after it."""
    monkeypatch.setattr(ATTACKS, "_added", list(ATTACKS._added))


def made(**changes: Any) -> Attack:
    """Return an attack of another class, with other attributes."""
    return type("Changed", (Pure,), changes)()


def test_a_score_of_all_its_metrics_is_taken() -> None:
    found = score_values(VALUES, LABELS, attack=made(scored={"purity": np.float32(0.5)}))
    assert (found["purity"], found["chance"]["purity"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("scored", "code", "value", "about"),
    [
        ({"purityy": 0.5}, "unknown", "purityy", "'purity'?"),
        ({}, "missing", "purity", "'purity'"),
        ({"purity": None}, "values", None, "'purity'"),
        ({"purity": np.inf}, "values", np.inf, "'purity'"),
        ([0.5], "type", [0.5], "list"),
    ],
)
def test_what_a_score_may_not_return(scored: Any, code: Code, value: Any, about: str) -> None:
    with refused(InputError, code, field="attack 'pure'", value=value) as caught:
        score_values(VALUES, LABELS, attack=made(scored=scored))
    assert about in caught.value.reason


def test_a_score_that_is_no_number() -> None:
    with refused(InputError, "values", field="attack 'pure'") as caught:
        score_values(VALUES, LABELS, attack=made(scored={"purity": np.nan}))
    assert "nan" in caught.value.reason


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"primary": "purityy"}, "unknown", "purityy"),
        ({"metrics": (Metric(name="v_measure", title="another"),)}, "duplicate", "v_measure"),
        ({"metrics": (Metric(name="chance", title="chance"),)}, "duplicate", "chance"),
        ({"metrics": Pure.metrics * 2}, "duplicate", "purity"),
    ],
)
def test_metrics_that_cannot_be_are_refused_before_training(
    changes: dict[str, Any], code: Code, value: str, job: Callable[..., Job], tmp_path: Path
) -> None:
    attack = made(**changes, kind="own-metrics")
    with refused(InputError, code, field="attack 'own-metrics'", value=value):
        check_own_metrics(attack)
    with refused(JobError, code, value=value):
        audit(job(attack=None, defense=None), tmp_path / "out", attacks=[attack])
    assert not (tmp_path / "out").exists()


def test_a_primary_metric_that_these_labels_do_not_have(job: Callable[..., Job], tmp_path: Path) -> None:
    small = job(attack=None, defense=None, run={"seeds": [1]})
    small = replace(small, parties=small.parties[:2])
    with refused(InputError, "missing", field="attack 'of-quantities'", value="r2"):
        audit(small, tmp_path / "out", attacks=[made(primary="r2", kind="of-quantities")])
