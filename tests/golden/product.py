"""All that the golden record takes from the product: a change of names changes this file and nothing beside it.

The functions give plain values (texts, numbers, arrays, paths), so that what is stored names no module and no class.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from typer.testing import CliRunner

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike, in whatever process)
from cutting import RestartingEnd
from interrupted import Cut, Interrupted
from labelward import estimators
from labelward.auditing.audit import audit
from labelward.cli.app import app
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.errors import LabelwardError, PeerError
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.simulation import simulate_job
from labelward.federation.train import train_variant
from labelward.job import Job, load_job
from labelward.party.view import View
from labelward.planning.cost_model import forecast
from labelward.protocols.secureboost.params import SecureBoost
from labelward.report.study import StudyReport, write_study
from labelward.rng import SecureRandom
from labelward.runs.short_names import variant_without_defaults
from labelward.studies import find_study
from labelward.studies.run import StudyResult
from labelward.transport.base import Transport
from labelward.transport.in_process import connect_in_process
from wiring import Setting, make_parts, make_targets

__all__ = [
    "Company",
    "Rehearsed",
    "ended_run",
    "estimator",
    "load_estimator",
    "run_audit",
    "run_command",
    "run_parties",
    "run_parties_prediction",
    "run_prediction",
    "run_rehearsal",
    "run_training",
    "study_page",
    "unfinished_run",
    "variants",
    "view_counts",
    "view_digest",
]

_NOISE = 7
"""Seeds what protects, in runs of one process that a test may seed."""

_PATIENCE = 120.0


# -- whole runs ------------------------------------------------------------------------------------------------------


def run_audit(job: Path, out: Path) -> None:
    """Audit a job file into a new folder, without figures of privacy and plots, of which the record keeps nothing."""
    asked = load_job(job)
    audit(replace(asked, leakage=replace(asked.leakage, privacy=False)), out, explained=False)


def run_training(job: Path, out: Path, *, seed: int, variant: str | None = None, earlier: Path | None = None) -> Any:
    """Train one variant into a new folder; return utility by metric and the watched values, if there are any."""
    found = train_variant(load_job(job), out, seed=seed, variant=variant, earlier=earlier, forecast=forecast)
    return {"utility": found.utility, "watched": None if found.watched is None else list(found.watched.values)}


def run_prediction(run: Path, tables: Path | Mapping[str, Path], out: Path, *, mode: Any = "one-round") -> None:
    """Predict the rows of one table, or of one for each party, with a trained model."""
    if isinstance(tables, Path):
        parties = [each.name for each in load_job(run / "job.toml").parties]
        tables = dict.fromkeys(parties, tables)
    predict_table(run, tables, out, mode=mode)


def _prepared(job: Job, seed: int) -> VerticalDataset:
    """Return all parties' data: the only place where the record splits rows by itself."""
    return load_dataset(job, seed, load_tables(job))


@dataclass(frozen=True)
class Rehearsed:
    """What a training with seeded protection gave.

    Attributes:
        margins: float64 [test rows, outputs].
        counted: what it cost, but for time.
        sent: by party, by type of message: how many, and how many bytes.
        fingerprint: of the public key.
        parties: their names, the active one first.
    """

    margins: NDArray[np.float64]
    counted: dict[str, int]
    sent: dict[str, dict[str, list[int]]]
    fingerprint: str
    parties: tuple[str, ...]


def variants(job: Path) -> list[str]:
    """Return the names of a job's variants, the undefended one first."""
    return [variant_without_defaults(each).slug for each in with_defaults(load_job(job)).variants()]


def run_rehearsal(job: Path, folder: Path, *, seed: int, variant: str) -> Rehearsed:
    """Train one variant with seeded protection, which an audit and a training refuse; leave views and shares."""
    folder.parent.mkdir(exist_ok=True)
    whole = with_defaults(load_job(job))
    chosen = next(each for each in whole.variants() if variant_without_defaults(each).slug == variant)
    data = _prepared(whole, seed)
    engine = make_engine(whole.encryption)
    try:
        ended = simulate_job(
            whole,
            data,
            chosen,
            engine,
            folder,
            seed=seed,
            progress=lambda what, done, total: None,
            protections=lambda: SecureRandom(_NOISE),
        )
    finally:
        engine.close()
    cost = msgspec.to_builtins(ended.cost)
    names = tuple(each.name for each in data.parties)
    sent = {}
    for name in names:
        counts = view_counts(folder / name / "view")
        sent[name] = {kind: numbers for (way, kind), numbers in sorted(counts.items()) if way == "sent"}
    return Rehearsed(
        margins=ended.margins,
        counted={key: value for key, value in cost.items() if key != "seconds"},
        sent=sent,
        fingerprint=ended.fingerprint,
        parties=names,
    )


# -- views -----------------------------------------------------------------------------------------------------------


def view_digest(folder: Path) -> str:
    """Return the digest of a stored view's content."""
    return View.load(folder).digest()


def view_counts(folder: Path) -> dict[tuple[str, str], list[int]]:
    """Return how many records of each type a stored view has, and how many bytes."""
    return {key: list(numbers) for key, numbers in View.load(folder).counts().items()}


# -- one party in its own folder -------------------------------------------------------------------------------------


class Company:
    """Parties in one process, each with its own job file ``NAME.toml``, its own table and its own folder ``run-NAME``.

    Args:
        folder: has the job files.
        parties: the active one first.
        cut: by attempt, the party that is cut off in it, and after how many of its messages.
        last: the attempt after which the parties do not meet again: their run stays unfinished.
    """

    def __init__(
        self,
        folder: Path,
        parties: Sequence[str],
        cut: Mapping[int, tuple[str, int]] | None = None,
        *,
        last: int = 100,
    ) -> None:
        self.folder, self.parties, self.cut, self.last = folder, tuple(parties), dict(cut or {}), last
        self._changed, self._here, self._broken = threading.Condition(), 0, False
        self.number, self.ends = 0, connect_in_process(self.parties)

    def together(self, run: Callable[[str, Job, Path], Any]) -> dict[str, Any]:
        """Run all parties side by side; return what each returned, or the error that it raised."""
        found: dict[str, Any] = {}

        def live(party: str) -> None:
            try:
                found[party] = run(party, load_job(self.folder / f"{party}.toml"), self.folder / f"run-{party}")
            except LabelwardError as error:
                found[party] = error
                with self._changed:
                    self._broken = True
                    self._changed.notify_all()

        threads = [threading.Thread(target=live, args=(party,)) for party in self.parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE)
        return found

    def join(self, job: Job, party: str, purpose: str, log: Any) -> tuple[Any, str]:
        """Return a party's network and a text in place of its certificate's fingerprint."""
        return _Here(self, party), f"certificate of {party}"

    def gather(self) -> None:
        """Wait until all are here; an error where one will not come any more."""
        with self._changed:
            self._here, mine = self._here + 1, self.number + 1
            if self._here == len(self.parties):
                self._here, self.number, self.ends = 0, mine, connect_in_process(self.parties)
                self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.number == mine or self._broken, _PATIENCE)
            if self.number != mine:
                raise PeerError(self.parties[0], "has ended", code="peer-gone")


class _Here:
    """A party's network: the others are threads of this process."""

    def __init__(self, company: Company, party: str) -> None:
        self.company, self.party = company, party

    def attempt(self, *, finished: bool = False) -> Transport:
        self.company.gather()
        if self.company.number > self.company.last:
            raise PeerError(self.company.parties[0], "away", code="peer-gone")
        party, messages = self.company.cut.get(self.company.number, ("", 0))
        return RestartingEnd(self.company.ends[self.party], messages if party == self.party else -1)

    def conclude(self, mark: Callable[[], None]) -> None:
        mark()

    def fail(self, reason: str) -> None:
        pass

    def uninformed(self) -> tuple[str, ...]:
        return ()

    def peers(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def run_parties(company: Company, *, seed: int, variant: str) -> dict[str, dict[str, Any]]:
    """Train, each party in its own folder; return of each how its run stands, attempts and utility.

    A run that is cut off and may not go on (``last``) raises nothing: the folders are left as they are.
    """

    def run(party: str, job: Job, out: Path) -> Any:
        chosen = variant if party == company.parties[0] else None
        silent = lambda event, told: None  # noqa: E731
        return train_as_party(job, party, out, seed=seed, join=company.join, variant=chosen, log=silent)

    found = company.together(run)
    records = {party: msgspec.to_builtins(each) for party, each in found.items() if isinstance(each, msgspec.Struct)}
    if company.last == 100 and len(records) < len(company.parties):
        raise AssertionError(f"a party did not end: {found}")
    return {party: {key: record[key] for key in ("stage", "attempts", "utility")} for party, record in records.items()}


def run_parties_prediction(company: Company, tables: Mapping[str, Path], out: Path) -> None:
    """Predict the rows of the parties' tables with the shares in their folders."""

    def run(party: str, job: Job, folder: Path) -> int:
        to = out if party == company.parties[0] else None
        silent = lambda event, told: None  # noqa: E731
        return predict_as_party(job, party, folder, tables[party], to, join=company.join, log=silent)

    found = company.together(run)
    if not all(isinstance(each, int) for each in found.values()):
        raise AssertionError(f"a party did not predict: {found}")


# -- a run below jobs, which a test cuts off -------------------------------------------------------------------------


def _interrupted(folder: Path) -> Interrupted:
    """Return a small run of three parties in a folder, with a validation set and missing values."""
    rows, watched = 60, 20
    parts = make_parts(7, rows + watched, dict.fromkeys(("active", "left", "right"), 3))
    for x in parts.values():
        x[::7, 1] = np.nan
    labels = make_targets(7, parts, "classes", 2)
    setting = Setting(
        parts={party: x[:rows] for party, x in parts.items()},
        labels=labels[:rows],
        params=SecureBoost(trees=4, depth=2, bins=4, row_fraction=0.8, feature_fraction=0.7),
        validation={party: x[rows:] for party, x in parts.items()},
        validation_labels=labels[rows:],
        test={party: x[::2] for party, x in parts.items()},
        seed=7,
    )
    return Interrupted(setting=setting, folder=folder)


def unfinished_run(folder: Path, party: str, at: int) -> None:
    """Begin the run in a folder, and cut it off at a party's message of this number."""
    assert _interrupted(folder).attempt(Cut(party, at)) is None


def ended_run(folder: Path) -> dict[str, Any]:
    """Bring the run in a folder to its end; return margins, history, messages of the last attempt, and view digests."""
    ended = _interrupted(folder).finish()
    active = ended.outcomes["active"]
    return {
        "margins": active.margins.ravel().tolist(),
        "history": list(active.history),
        "passed": dict(sorted(ended.passed.items())),
        "views": {party: view.digest() for party, view in ended.views.items()},
        "attempts": {party: view.attempts for party, view in ended.views.items()},
    }


# -- estimators, commands, studies -----------------------------------------------------------------------------------


def estimator(name: str, **parameters: Any) -> Any:
    """Return an unfitted estimator by the name of its class, which is public."""
    return getattr(estimators, name)(**parameters)


def load_estimator(name: str, folder: Path) -> Any:
    """Return an estimator that was saved."""
    return getattr(estimators, name).load(folder)


def run_command(*arguments: object) -> str:
    """Run ``labelward ...`` in this process and return its stdout; a failure raises with what it printed."""
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="labelward")
    if result.exit_code:
        raise AssertionError(
            f"labelward {' '.join(map(str, arguments))}: exit code {result.exit_code}\n{result.output}"
        )
    return result.stdout


def study_page(out: Path) -> Path:
    """Render the page of the study of ID2Graph's options from its folder alone, and return where it lies."""
    study = find_study("options")
    datasets, parts = study.select_datasets(["breast_cancer"]), study.select_parts([])
    jobs = {task: study.job(task, "breast_cancer") for task in study.tasks(parts, datasets, 1)}
    result = StudyResult(study=study, parts=parts, datasets=datasets, seeds=1, jobs=jobs)
    return write_study(StudyReport(result, out), out)
