"""Files of a search: as they grow, as a search that came to its end leaves them, and how large they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from made_up import evaluation, without_bounds, without_trainings

from labelward.errors import InputError
from labelward.job import Job
from labelward.runs.secure_files import write_lines
from labelward.tuning import ledger
from labelward.tuning.evaluate import Evaluator, Task
from labelward.tuning.journal import JOURNAL
from labelward.tuning.ledger import Evaluation, Point
from labelward.tuning.tune import tune
from refusals import refused

Small = Callable[..., Job]
MOST_BYTES = 2_000_000


def test_a_search_that_ended_has_the_lines_of_one_that_goes_on(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    job, out = small(search="random", evaluations=6), tmp_path / "out"
    found = tune(job, out=out).evaluations
    assert not (out / ledger.LEDGER_FILE).exists()
    assert ledger.read_evaluations(out) == list(found)
    # killed between the two files, or by a version that compressed nothing: all lines are known
    write_lines(out / ledger.LEDGER_FILE, found[2:])
    assert ledger.read_evaluations(out) == list(found)
    (out / ledger.CLOSED_FILE).unlink()
    assert ledger.read_evaluations(out) == list(found[2:])
    assert {each.key for each in tune(job, out=out).evaluations} == {each.key for each in found}
    assert len(ledger.read_evaluations(out)) == len(found)


def test_a_damaged_file_is_refused(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_trainings(monkeypatch.setattr)
    job, out = small(search="random", evaluations=2), tmp_path / "out"
    tune(job, out=out)
    stored = out / ledger.CLOSED_FILE
    whole = stored.read_bytes()
    for damaged in (whole[:-9], b"no lines", whole[:20] + bytes(20) + whole[40:]):
        stored.write_bytes(damaged)
        with refused(InputError, "damaged", field=str(stored)):
            tune(job, out=out)


def test_a_journal_is_what_optuna_writes(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    without_trainings(monkeypatch.setattr)
    variables = [
        {"name": "model.depth", "low": 1, "high": 3},
        {"name": "model.learning_rate", "low": 0.01, "high": 0.5, "log": True},
        {"name": "defenses", "choices": ["none", "min-bin-rows"]},
    ]
    monkeypatch.setattr(Evaluator, "__call__", _of_words)
    job = small(variables=variables, search="random", evaluations=5, constraints={"leakage": 0.5})
    found = tune(job, out=tmp_path / "out")
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "out" / JOURNAL)))
    study = optuna.load_study(study_name=None, storage=storage)
    assert [each.params for each in study.trials] == [each.setting for each in found.evaluations]
    assert [tuple(each.values) for each in study.trials] == [each.points[-1].values for each in found.evaluations]
    first = study.trials[0]
    assert first.distributions["model.depth"] == optuna.distributions.IntDistribution(1, 3)
    assert first.distributions["model.learning_rate"] == optuna.distributions.FloatDistribution(0.01, 0.5, log=True)
    assert first.distributions["defenses"].choices == ("none", "min-bin-rows")
    assert first.datetime_start is not None
    assert first.datetime_complete is not None
    leakage = first.values[2]
    assert first.constraints == pytest.approx({"leakage": (leakage - 0.5) / 0.5}, abs=1e-12)


def _of_words(self: Evaluator, task: Task) -> Evaluation:
    """Return a made-up evaluation; its values follow from the numbers of a setting."""
    numbers = [value for value in task.setting.values() if not isinstance(value, str)]
    values = tuple(float(abs(np.sin(sum(numbers) + at))) for at in range(3))
    return Evaluation(
        key=self.key(task),
        version=self.version,
        data=self.digest,
        setting=dict(task.setting),
        seed=task.seed,
        points=(Point(values),),
    )


@pytest.mark.slow
def test_a_folder_of_many_evaluations_is_small(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """800 trainings of 32 points each, none of whose digits repeat, over all variables, with a confirmed front."""
    without_bounds(monkeypatch.setattr)

    def many_points(self: Evaluator, task: Task) -> Evaluation:
        rng = np.random.default_rng(int(self.key(task)[:12], 16))
        trees = np.arange(1, 33)
        # as trees are added utility, cost and leakage grow; a few hundred points are on the front
        losses = 0.05 + 0.4 * np.exp(-trees / rng.uniform(2, 20)) + 0.02 * rng.random(32)
        values = np.stack([losses, trees * rng.uniform(0.1, 30.0), 0.5 + trees / 99 + 0.03 * rng.random(32)], axis=1)
        rows = [tuple(float(f"{each:.10g}") for each in row) for row in values.tolist()]
        return msgspec.structs.replace(
            evaluation(self, task),
            varies="model.trees",
            points=(*map(Point, rows[:-1], range(1, 32)), Point(rows[-1])),
            counts={"encryptions": 40323, "additions": 495450, "decryptions": 6680},
            seconds=1.234,
        )

    monkeypatch.setattr(Evaluator, "__call__", many_points)
    out = tmp_path / "out"
    found = tune(small(variables=[], search="random", evaluations=800, confirm=5), out=out)
    assert len(found.front) > 50
    assert sum(each.stat().st_size for each in out.rglob("*") if each.is_file()) < MOST_BYTES
