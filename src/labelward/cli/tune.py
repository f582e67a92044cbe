"""``labelward tune``: the settings that no other setting beats in utility, cost and leakage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import fail, prefix_job_file
from labelward.cli._options import Quiet, Repeat
from labelward.cli._output import print_json, print_table, warn
from labelward.cli._progress import ProgressDisplay
from labelward.cli.audit import skip_without_dependency
from labelward.errors import whole_interrupts

if TYPE_CHECKING:
    from labelward.job import TuneSection
    from labelward.tuning.tune import TuneResult


def tune_command(
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.toml", help="Job file: what to train, attack and vary (section tune).")
    ],
    out: Annotated[Path, typer.Option(help="Folder for results; an unfinished search of the same job is resumed.")],
    jobs: Annotated[int, typer.Option(min=1, help="Number of trainings that run in parallel.")] = 1,
    repeat: Repeat = None,
    force: Annotated[bool, typer.Option("--force", help="Delete an earlier search in the folder.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    quiet: Quiet = False,
) -> None:
    """Search the settings of a job for those that no other beats in utility, cost and leakage."""
    from labelward.job import TuneSection, load_job
    from labelward.tuning.tune import tune

    try:
        with whole_interrupts(), prefix_job_file(job_file), ProgressDisplay("starting", quiet=quiet) as progress:
            job = load_job(job_file)
            result = tune(job, out=out, jobs=jobs, force=force, watch=progress, repeat=repeat or ())
    except KeyboardInterrupt:
        fail(f"finished trainings are kept in {out}; run the same command again to resume", 2, "interrupted")
    from labelward.report.tune_page import write_tune_page

    page = skip_without_dependency(partial(write_tune_page, out), out)
    if json:
        _print_json(result, out, page)
        return
    _print(result, job.tune or TuneSection())
    if page is not None:
        typer.echo(f"page: {page}")


def _print_json(result: TuneResult, out: Path, page: Path | None) -> None:
    import msgspec

    print_json(
        {
            "folder": str(out),
            "page": None if page is None else str(page),
            "objectives": list(result.record.objectives),
            "front": msgspec.to_builtins(result.front),
        }
    )


def _print(result: TuneResult, section: TuneSection) -> None:
    from labelward.report.tune_page import objective_title, setting_text, spread_of

    names = result.record.objectives
    failed = sum(each.status == "failed" for each in result.evaluations)
    refused = sum(each.status == "refused" for each in result.evaluations)
    lines = [
        (str(point.number), setting_text(point.setting), *(spread_of(point, at) for at in range(len(names))))
        for point in result.front
    ]
    print_table("", ("setting", "values", *(objective_title(name, section.cost) for name in names)), lines, words=2)
    if failed or refused:
        warn(f"{refused} settings were refused and {failed} trainings failed; evaluations.jsonl.gz has the reasons")
    if any(not point.feasible for point in result.front):
        warn("no setting meets the constraints; shown are those nearest to them")
