"""A search as an Optuna storage, which ``optuna-dashboard`` opens: one line for each training on all rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelward.runs.secure_files import write_bytes
from labelward.tuning.constraints import excesses
from labelward.tuning.evaluate import Evaluator
from labelward.tuning.ledger import Evaluation
from labelward.tuning.search import Told, distributions_of
from labelward.tuning.space import Setting, Variable

JOURNAL = "optuna.journal"
_TYPES = {"IntDistribution": "int", "FloatDistribution": "float", "CategoricalDistribution": "categorical"}
_NO_DEFAULT = ("low", "high", "choices")
_SECONDS = len("2026-01-31T12:00:00")


def write_journal(path: Path, evaluator: Evaluator, evaluations: Sequence[Evaluation]) -> None:
    """Write the trainings on all rows as Optuna's journal, in the least room that it reads."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    whole = path.with_name(f"{path.name}.partial")
    whole.unlink(missing_ok=True)
    section = evaluator.section
    study = optuna.create_study(
        study_name=evaluator.dataset,
        directions=["minimize"] * len(section.objectives),
        storage=JournalStorage(JournalFileBackend(str(whole))),
    )
    variables, trials = evaluator.space.variables, []
    for each in evaluations:
        if each.share == 1.0 and each.points:
            setting, values = each.compared()[-1]  # of a training that was cut short what it came to
            told = Told(setting, values, excesses(section, values))
            trials.append(trial_of(variables, told, dict(zip(section.constraints, told.excess, strict=True))))
        elif each.share == 1.0:
            trials.append(failed_trial(variables, each.setting, each.reason))
    study.add_trials(trials)
    lines = whole.read_bytes().splitlines()
    whole.unlink()
    write_bytes(path, b"".join(_shortened(line) for line in lines))


def trial_of(variables: Sequence[Variable], told: Told, limits: Mapping[str, float]) -> Any:
    """Return a finished Optuna trial."""
    import optuna

    return optuna.trial.create_trial(
        params=dict(told.setting),
        distributions=distributions_of(variables),
        values=list(told.values),
        constraints=dict(limits) or None,
    )


def failed_trial(variables: Sequence[Variable], setting: Setting, reason: str) -> Any:
    """Return an Optuna trial that gave nothing, and why."""
    import optuna

    return optuna.trial.create_trial(
        state=optuna.trial.TrialState.FAIL,
        params=dict(setting),
        distributions=distributions_of(variables),
        user_attrs={"reason": reason},
    )


def _shortened(line: bytes) -> bytes:
    """Return a line of a journal without what its reader fills in: empty fields, defaults, parts of a second."""
    log = {name: value for name, value in json.loads(line).items() if value not in ({}, None)}
    log["worker_id"] = ""
    for name in ("datetime_start", "datetime_complete"):
        if name in log:
            log[name] = log[name][:_SECONDS] + log[name][-len("+00:00") :]
    if "distributions" in log:
        log["distributions"] = {name: _abbreviated(text) for name, text in log["distributions"].items()}
    return json.dumps(log, separators=(",", ":")).encode() + b"\n"


def _abbreviated(text: str) -> str:
    """Return Optuna's short form of a distribution."""
    full = json.loads(text)
    kept = {name: value for name, value in full["attributes"].items() if name in _NO_DEFAULT or value is True}
    return json.dumps({"type": _TYPES[full["name"]], **kept}, separators=(",", ":"))
