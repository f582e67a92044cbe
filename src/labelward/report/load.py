"""Loading of a stored audit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelward.errors import FileFormatError, JobError
from labelward.job.parse import parse_job
from labelward.leakage.embeddings import Explanations, read_explanations
from labelward.report.scored_rows import with_scored_rows
from labelward.report.summary import SummaryRow, summary_table
from labelward.runs.directory import JOB_FILE, made_for
from labelward.runs.diverged_runs import DivergedRun, diverged_runs
from labelward.runs.malicious_runs import MaliciousRun
from labelward.runs.schema import (
    ResultRow,
    RunDetails,
    defense_label,
    has_cut_off_row,
    read_rows,
    read_run,
    run_folder,
)


@dataclass(frozen=True, kw_only=True)
class StoredAudit:
    """A stored audit.

    Attributes:
        job: text of the job file.
        rows: results.
        runs: details of the finished runs by label of the defense, in the order of the rows; the undefended run first.
        deviating: details of finished runs in which one party was malicious.
        diverged: runs whose training diverged, by a defense or a malicious party.
        finished, expected: number of (defense, seed) pairs that have ended, and that the job asks for.
        missing: number of finished runs without details.
        cut_off: whether the last result is truncated.
        budget: leakage budget of the job, if it has one.
        split: kind of row split.
        constrained: whether any column has a monotone constraint.
        partners: names of all parties but the active one; of several label holders that is the first.
        explained: explanations of the bottom models by label of the run; undefended runs first, honest runs before
            malicious ones.
    """

    job: str
    rows: tuple[ResultRow, ...]
    runs: dict[str, tuple[RunDetails, ...]]
    finished: int
    expected: int
    missing: int
    cut_off: bool
    budget: float | None = None
    split: str = "random"
    constrained: bool = False
    partners: tuple[str, ...] = ()
    deviating: tuple[RunDetails, ...] = ()
    diverged: tuple[DivergedRun, ...] = ()
    explained: dict[str, Explanations] = field(default_factory=dict)

    @property
    def insecure(self) -> tuple[str, ...]:
        """Reasons why runs of this audit are insecure; empty if all are secure."""
        reasons = [reason for runs in self.runs.values() for run in runs for reason in run.key.insecure]
        if not reasons and any(row.engine.insecure for row in self.rows):
            reasons = [f"{row.engine.name} engine" for row in self.rows if row.engine.insecure]
        return tuple(dict.fromkeys(reasons))

    def summary(self, rows: Sequence[ResultRow]) -> list[SummaryRow]:
        """Return the summary of some of the rows, with what the details tell of their scoring."""
        return with_scored_rows(summary_table(rows), [*itertools.chain(*self.runs.values()), *self.deviating])

    @property
    def training_rows(self) -> int | None:
        """Number of training rows, if the details of any run are stored."""
        return next((s.rows for runs in self.runs.values() for run in runs for s in run.seen.values()), None)


def read_audit(folder: Path) -> StoredAudit:
    """Read ``job.toml``, ``results.jsonl`` and each run's ``run.json``.

    Raises:
        FileFormatError: one of them is missing, damaged or of another format version, or no run is finished.
    """
    try:
        text = (folder / JOB_FILE).read_text(encoding="utf-8")
        job = parse_job(text, str(folder / JOB_FILE))
    except OSError as error:
        reason = f"{folder} is not the folder of an audit: {JOB_FILE} cannot be read ({error.strerror})"
        raise FileFormatError(reason, code="unreadable", value=str(folder / JOB_FILE)) from error
    except UnicodeDecodeError as error:
        reason = f"{folder / JOB_FILE} is damaged: {error}"
        raise FileFormatError(reason, code="unreadable", value=str(folder / JOB_FILE)) from error
    except JobError as error:
        raise error.within("damaged job").translated(FileFormatError) from error
    if made_for(folder) == "train":
        reason = (
            f"{folder} is the folder of a training, which has no report; labelward audit makes one of a job, and "
            "labelward attack attacks the stored views"
        )
        raise FileFormatError(reason, code="foreign", value=str(folder))
    rows = read_rows(folder)
    if not rows:
        raise FileFormatError(
            f"{folder} has no results of an audit; labelward report reads folders of an audit, of a party's run and of "
            "a search, and where an audit was begun, labelward audit goes on with it",
            code="incomplete",
            value=str(folder),
        )
    pairs: dict[tuple[str, int], Sequence[dict[str, Any]]] = {
        (defense_label(row.defense), row.seed): row.defense for row in rows
    }
    diverged = tuple(diverged_runs(folder))
    broken = {(run.defense, run.seed) for run in diverged if run.party is None}
    runs: dict[str, list[RunDetails]] = {}
    for (label, seed), defense in sorted(pairs.items(), key=lambda pair: bool(pair[1])):
        run = read_run(folder, defense, seed)
        if run is not None:
            runs.setdefault(label, []).append(run)
    return StoredAudit(
        job=text,
        rows=tuple(rows),
        runs={label: tuple(found) for label, found in runs.items()},
        finished=len(pairs.keys() | broken),
        missing=len(pairs.keys() - broken) - sum(map(len, runs.values())),
        expected=len(job.variants()) * len(job.run.seeds),
        cut_off=has_cut_off_row(folder),
        budget=job.leakage.budget,
        split=job.data.split,
        constrained=job.constrained,
        partners=tuple(party.name for party in job.passive),
        deviating=_deviating(folder, rows),
        diverged=diverged,
        explained=_explained(folder, rows),
    )


def _deviating(folder: Path, rows: Sequence[ResultRow]) -> tuple[RunDetails, ...]:
    found: dict[tuple[str, int, str], RunDetails] = {}
    for row in rows:
        if row.behavior is not None and row.party is not None:
            slug = MaliciousRun.of(row.party, row.behavior).slug
            run = read_run(folder, row.defense, row.seed, slug)
            if run is not None:
                found[defense_label(row.defense), row.seed, slug] = run
    return tuple(found.values())


def _explained(folder: Path, rows: Sequence[ResultRow]) -> dict[str, Explanations]:
    found: dict[str, Explanations] = {}
    for row in sorted(rows, key=lambda row: (bool(row.defense), defense_label(row.defense), row.behavior is not None)):
        off = None if row.behavior is None or row.party is None else MaliciousRun.of(row.party, row.behavior)
        label = defense_label(row.defense) if off is None else f"{defense_label(row.defense)}, {off.label}"
        if label not in found:
            stored = read_explanations(run_folder(folder, row.defense, row.seed, "" if off is None else off.slug))
            if stored is not None:
                found[label] = stored
    return found
