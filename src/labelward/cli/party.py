"""``labelward party``: one party of a run between companies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from labelward.cli._errors import MAX_SEED, check_output_file, fail, prefix_job_file
from labelward.cli._options import Repeat, refuse_overwriting, refuse_unread
from labelward.cli._output import pluralize, warn
from labelward.cli._run_log import RunLog
from labelward.errors import InputError, whole_interrupts
from labelward.job.table_formats import PREDICTION_SUFFIXES

if TYPE_CHECKING:
    from labelward.federation.early_notice import Purpose
    from labelward.federation.party_run import Join
    from labelward.job import Job
    from labelward.runs.party_record import PartyRecord


def party_command(
    context: typer.Context,
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file with a network section.")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="This party's name in the job.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for this party's view, model share and checkpoints. Default: JOB-NAME next to the job file."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_SEED, help="The same for all parties. Default: the first seed of the job."),
    ] = None,
    defense: Annotated[
        str | None, typer.Option(help="Variant of which this party's defenses apply, if the job has several.")
    ] = None,
    repeat: Repeat = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Delete an earlier run in the folder; with --to, overwrite the output file and no run."
        ),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Begin the run in the folder anew: forget this party's progress, but not what its defenses drew.",
        ),
    ] = False,
    aligned: Annotated[
        Path | None,
        typer.Option(
            "--align", metavar="TABLE", help="Before training: write the rows of this table whose ids all parties have."
        ),
    ] = None,
    most_ids: Annotated[
        int, typer.Option(min=1, help="With --align: refuse a party that brings more ids.")
    ] = 10_000_000,
    rows: Annotated[
        Path | None,
        typer.Option("--predict", metavar="TABLE", help="Predict new rows of this party with the trained model."),
    ] = None,
    explained: Annotated[
        Path | None,
        typer.Option("--explain", metavar="TABLE", help="Explain rows of this party with the trained model."),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE",
            help="With --explain: this party's rows that are compared with. Default: the explained rows.",
        ),
    ] = None,
    background_rows: Annotated[
        int, typer.Option(min=1, help="With --explain: as in labelward explain rows, the same for all parties.")
    ] = 100,
    export: Annotated[
        bool, typer.Option("--export", help="Join the trained model, if the job file of every party consents.")
    ] = False,
    result: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="Output file: with --align at every party (.parquet); with --predict, --explain or --export, active "
            "party only (.parquet, .csv, .jsonl; .parquet; .json).",
        ),
    ] = None,
    mode: Annotated[
        Literal["one-round", "levels"], typer.Option(help="With --predict, active party only: as in labelward predict.")
    ] = "one-round",
    json_log: Annotated[
        bool, typer.Option("--json", help="Print JSON lines on stderr, as in log.jsonl, instead of sentences.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on stderr.")] = False,
) -> None:
    """Take part in alignment, training, prediction or explanation as one party; run it again to resume."""
    from labelward.cli.audit import insecure_settings
    from labelward.federation.early_notice import EarlyNotice
    from labelward.job import load_job
    from labelward.runs.directory import PARTY_LOG

    folder = out or job_file.with_name(f"{job_file.stem}-{name}")
    purpose = _purpose(aligned, rows, explained, export=export)
    _check_options(context, purpose)
    if purpose != "train" and result is None:
        refuse_unread(context, ("force",), "needs --to; add it")
    if purpose == "align" and result is None:
        raise InputError("--align needs it: the file for the common rows", code="missing", field="--to")
    with RunLog(folder / PARTY_LOG, json_lines=json_log, quiet=quiet) as log, _log_end(log), prefix_job_file(job_file):
        notice = EarlyNotice(job_file=job_file, party=name, purpose=purpose, folder=folder, log=log)
        with notice.until_joined() as join:
            job = load_job(job_file)
            if result is not None:
                check_output_file(result, force=force, ending=_ENDINGS[purpose])
            reasons = insecure_settings(job) if purpose == "train" else []
            if reasons and not json_log:  # the first JSON line says so, too
                typer.echo(f"INSECURE: {', '.join(reasons)}; do not use this setting between companies", err=True)
            if aligned is not None and result is not None:
                _align(job, name, (aligned, result), most_ids, log, join)
                return
            if rows is not None:
                _predict(job, name, folder, (rows, result), mode, log, join)
                return
            if explained is not None:
                _explain(job, name, folder, (explained, background, result), background_rows, log, join)
                return
            if export:
                _export(job, name, folder, result, log, join)
                return
            chosen, own = job.run.seeds[0] if seed is None else seed, tuple(repeat or ())
            _train(job, name, folder, log, join, seed=chosen, variant=defense, repeat=own, force=force, restart=restart)


_OF_PURPOSE: dict[str, tuple[Purpose, ...]] = {
    "seed": ("train",),
    "defense": ("train",),
    "repeat": ("train",),
    "restart": ("train",),
    "most_ids": ("align",),
    "mode": ("predict",),
    "background": ("explain",),
    "background_rows": ("explain",),
    "result": ("align", "predict", "explain", "export"),
}
"""What reads the options that not everything reads."""
_ENDINGS: dict[str, str | tuple[str, ...]] = {
    "train": "",
    "align": ".parquet",
    "predict": PREDICTION_SUFFIXES,
    "explain": ".parquet",
    "export": ".json",
}


def _purpose(aligned: Path | None, rows: Path | None, explained: Path | None, *, export: bool) -> Purpose:
    """Return what is asked for; :class:`~labelward.errors.InputError` for two things at once."""
    chosen: list[Purpose] = []
    if aligned is not None:
        chosen.append("align")
    if rows is not None:
        chosen.append("predict")
    if explained is not None:
        chosen.append("explain")
    if export:
        chosen.append("export")
    if len(chosen) > 1:
        raise InputError(
            f"give one of {' and '.join(f'--{each}' for each in chosen)}", code="conflict", value=tuple(chosen)
        )
    return chosen[0] if chosen else "train"


def _check_options(context: typer.Context, purpose: Purpose) -> None:
    """Refuse options that what is asked for does not read."""
    for name, takers in _OF_PURPOSE.items():
        if purpose not in takers:
            needed = " or ".join(f"--{each}" for each in takers)
            reason = "is for training; leave it out" if takers == ("train",) else f"needs {needed}; add it"
            refuse_unread(context, (name,), reason)


def _align(job: Job, name: str, tables: tuple[Path, Path], most: int, log: RunLog, join: Join) -> None:
    """Write those rows of the first table that all parties have to the second one."""
    from labelward.federation.party_alignment import align_as_party

    table, out = tables
    refuse_overwriting(out, (table,), "--to")
    common, of = align_as_party(job, name, table, out, join=join, log=log, progress=log.progress, most=most, warn=warn)
    typer.echo(f"wrote {out}: {common} of {pluralize(of, 'row')} are at all parties")


def _predict(
    job: Job,
    name: str,
    folder: Path,
    tables: tuple[Path, Path | None],
    mode: Literal["one-round", "levels"],
    log: RunLog,
    join: Join,
) -> None:
    """Predict the rows of the first table; the active party writes the second one."""
    from labelward.federation.party_prediction import predict_as_party

    rows, out = tables
    refuse_overwriting(out, (rows,), "--to")
    number = predict_as_party(job, name, folder, rows, out, join=join, log=log, mode=mode, warn=warn)
    typer.echo(f"predicted {pluralize(number, 'row')}" if out is None else f"wrote {out}")


def _explain(
    job: Job,
    name: str,
    folder: Path,
    tables: tuple[Path, Path | None, Path | None],
    most: int,
    log: RunLog,
    join: Join,
) -> None:
    """Explain the rows of the first table beside those of the second; the active party writes the third one."""
    from labelward.federation.party_explanation import explain_as_party

    rows, background, out = tables
    refuse_overwriting(out, (rows, background), "--to")
    number = explain_as_party(
        job, name, folder, rows, out, background=background, most=most, join=join, log=log, warn=warn
    )
    typer.echo(f"explained {pluralize(number, 'row')}" if out is None else f"wrote {out}")


def _export(job: Job, name: str, folder: Path, out: Path | None, log: RunLog, join: Join) -> None:
    """Join the model; the active party writes it."""
    from labelward.federation.party_explanation import export_as_party

    export_as_party(job, name, folder, out, join=join, log=log)
    typer.echo("sent this party's splits" if out is None else f"wrote {out}")


def _train(
    job: Job,
    name: str,
    folder: Path,
    log: RunLog,
    join: Join,
    *,
    seed: int,
    variant: str | None,
    repeat: tuple[Path, ...],
    force: bool,
    restart: bool,
) -> None:
    """Take part in training and print the results."""
    from labelward.cli.audit import skip_without_dependency
    from labelward.federation.party_training import train_as_party
    from labelward.report.party_page import write_party_report

    record = train_as_party(
        job,
        name,
        folder,
        seed=seed,
        join=join,
        variant=variant,
        repeat=repeat,
        force=force,
        restart=restart,
        log=log,
        progress=log.progress,
    )
    log.flush()
    _print_record(record)
    page = skip_without_dependency(partial(write_party_report, folder), folder)
    typer.echo(f"wrote {folder}{'' if page is None else f', with {page.name}'}")


@contextlib.contextmanager
def _log_end(log: RunLog) -> Iterator[None]:
    """Log an interrupt or error that ends the run."""
    try:
        with whole_interrupts():
            yield
    except KeyboardInterrupt:
        log("interrupted", {})
        log.flush()
        fail("the other parties were notified; run the same command again to resume", 2, "interrupted")
    except Exception as error:
        log.failed(error)
        raise


def _print_record(record: PartyRecord) -> None:
    """Print utility and protection of a finished run."""
    from labelward.report.metrics import format_metric

    for metric, value in record.utility.items():
        typer.echo(f"{metric}  {'-' if value is None else format_metric(metric, value, digits=4)}")
    key = record.key
    sized = f", {key.bits} bits" if key.bits else ""
    typer.echo(f"encryption  {key.engine}{sized}{f', kernel {key.kernel}' if key.kernel else ''}")
    if key.fingerprint:
        typer.echo(f"key  {key.fingerprint}")
    for peer, details in record.peers.items():
        link = f", {details.tls}" if details.tls else ""
        sealed = ", end-to-end encrypted" if details.sealed else ""
        typer.echo(f"peer {peer}  certificate {details.fingerprint[:16]}{link}{sealed}")
