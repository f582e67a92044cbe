"""``labelward study``: a paper's tables and figures, run and set beside what the paper prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import fail
from labelward.cli._output import print_table, warn
from labelward.cli._progress import ProgressDisplay
from labelward.errors import DependencyError

if TYPE_CHECKING:
    from labelward.evaluate.studies.plan import Study
    from labelward.report.study import StudyReport

__all__ = ["study"]

study = typer.Typer(
    help="Run the tables and figures of a paper, and set ours beside them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path, typer.Option(help="The folder for results; an unfinished study goes on there.")]
Tables = Annotated[list[int] | None, typer.Option("--table", help="A table of the paper; may be given several times.")]
Numbers = Annotated[list[int] | None, typer.Option("--figure", help="A figure of it; may be given several times.")]
Datasets = Annotated[
    list[str] | None, typer.Option("--datasets", help="Names with commas between; all that are here, if left out.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="How many; as many as the paper has, if left out.")]
Jobs = Annotated[int, typer.Option(min=1, help="How many trainings run at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


@study.command()
def id2graph(
    out: Out,
    table: Tables = None,
    figure: Numbers = None,
    datasets: Datasets = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    quiet: Quiet = False,
) -> None:
    """The ID2Graph paper: Tables 2 and 3, Figures 5 to 10; all of them where none is named."""
    from labelward.evaluate.studies.id2graph import ID2GRAPH

    _study(ID2GRAPH, out, _parts(table, figure), datasets, seeds, jobs, quiet)


@study.command()
def ica(
    out: Out,
    figure: Numbers = None,
    datasets: Datasets = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    quiet: Quiet = False,
) -> None:
    """Instance clustering of the CMOSB paper: Figures 3 and 5; both where none is named."""
    from labelward.evaluate.studies.ica import ICA

    _study(ICA, out, _parts(None, figure), datasets, seeds, jobs, quiet)


@study.command()
def label_inference(
    out: Out,
    table: Tables = None,
    figure: Numbers = None,
    appendix: Annotated[bool, typer.Option("--appendix", help="Appendix E, breast cancer, both steps.")] = False,
    datasets: Datasets = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    full: Annotated[bool, typer.Option("--full", help="The paper's networks; needs an accelerator.")] = False,
    quiet: Quiet = False,
) -> None:
    """Label inference on split networks: Tables 2 to 4, 6, Figures 2, 3, 5, Appendix E; without names what is quick."""
    from labelward.evaluate.studies.label_inference import LABEL_INFERENCE, LABEL_INFERENCE_FULL

    chosen = LABEL_INFERENCE_FULL if full else LABEL_INFERENCE
    parts = _parts(table, figure) + (["appendix e", "second step"] if appendix else [])
    _study(chosen, out, parts, datasets, seeds, jobs, quiet)


@study.command()
def options(
    out: Out,
    datasets: Datasets = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    quiet: Quiet = False,
) -> None:
    """ID2Graph's options, which its paper leaves to future work, beside the attack as it is printed."""
    from labelward.evaluate.studies.options import OPTIONS

    _study(OPTIONS, out, [], datasets, seeds, jobs, quiet)


def _parts(tables: list[int] | None, figures: list[int] | None) -> list[str]:
    return [f"table {each}" for each in tables or ()] + [f"figure {each}" for each in figures or ()]


def _study(
    chosen: Study,
    out: Path,
    parts: list[str],
    datasets: list[str] | None,
    seeds: int | None,
    jobs: int,
    quiet: bool,
) -> None:
    from labelward.evaluate.studies.run import run_study
    from labelward.report.study import StudyReport

    names = [name.strip() for each in datasets or () for name in each.split(",") if name.strip()]
    try:
        with ProgressDisplay("starting", quiet=quiet) as board:
            outcome = run_study(chosen, out, parts=parts, datasets=names, seeds=seeds, jobs=jobs, watch=board)
    except KeyboardInterrupt:
        fail(f"what is finished stays in {out}; the same command goes on with the rest", 2, "interrupted")
    for title, reason in outcome.missing.items():
        warn(f"{title} is missing: {reason}")
    for table in outcome.tables:
        if table.substitute:
            warn(f"{table.name} is a substitute for {table.title}: {table.substitute}")
    try:
        report = StudyReport(outcome, out)
        _print(report)
        _write(report, out)
    except DependencyError as error:
        warn(f"no page: {error}")
    if not outcome.jobs:
        fail("none of the data sets that were asked for is at hand: nothing was run", 2)
    if outcome.failed:
        for path, reason in outcome.failed.items():
            warn(f"{path}: {reason}")
        fail(
            f"{len(outcome.failed)} of {len(outcome.jobs)} trainings did not end; the same command tries them again", 2
        )


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
            typer.echo(sentence)
    typer.echo(report.verdict())


def _write(report: StudyReport, out: Path) -> None:
    from labelward.report.study import write_study

    typer.echo(f"page: {write_study(report, out)}")
