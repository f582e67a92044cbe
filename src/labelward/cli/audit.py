"""``labelward audit``, ``labelward demo`` and ``labelward report``: from a job to figures and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import fail, prefix_job_file
from labelward.cli._options import Repeat
from labelward.cli._output import print_json, warn, warn_insecure
from labelward.cli._progress import ProgressDisplay
from labelward.cli._summary import as_json, print_summary
from labelward.errors import DependencyError

if TYPE_CHECKING:
    from labelward.job import Job

__all__ = ["audit_command", "demo", "demo_job", "demo_text", "insecure_reasons", "report", "skip_without_dependency"]

DEMO_JOB = "quickstart.toml"

Force = Annotated[bool, typer.Option("--force", help="Throw away what an earlier audit left in the folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in place of the table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def audit_command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="What to train, defend and attack.")],
    out: Annotated[Path, typer.Option(help="The folder for results; an unfinished run of the same job goes on there.")],
    repeat: Repeat = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, let each party attack what it saw, compare the defenses, and write a report."""
    from labelward.job import load_job

    with prefix_job_file(job_file):
        _audit(load_job(job_file), out, repeat=repeat or (), force=force, json=json, quiet=quiet)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for results.")] = Path("demo"),
    small: Annotated[bool, typer.Option("--small", help="One seed, few trees: a minute at most.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit a shipped example on real data, under real encryption."""
    _audit(demo_job(small=small), out, force=force, json=json, quiet=quiet)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an audit, or of a party's run.")],
) -> None:
    """Write the report of an audit, or of a party's run, again from what is stored."""
    from labelward.report.page import write_report
    from labelward.report.party_page import is_party_run, write_party_report

    typer.echo(str(write_party_report(folder) if is_party_run(folder) else write_report(folder, warn=warn)))


def demo_text() -> str:
    """Return the shipped job file, which ``examples/quickstart.toml`` repeats."""
    return (resources.files("labelward.cli") / DEMO_JOB).read_text(encoding="utf-8")


def demo_job(*, small: bool) -> Job:
    """Return the shipped job; ``small`` keeps its data, key and first defense, with one seed and little trees."""
    from dataclasses import replace

    from labelward.job import ComponentSpec, parse_job

    job = parse_job(demo_text(), DEMO_JOB)
    if not small:
        return job
    model = ComponentSpec(job.model.kind, {**job.model.params, "trees": 2, "depth": 3})
    return replace(job, model=model, defenses=job.defenses[:1], run=replace(job.run, seeds=job.run.seeds[:1]))


def _audit(job: Job, out: Path, *, repeat: Sequence[Path] = (), force: bool, json: bool, quiet: bool) -> None:
    warn_insecure(insecure_reasons(job))
    from labelward.auditing.audit import audit as run_audit

    try:
        with ProgressDisplay("starting", quiet=quiet) as board:
            rows = run_audit(job, out, force=force, watch=board, repeat=repeat)
        page = _written(out)
    except KeyboardInterrupt:
        from labelward.runs.schema import RESULTS_FILE

        if not (out / RESULTS_FILE).exists():
            fail("no run was finished yet; the same command begins again", 2, "interrupted")
        fail(f"what is finished stays in {out}; the same command goes on with the rest", 2, "interrupted")
    if json:
        print_json(as_json(out, page, rows))
        return
    print_summary(rows, job.leakage.budget)
    if page is not None:
        typer.echo(f"report: {page}")


def _written(out: Path) -> Path | None:
    from labelward.report.page import write_report

    return skip_without_dependency(partial(write_report, out, warn=warn), out)


def skip_without_dependency(write: Callable[[], Path], out: Path) -> Path | None:
    """Write a report; without its libraries, say what is missing: the figures are there all the same."""
    try:
        return write()
    except DependencyError as error:
        warn(f"no report: {error}; then: labelward report {out}")
        return None


def insecure_reasons(job: Job) -> list[str]:
    """Return why the job protects nothing, in the words that its views will hold; empty for a secure one."""
    if not job.encryption.insecure:
        return []
    from dataclasses import replace

    from labelward.federation.components import make_engine

    engine = make_engine(replace(job.encryption, workers=1))
    try:
        reason = engine.insecure_reason(job.encryption.bits)
    finally:
        engine.close()
    return [reason] if reason else []
