"""``labelward train`` and ``labelward predict``: one model, as shares of the parties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from labelward.cli._errors import LARGEST_SEED, check_output_file, fail, prefix_job_file
from labelward.cli._options import Repeat
from labelward.cli._output import pluralize, warn, warn_insecure
from labelward.cli._progress import ProgressDisplay
from labelward.cli._table_options import model_parties, resolve_tables

if TYPE_CHECKING:
    from labelward.federation.adapter import ValidationHistory

__all__ = ["predict_command", "train_command"]


def train_command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="What to train.")],
    out: Annotated[Path, typer.Option(help="The folder for the parties' views and model shares.")],
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LARGEST_SEED,
            help="One of the job's seeds, or any other; the first. With --continue the model's own.",
        ),
    ] = None,
    defense: Annotated[str | None, typer.Option(help="Which variant, where the job has several.")] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--continue", metavar="RUN_DIR", help="Grow the job's trees on top of this trained model."),
    ] = None,
    repeat: Repeat = None,
    force: Annotated[bool, typer.Option("--force", help="Throw away what an earlier training left there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Train one model; keep its test figures and each party's view and model share."""
    from labelward.cli.audit import insecure_reasons
    from labelward.federation.model_shares import trained_job
    from labelward.federation.train import train_variant as run_train
    from labelward.job import load_job
    from labelward.planning.cost_model import forecast

    job = load_job(job_file)
    if seed is None:
        seed = (job if earlier is None else trained_job(earlier)).run.seeds[0]
    warn_insecure(insecure_reasons(job))
    try:
        with ProgressDisplay("training", quiet=quiet) as board, prefix_job_file(job_file):
            done = run_train(
                job,
                out,
                seed=seed,
                variant=defense,
                force=force,
                watch=board,
                earlier=earlier,
                repeat=repeat or (),
                forecast=forecast,
            )
    except KeyboardInterrupt:
        begin = f"; begin again with --force, since {out} exists" if out.exists() else ""
        fail(f"no model was finished{begin}", 2, "interrupted")
    if done.watched is not None:
        typer.echo(_best_round(done.watched))
    from labelward.report.metrics import figure

    for name, value in done.utility.items():
        typer.echo(f"{name}  {figure(name, value, digits=4)}")
    typer.echo(f"wrote {out}")


def _best_round(watched: ValidationHistory) -> str:
    from labelward.report.metrics import figure

    reached = (
        f"{watched.metric} {figure(watched.metric, watched.values[watched.best], digits=4)} on the validation rows"
    )
    return f"best round  {watched.best + 1} of {len(watched.values)} ({reached})"


def predict_command(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="What labelward train wrote.")],
    out: Annotated[Path, typer.Option(help="Where the predictions go (.parquet).")],
    table: Annotated[Path | None, typer.Option(help="One table with all parties' columns.")] = None,
    party: Annotated[list[str] | None, typer.Option(help="One party's own table, as NAME=TABLE.")] = None,
    mode: Annotated[
        Literal["one-round", "levels"],
        typer.Option(help="levels: slower; the active party learns only the sides that a row's way needs."),
    ] = "one-round",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Predict new rows with all parties' shares of a model."""
    check_output_file(out, force=force, ending=".parquet")
    tables = resolve_tables(model_parties(run_dir), table, party or [])
    from labelward.federation.predict import predict_table as run_predict

    rows = run_predict(run_dir, tables, out, mode=mode, warn=warn)
    typer.echo(f"wrote {out}: {pluralize(rows, 'row')}")
