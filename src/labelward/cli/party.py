"""``labelward party``: one party of a run between companies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from labelward.cli._errors import LARGEST_SEED, check_output_file, fail, prefix_job_file
from labelward.cli._options import Repeat
from labelward.cli._output import pluralize, warn
from labelward.cli._run_log import RunLog

if TYPE_CHECKING:
    from labelward.job import Job
    from labelward.runs.party_record import PartyRecord

__all__ = ["party_command"]


def party_command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="What to train, with its section network.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Which party of the job this is.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for this party's view, share and checkpoints; JOB-NAME beside the job file."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="The same at all parties; the job's first.")
    ] = None,
    defense: Annotated[
        str | None, typer.Option(help="Which variant to apply this party's defenses of, where it has several.")
    ] = None,
    repeat: Repeat = None,
    force: Annotated[bool, typer.Option("--force", help="Throw away what another run left there.")] = False,
    rows: Annotated[
        Path | None,
        typer.Option("--predict", metavar="TABLE", help="Predict this party's new rows with the model that is there."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option("--to", help="With --predict, at the active party: where they go (.parquet).")
    ] = None,
    mode: Annotated[
        Literal["one-round", "levels"],
        typer.Option(help="With --predict, at the active party; as in labelward predict."),
    ] = "one-round",
    json_log: Annotated[
        bool, typer.Option("--json", help="JSON lines on stderr, as in log.jsonl, in place of sentences.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Take part in a training, or in a prediction, as one party; the same command goes on where it was cut off."""
    from labelward.cli.audit import insecure_reasons
    from labelward.job import load_job
    from labelward.runs.directory import PARTY_LOG

    job = load_job(job_file)
    folder = out or job_file.with_name(f"{job_file.stem}-{name}")
    if predictions is not None:
        check_output_file(predictions, force=force, ending=".parquet")
    reasons = insecure_reasons(job) if rows is None else []
    if reasons and not json_log:  # whose first line tells it as well
        typer.echo(f"INSECURE: {', '.join(reasons)}; this run protects nothing", err=True)
    with (
        RunLog(folder / PARTY_LOG, json_lines=json_log, quiet=quiet) as journal,
        _ending(journal),
        prefix_job_file(job_file),
    ):
        if rows is not None:
            _predict(job, name, folder, (rows, predictions), mode, journal)
            return
        chosen = job.run.seeds[0] if seed is None else seed
        again = tuple(repeat or ())
        _train(job, name, folder, journal, seed=chosen, variant=defense, repeat=again, force=force)


def _predict(
    job: Job,
    name: str,
    folder: Path,
    tables: tuple[Path, Path | None],
    mode: Literal["one-round", "levels"],
    journal: RunLog,
) -> None:
    """Predict the rows of the first table; the active party writes the second."""
    from labelward.federation.connect import connect
    from labelward.federation.party_prediction import predict_as_party

    rows, out = tables
    number = predict_as_party(job, name, folder, rows, out, join=connect, log=journal, mode=mode, warn=warn)
    typer.echo(f"predicted {pluralize(number, 'row')}" if out is None else f"wrote {out}")


def _train(
    job: Job,
    name: str,
    folder: Path,
    journal: RunLog,
    *,
    seed: int,
    variant: str | None,
    repeat: tuple[Path, ...],
    force: bool,
) -> None:
    """Take part in the training, and say what it came to."""
    from labelward.cli.audit import skip_without_dependency
    from labelward.federation.connect import connect
    from labelward.federation.party_training import train_as_party
    from labelward.report.party_page import write_party_report

    record = train_as_party(
        job,
        name,
        folder,
        seed=seed,
        join=connect,
        variant=variant,
        repeat=repeat,
        force=force,
        log=journal,
        progress=journal.progress,
    )
    journal.rest()
    _tell(record)
    page = skip_without_dependency(partial(write_party_report, folder), folder)
    typer.echo(f"wrote {folder}{'' if page is None else f', with {page.name}'}")


@contextlib.contextmanager
def _ending(journal: RunLog) -> Iterator[None]:
    """Write down how a run ends that does not come to its end."""
    try:
        yield
    except KeyboardInterrupt:
        journal("interrupted", {})
        journal.rest()
        fail("the other parties are told; the same command goes on", 2, "interrupted")
    except Exception as error:
        journal.failed(error)
        raise


def _tell(record: PartyRecord) -> None:
    """Print what the run came to, and what protected it."""
    from labelward.report.metrics import figure

    for metric, value in record.utility.items():
        typer.echo(f"{metric}  {'-' if value is None else figure(metric, value, digits=4)}")
    key = record.key
    sized = f", {key.bits} bits" if key.bits else ""
    typer.echo(f"encryption  {key.engine}{sized}{f', kernel {key.kernel}' if key.kernel else ''}")
    if key.fingerprint:
        typer.echo(f"key  {key.fingerprint}")
    for peer, told in record.peers.items():
        link = f", {told.tls}" if told.tls else ""
        sealed = ", sealed end to end" if told.sealed else ""
        typer.echo(f"peer {peer}  certificate {told.fingerprint[:16]}{link}{sealed}")
