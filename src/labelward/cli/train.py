"""``labelward train`` and ``labelward predict``: training and prediction with all parties in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from labelward.cli._errors import MAX_SEED, check_output_file, fail, prefix_job_file
from labelward.cli._options import Force, Quiet, Repeat, model_parties, refuse_overwriting, resolve_tables
from labelward.cli._output import pluralize, warn, warn_insecure
from labelward.cli._progress import ProgressDisplay
from labelward.errors import whole_interrupts
from labelward.job.table_formats import PREDICTION_SUFFIXES

if TYPE_CHECKING:
    from labelward.protocols.family import ValidationHistory


def train_command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.")],
    out: Annotated[Path, typer.Option(help="Folder for the parties' views and model shares.")],
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_SEED,
            help="Any seed. Default: the first one of the job, or with --continue that of the model.",
        ),
    ] = None,
    defense: Annotated[str | None, typer.Option(help="Variant, if the job has several.")] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--continue", metavar="RUN_DIR", help="Warm start: add the job's trees to this trained model."),
    ] = None,
    repeat: Repeat = None,
    force: Annotated[bool, typer.Option("--force", help="Delete an earlier training run in the folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train one model; store its test metrics, and the view and model share of each party."""
    from labelward.cli.audit import insecure_settings, warn_of_model
    from labelward.federation.model_shares import default_seed
    from labelward.federation.train import train_variant as run_train
    from labelward.job import load_job
    from labelward.planning.cost_model import forecast

    job = load_job(job_file)
    if seed is None:
        seed = default_seed(job, earlier)
    warn_insecure(insecure_settings(job), ahead=True)
    with prefix_job_file(job_file):
        warn_of_model(job)
    try:
        with whole_interrupts(), ProgressDisplay("training", quiet=quiet) as progress, prefix_job_file(job_file):
            result = run_train(
                job,
                out,
                seed=seed,
                variant=defense,
                force=force,
                watch=progress,
                earlier=earlier,
                repeat=repeat or (),
                forecast=forecast,
            )
    except KeyboardInterrupt:
        hint = f"; use --force to start again in {out}" if out.exists() else ""
        fail(f"the model was not finished{hint}", 2, "interrupted")
    if result.key.chosen:
        from labelward.federation.engine_choice import choice_sentence

        typer.echo(choice_sentence(result.key.engine, result.key.chosen))
    if result.watched is not None:
        typer.echo(_best_round(result.watched))
    from labelward.report.metrics import format_metric

    for name, value in result.utility.items():
        typer.echo(f"{name}  {format_metric(name, value, digits=4)}")
    if result.remark:
        warn(result.remark)
    typer.echo(f"wrote {out}")


def _best_round(watched: ValidationHistory) -> str:
    from labelward.report.metrics import format_metric

    value = format_metric(watched.metric, watched.values[watched.best], digits=4)
    reached = f"{watched.metric} {value} on the validation rows"
    return f"best round  {watched.best + 1} of {len(watched.values)} ({reached})"


def predict_command(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Output folder of labelward train.")],
    out: Annotated[Path, typer.Option(help=f"Output file for the predictions ({', '.join(PREDICTION_SUFFIXES)}).")],
    table: Annotated[Path | None, typer.Option(help="Table with the columns of all parties.")] = None,
    party: Annotated[list[str] | None, typer.Option(help="A party's own table, as NAME=TABLE. Repeatable.")] = None,
    mode: Annotated[
        Literal["one-round", "levels"],
        typer.Option(
            help="one-round: fast. levels: slower, but the active party learns only the splits on each row's path."
        ),
    ] = "one-round",
    force: Force = False,
) -> None:
    """Predict new rows with the model shares of all parties."""
    check_output_file(out, force=force, ending=PREDICTION_SUFFIXES)
    tables = resolve_tables(model_parties(run_dir), table, party or [])
    refuse_overwriting(out, tables.values())
    from labelward.federation.predict import predict_table as run_predict

    rows = run_predict(run_dir, tables, out, mode=mode, warn=warn)
    typer.echo(f"wrote {out}: {pluralize(rows, 'row')}")
