"""``labelward audit``, ``labelward demo``, ``labelward report`` and ``labelward compare``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import check_output_file, fail, prefix_job_file
from labelward.cli._options import Quiet, Repeat
from labelward.cli._output import print_json, print_table, say, warn, warn_insecure
from labelward.cli._progress import ProgressDisplay
from labelward.cli._summary import as_json, print_summary
from labelward.errors import DependencyError, whole_interrupts

if TYPE_CHECKING:
    from labelward.job import Job

DEMO_JOB = "quickstart.toml"

Force = Annotated[bool, typer.Option("--force", help="Delete an earlier audit in the folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def audit_command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file: what to train, defend and attack.")],
    out: Annotated[Path, typer.Option(help="Folder for results; an earlier audit there goes on, and may grow.")],
    repeat: Repeat = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model, attack the view of each passive party, compare defenses, and write a report."""
    from labelward.job import load_job

    with prefix_job_file(job_file):
        _audit(load_job(job_file), out, repeat=repeat or (), force=force, json=json, quiet=quiet)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("demo"),
    small: Annotated[bool, typer.Option("--small", help="One seed, few trees; at most one minute.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an example audit on real data with real encryption."""
    _audit(demo_job(small=small), out, force=force, json=json, quiet=quiet)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of an audit, of a party's run, or of a search.")
    ],
) -> None:
    """Write the report of an audit, of a party's run, or of a search, from its stored results."""
    from labelward.report.page import write_report
    from labelward.report.party_page import is_party_run, write_party_report
    from labelward.report.tune_page import write_tune_page
    from labelward.tuning.ledger import is_search

    if is_search(folder):
        typer.echo(str(write_tune_page(folder)))
        return
    typer.echo(str(write_party_report(folder) if is_party_run(folder) else write_report(folder, warn=warn)))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="AUDIT...", help="Output folders of two audits or more.")],
    out: Annotated[Path | None, typer.Option(help="Output file for a page (.html).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the page.")] = False,
) -> None:
    """Compare audits: what differs between their jobs, and their utility, leakage and cost side by side."""
    if out is not None:
        check_output_file(out, force=force, ending=".html")
    from labelward.report.comparison import compare_audits, write_comparison

    comparison = compare_audits(folders)
    say(comparison.title)
    for table in comparison.tables:
        print_table(table.caption, table.header, table.rows, words=table.words)
    if out is not None:
        typer.echo(f"wrote {write_comparison(comparison, out)}")


def demo_text() -> str:
    """Return the job file of the demo, identical to ``examples/quickstart.toml``."""
    return (resources.files("labelward.cli") / DEMO_JOB).read_text(encoding="utf-8")


def demo_job(*, small: bool) -> Job:
    """Return the job of the demo; if ``small``, with the first defense, one seed and small trees only."""
    from dataclasses import replace

    from labelward.job import ComponentSpec, parse_job

    job = parse_job(demo_text(), DEMO_JOB)
    if not small:
        return job
    model = ComponentSpec(job.model.kind, {**job.model.params, "trees": 2, "depth": 3})
    return replace(job, model=model, defenses=job.defenses[:1], run=replace(job.run, seeds=job.run.seeds[:1]))


def _audit(job: Job, out: Path, *, repeat: Sequence[Path] = (), force: bool, json: bool, quiet: bool) -> None:
    warn_insecure(insecure_settings(job), ahead=True)
    warn_of_model(job)
    from labelward.auditing.audit import audit as run_audit
    from labelward.report.load import read_audit

    try:
        with whole_interrupts(), ProgressDisplay("starting", quiet=quiet) as progress:
            rows = run_audit(job, out, force=force, watch=progress, repeat=repeat)
        page = _write_page(out)
    except KeyboardInterrupt:
        from labelward.runs.schema import RESULTS_FILE

        if not (out / RESULTS_FILE).exists():
            fail("no run was finished; run the same command to start again", 2, "interrupted")
        fail(f"finished results are kept in {out}; run the same command again to resume", 2, "interrupted")
    if json:
        print_json(as_json(out, page, rows))
        return
    stored = read_audit(out)
    print_summary(rows, stored)
    if page is not None:
        typer.echo(f"report: {page}")


def _write_page(out: Path) -> Path | None:
    from labelward.report.page import write_report

    return skip_without_dependency(partial(write_report, out, warn=warn), out)


def skip_without_dependency(write: Callable[[], Path], out: Path) -> Path | None:
    """Write a report; warn if its optional libraries are missing, as the results are stored anyway."""
    try:
        return write()
    except DependencyError as error:
        warn(f"no report: {error}; then run: labelward report {out}")
        return None


def warn_of_model(job: Job) -> None:
    """Print what the model's family has to say of a run with the job's parties."""
    from labelward.federation.components import model_family

    if remark := model_family(job.model).remark([party.name for party in job.parties]):
        warn(remark)


def insecure_settings(job: Job) -> list[str]:
    """Return the reasons why a job is insecure, as its views will state them; empty for a secure job."""
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
