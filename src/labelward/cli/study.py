"""``labelward study``: tables and figures of a paper, run again and compared with what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from labelward.cli._errors import fail
from labelward.cli._options import Quiet, refuse_unread
from labelward.cli._output import print_table, say, warn
from labelward.cli._progress import ProgressDisplay
from labelward.errors import DependencyError, InputError, whole_interrupts

if TYPE_CHECKING:
    from labelward.report.study import StudyReport
    from labelward.studies.run import StudyResult

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the study; without it, all are listed.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; an unfinished study in it is resumed.")]
Parts = Annotated[list[str] | None, typer.Option("--part", help="A part by its name; repeatable.")]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="N|NAME=FILE",
        help='A table of the paper: short for --part "table N". Or a file with a column label that holds a dataset of '
        "the paper; repeatable.",
    ),
]
Figures = Annotated[
    list[int] | None, typer.Option("--figure", help='A figure: short for --part "figure N"; repeatable.')
]
Appendix = Annotated[bool, typer.Option("--appendix", help="The parts of the paper's appendix.")]
Datasets = Annotated[list[str] | None, typer.Option("--datasets", help="Names, separated by commas. Default: all.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of seeds. Default: as many as in the paper.")]
Jobs = Annotated[int, typer.Option(min=1, help="Number of trainings that run in parallel.")]
Budget = Annotated[
    Literal["small", "paper"],
    typer.Option(
        help="Size: small fits two cores; paper has its networks and epochs, which need an accelerator, or its 800 "
        "evaluations for each search.",
    ),
]


def study(
    context: typer.Context,
    name: Name = None,
    out: Out = None,
    part: Parts = None,
    table: Tables = None,
    figure: Figures = None,
    appendix: Appendix = False,
    datasets: Datasets = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    budget: Budget = "small",
    quiet: Quiet = False,
) -> None:
    """Run tables and figures of a paper again, and compare them with the printed ones.

    Without NAME, list the studies and their parts.

    Without --part, --table, --figure and --appendix, run all parts but those on request.
    """
    from labelward.studies import find_study
    from labelward.studies.run import run_study

    if name is None and out is None:
        unread = ("part", "table", "figure", "appendix", "datasets", "seeds", "jobs", "budget", "quiet")
        refuse_unread(context, unread, "needs the NAME of a study; without it, all are listed")
        _list_studies()
        return
    if name is None or out is None:
        field, reason = ("NAME", "names the study") if name is None else ("--out", "is the folder for the results")
        raise InputError(f"must be given; it {reason}", code="missing", field=field)
    selected = find_study(name)
    numbers, files = _tables(table or ())
    parts = [*(part or ()), *(f"table {each}" for each in numbers), *(f"figure {each}" for each in figure or ())]
    if appendix:
        parts += [each.name for each in selected.parts if each.appendix] or ["appendix"]
    if budget == "paper":
        if selected.full is None:
            reason = f"has one size only in study {name!r}; remove it"
            raise InputError(reason, code="unsupported", field="--budget", value=name)
        selected = selected.full
    names = [each.strip() for group in datasets or () for each in group.split(",") if each.strip()]
    try:
        with whole_interrupts(), ProgressDisplay("starting", quiet=quiet) as board:
            result = run_study(
                selected, out, parts=parts, datasets=names, tables=files, seeds=seeds, jobs=jobs, watch=board
            )
    except KeyboardInterrupt:
        fail(f"finished trainings remain in {out}; run the same command again to resume", 2, "interrupted")
    _report(result, out)


def _tables(given: Sequence[str]) -> tuple[list[int], dict[str, Path]]:
    """Return the numbers of tables, and files by dataset."""
    numbers, files = [], dict[str, Path]()
    for each in given:
        name, equals, file = each.partition("=")
        if equals and name and file:
            if name in files:
                raise InputError(f"{name!r} is given twice", code="duplicate", field="--table", value=name)
            files[name] = Path(file)
        elif each.isdecimal():
            numbers.append(int(each))
        else:
            raise InputError("must be a number or NAME=FILE", code="type", field="--table", value=each)
    return numbers, files


def _list_studies() -> None:
    from labelward.studies import load_studies

    for each in load_studies().values():
        typer.echo(f"{each.name}: {each.title}")
        # names of parts hold commas; those of datasets are given with commas between them
        for what, named, between in (("parts", each.parts, "; "), ("datasets", each.datasets, ", ")):
            for kind, on_request in (("", False), (" on request", True)):
                names = between.join(one.name for one in named if one.on_request is on_request)
                if names:
                    typer.echo(f"    {what}{kind}: {names}")


def _report(result: StudyResult, out: Path) -> None:
    """Print the figures, write the page, and end with exit code 2 if anything failed."""
    from labelward.report.study import StudyReport, write_study

    for title, reason in result.missing.items():
        warn(f"{title} is missing: {reason}")
    for dataset in result.datasets:
        if dataset.substitute:
            warn(f"{dataset.name} is a substitute for {dataset.title}: {dataset.substitute}")
    try:
        report = StudyReport(result, out)
        _print(report)
        typer.echo(f"page: {write_study(report, out)}")
    except DependencyError as error:
        warn(f"no page: {error}")
    if not result.jobs:
        fail("none of the requested datasets is present; nothing ran", 2)
    for path, reason in result.failed.items():
        warn(f"{path}: {reason}")
    if result.failed:
        failed = f"{len(result.failed)} of {len(result.jobs)} trainings failed"
        fail(f"{failed}; run the same command again to retry", 2)


def _print(report: StudyReport) -> None:
    marks = {True: "yes", False: "no", None: ""}
    rows = [
        (part, row, column, cell.ours, cell.paper, cell.reference, cell.within, marks[cell.met])
        for part, row, column, cell in report.cells()
    ]
    if rows:
        header = ("part", "of", "figure", "ours", "paper", "reference", "judged by", "met")
        print_table("", header, rows, words=3)
    for section in report.sections:
        for sentence in section.verdicts:
            say(sentence)
    for sentence in report.diverged:
        say(sentence)
    say(report.verdict())
