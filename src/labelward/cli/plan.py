"""``labelward plan``: what a job will take, before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelward.cli._errors import MAX_SEED, prefix_job_file
from labelward.cli._output import print_json, print_table, warn_insecure
from labelward.errors import InputError

if TYPE_CHECKING:
    from labelward.evaluate.costs.estimate import Line
    from labelward.evaluate.costs.expected import Between
    from labelward.evaluate.plan import Plan

__all__ = ["plan"]

_UNITS = (
    ("encrypt", "encrypt a ciphertext"),
    ("prepare", "prepare a received ciphertext"),
    ("add", "add a row to a cell"),
    ("seal", "seal a sum"),
    ("decrypt", "decrypt a ciphertext"),
)


def plan(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="What would be trained.")],
    bandwidth: Annotated[float | None, typer.Option(help="Between companies: million bits a second, each way.")] = None,
    latency: Annotated[float | None, typer.Option(help="Between companies: milliseconds there and back.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="Of the run; the job's first.")] = None,
    defense: Annotated[str | None, typer.Option(help="Which variant; the undefended one.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows, where no table of the job is here.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="NAME=COUNT", help="Columns of a party whose data are elsewhere.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes of the label, where it is elsewhere (two); 0 for quantities.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object in place of the tables.")] = False,
) -> None:
    """Say what one training takes, before it begins: time by phase, bytes, memory, from operations measured here."""
    from labelward.cli.audit import insecure_settings
    from labelward.evaluate.costs.brought import Elsewhere
    from labelward.evaluate.plan import plan as make_plan
    from labelward.job import load_job

    line = _line(bandwidth, latency)
    elsewhere = Elsewhere(rows=rows, columns=_columns(columns or []), classes=classes)
    with prefix_job_file(job_file):
        job = load_job(job_file)
        warn_insecure(insecure_settings(job))
        found = make_plan(job, seed=seed, variant=defense, line=line, elsewhere=elsewhere)
    if json:
        print_json(_as_json(found))
    else:
        _print(found)


def _line(bandwidth: float | None, latency: float | None) -> Line | None:
    from labelward.evaluate.costs.estimate import Line

    if (bandwidth is None) != (latency is None):
        raise InputError("give both --bandwidth and --latency, or neither", code="conflict")
    return None if bandwidth is None or latency is None else Line(bandwidth=bandwidth, latency=latency)


def _columns(given: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in given:
        name, equals, count = one.partition("=")
        if not equals or not count.isdecimal() or len(count) > 6:
            raise InputError(
                f"must be NAME=COUNT, a count below 1,000,000, but got {one!r}",
                code="type",
                field="--columns",
                value=one,
            )
        if name in found:
            raise InputError(f"{name!r} is given twice", code="duplicate", field="--columns", value=name)
        found[name] = int(count)
    return found


def _as_json(found: Plan) -> dict[str, Any]:
    from dataclasses import asdict

    import msgspec

    told = {"dataset": found.dataset, "variant": found.variant, "parties": list(found.parties)}
    looked_at = {"rows": found.looked_at[0], "trees": found.looked_at[1]}
    return {
        **told,
        "rows": found.rows,
        "looked_at": looked_at,
        "generated": list(found.generated),
        "unit_costs": asdict(found.costs),
        "estimate": msgspec.to_builtins(found.estimate),
    }


def _print(found: Plan) -> None:
    from labelward.report.formatting import count, data_size, duration

    told, costs = found.estimate, found.costs
    phases = list(dict.fromkeys(phase for each in told.phases.values() for phase in each))
    lines = [(phase, *(_time(told.phases[name].get(phase)) for name in found.parties)) for phase in phases]
    lines += [
        ("all phases", *(duration(sum(told.phases[name].values())) for name in found.parties)),
        ("bytes sent", *(data_size(told.bytes[name]) for name in found.parties)),
        ("memory at the peak", *(data_size(told.memory[name]) for name in found.parties)),
    ]
    kernel = f"{costs.kernel}, " if costs.kernel else ""
    bits = f", {costs.bits} bits" if costs.bits else ""
    title = f"{found.dataset or 'data elsewhere'}, {count(found.rows)} training rows, {costs.engine}{bits}"
    print_table(title, ("phase", *found.parties), lines, words=1)
    units = [(what, _micro(getattr(costs, name))) for name, what in _UNITS]
    workers = "1 worker" if costs.workers == 1 else f"{costs.workers} workers"
    print_table(f"Measured here: {kernel}{workers}", ("operation", "µs"), units, words=1)
    for sentence in _sentences(found):
        typer.echo(sentence)


def _sentences(found: Plan) -> list[str]:
    from labelward.report.formatting import count, data_size, duration

    told = found.estimate
    rows, trees = found.looked_at
    shape = f"The first {'tree' if trees == 1 else f'{count(trees)} trees'}, grown in the open on {count(rows)} rows"
    sentences = [
        f"In one process, where phases add up: {duration(told.seconds)}, {data_size(sum(told.bytes.values()))} in "
        f"{count(told.messages)} messages; {count(told.encryptions)} encryptions, {count(told.additions)} additions, "
        f"{count(told.decryptions)} decryptions.",
        f"{shape}, stand for all others.",
    ]
    if found.generated:
        made = ", ".join(found.generated)
        sentences.append(f"The data of {made} are elsewhere: made-up columns stand for them, so the trees are others.")
    if found.refusing:
        sentences.append("What the defense refuses while trees grow is not counted: with it the run may be shorter.")
    if told.between is not None:
        sentences += _apart(told.between)
    return sentences


def _apart(between: Between) -> list[str]:
    from labelward.report.formatting import count, duration

    own = ", ".join(f"{name} {duration(seconds)}" for name, seconds in between.own.items())
    return [
        f"Between companies, each on a machine like this one, at {between.bandwidth:g} Mbit/s and "
        f"{between.latency:g} ms: {duration(between.seconds)}; own work: {own}; bytes on the line "
        f"{duration(between.line)}, {count(between.turns)} round trips {duration(between.waiting)}.",
        "Encrypted rows travel while further ones are made (overlapped); sums and answers are waited for.",
    ]


def _time(seconds: float | None) -> str:
    from labelward.report.formatting import duration

    return "–" if seconds is None else duration(seconds)


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.3g}"
