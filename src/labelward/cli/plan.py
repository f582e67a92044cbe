"""``labelward plan``: the costs of a training before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelward.cli._errors import MAX_SEED, prefix_job_file
from labelward.cli._output import print_json, print_table, say, warn_insecure
from labelward.errors import InputError

if TYPE_CHECKING:
    from labelward.planning.cost_estimate import CostEstimate
    from labelward.planning.estimate import NetworkLink
    from labelward.planning.logistic_cost import LogisticCost
    from labelward.planning.net_traffic import NetTraffic
    from labelward.runs.estimate import DeploymentEstimate

SPLIT_NETWORK = "splitnn"
"""The model of which bytes are told, in place of operations."""
LOGISTIC = "logistic"
"""The model of which some batches are trained."""

_UNITS = (
    ("encrypt", "encrypt a ciphertext"),
    ("prepare", "prepare a received ciphertext"),
    ("add", "add a row to a cell"),
    ("seal", "seal a sum"),
    ("decrypt", "decrypt a ciphertext"),
)


def plan(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job to estimate.")],
    bandwidth: Annotated[
        float | None, typer.Option(help="Between companies: million bits per second, each way.")
    ] = None,
    latency: Annotated[float | None, typer.Option(help="Between companies: round-trip time in milliseconds.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MAX_SEED, help="Seed of the run; default: the job's first.")
    ] = None,
    defense: Annotated[str | None, typer.Option(help="Variant to estimate; default: the undefended one.")] = None,
    rows: Annotated[int | None, typer.Option(help="Number of rows, if no table of the job is here.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="NAME=COUNT", help="Number of columns of a remote party.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes of a remote label (default 2); 0 for a regression target.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Estimate time, traffic and memory of a training run, from operations measured on this machine.

    For split networks: the bytes that are sent, and the size of the views. Of a logistic regression a few batches are
    trained.
    """
    from labelward.cli.audit import insecure_settings
    from labelward.job import load_job
    from labelward.planning.cost_estimate import estimate_cost
    from labelward.planning.logistic_cost import estimate_logistic
    from labelward.planning.net_traffic import estimate_traffic
    from labelward.planning.workload import RemoteShape

    link = _link(bandwidth, latency)
    remote = RemoteShape(rows=rows, columns=_columns(columns or []), classes=classes)
    with prefix_job_file(job_file):
        job = load_job(job_file)
        warn_insecure(insecure_settings(job), ahead=True)
        if job.model.kind == SPLIT_NETWORK:
            if link is not None:
                raise InputError(
                    "is for trees: the time of a network is not estimated", code="unsupported", field="--bandwidth"
                )
            traffic = estimate_traffic(job, seed=seed, variant=defense, remote=remote)
            print_json(asdict(traffic)) if json else _print_network(traffic)
            return
        if job.model.kind == LOGISTIC:
            if link is not None:
                reason = "is for trees; a regression waits for three round trips a batch"
                raise InputError(reason, code="unsupported", field="--bandwidth")
            cost = estimate_logistic(job, seed=seed, variant=defense, remote=remote)
            print_json(asdict(cost)) if json else _print_logistic(cost)
            return
        found = estimate_cost(job, seed=seed, variant=defense, link=link, remote=remote)
    if json:
        print_json(_as_json(found))
    else:
        _print(found)


def _link(bandwidth: float | None, latency: float | None) -> NetworkLink | None:
    from labelward.planning.estimate import NetworkLink

    if (bandwidth is None) != (latency is None):
        raise InputError("give both --bandwidth and --latency, or neither", code="conflict")
    return None if bandwidth is None or latency is None else NetworkLink(bandwidth=bandwidth, latency=latency)


def _columns(given: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in given:
        name, equals, count = one.partition("=")
        if not equals or not count.isdecimal() or len(count) > 6:
            reason = f"must be NAME=COUNT, a count below 1,000,000, but got {one!r}"
            raise InputError(reason, code="type", field="--columns", value=one)
        if name in found:
            raise InputError(f"{name!r} is given twice", code="duplicate", field="--columns", value=name)
        found[name] = int(count)
    return found


def _as_json(found: CostEstimate) -> dict[str, Any]:
    import msgspec

    return {
        "dataset": found.dataset,
        "variant": found.variant,
        "parties": list(found.parties),
        "rows": found.rows,
        "looked_at": {"rows": found.sample[0], "trees": found.sample[1]},
        "generated": list(found.generated),
        "unit_costs": asdict(found.costs),
        "estimate": msgspec.to_builtins(found.estimate),
    } | (
        {} if found.choice is None else {"choice": asdict(found.choice), "engines": msgspec.to_builtins(found.engines)}
    )


def _print(found: CostEstimate) -> None:
    from labelward.report.formatting import count, data_size

    estimate, costs = found.estimate, found.costs
    lines = _phase_lines(estimate.phases, estimate.bytes, found.parties)
    lines.append(("peak memory", *(data_size(estimate.memory[name]) for name in found.parties)))
    kernel = f"{costs.kernel}, " if costs.kernel else ""
    bits = f", {costs.bits} bits" if costs.bits else ""
    title = f"{found.dataset or 'remote data'}, {count(found.rows)} training rows, {costs.engine}{bits}"
    print_table(title, ("phase", *found.parties), lines, words=1)
    units = [(what, f"{1e6 * getattr(costs, name):.3g}") for name, what in _UNITS]
    workers = "1 worker" if costs.workers == 1 else f"{costs.workers} workers"
    print_table(f"Measured here: {kernel}{workers}", ("operation", "µs"), units, words=1)
    for sentence in _sentences(found):
        say(sentence)


def _phase_lines(
    phases: Mapping[str, Mapping[str, float]], sent: Mapping[str, int], parties: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the lines of a table: seconds of each phase and of all, and bytes sent, by party."""
    from labelward.report.formatting import data_size, duration

    names = dict.fromkeys(phase for each in phases.values() for phase in each)
    return [
        *((phase, *(_time(phases[name].get(phase)) for name in parties)) for phase in names),
        ("all phases", *(duration(sum(phases[name].values())) for name in parties)),
        ("bytes sent", *(data_size(sent[name]) for name in parties)),
    ]


def _print_network(found: NetTraffic) -> None:
    from labelward.report.formatting import count, data_size

    active, *passive = found.views
    figures = {
        "numbers a row": {name: count(each) for name, each in found.numbers.items()},
        "embeddings sent": {name: data_size(each) for name, each in found.embeddings.items()},
        "of test rows": {name: data_size(each) for name, each in found.predictions.items()},
        "gradients received": {name: data_size(each) for name, each in found.gradients.items()},
        "view": {name: data_size(each) for name, each in found.views.items()},
    }
    lines = [(title, *(by.get(name, "–") for name in (active, *passive))) for title, by in figures.items()]
    title = f"{found.dataset or 'remote data'}, {count(found.rows)} rows, {count(found.epochs)} epochs"
    print_table(title, ("bytes of arrays", active, *passive), lines, words=1)
    say(f"All views: {data_size(sum(found.views.values()))} at most, headers of messages apart.")


def _print_logistic(found: LogisticCost) -> None:
    from labelward.report.formatting import count, data_size, duration

    lines = _phase_lines(found.phases, found.bytes, found.parties)
    bits = f", {found.bits} bits" if found.bits else ""
    title = f"{found.dataset or 'remote data'}, {count(found.rows)} training rows, {found.engine}{bits}"
    print_table(title, ("phase", *found.parties), lines, words=1)
    typer.echo(
        f"In one process, where phases add up: {duration(found.seconds)}, {data_size(sum(found.bytes.values()))}; "
        f"{count(found.encryptions)} encryptions, {count(found.additions)} additions, "
        f"{count(found.decryptions)} decryptions."
    )
    typer.echo(f"{count(found.tried)} of {count(found.batches)} batches were trained under the job's encryption.")
    if found.generated:
        typer.echo(f"The columns of {', '.join(found.generated)} are synthetic.")


def _sentences(found: CostEstimate) -> list[str]:
    from labelward.report.formatting import count, data_size, duration

    estimate = found.estimate
    rows, trees = found.sample
    first = "first tree was" if trees == 1 else f"first {count(trees)} trees were"
    sentences = _chosen(found)
    sentences += [
        f"In one process, where phases add up: {duration(estimate.seconds)}, "
        f"{data_size(sum(estimate.bytes.values()))} in {count(estimate.messages)} messages; "
        f"{count(estimate.encryptions)} encryptions, {count(estimate.additions)} additions, "
        f"{count(estimate.decryptions)} decryptions.",
        f"The {first} trained without encryption on {count(rows)} rows; the rest is extrapolated.",
    ]
    if found.generated:
        parties = ", ".join(found.generated)
        sentences.append(f"The columns of {parties} are synthetic, so the real trees will have other shapes.")
    if found.defended:
        sentences.append("The defense was active in the trees that were trained; later ones may differ.")
    if found.budgeted:
        sentences.append("The leakage budget is not estimated; with it the run may take less.")
    if estimate.between is not None:
        sentences += _deployment(estimate.between)
    return sentences


def _chosen(found: CostEstimate) -> list[str]:
    """Say which engine ``auto`` is, why, and what each would cost."""
    from labelward.federation.engine_choice import choice_sentence, costs_beside

    if found.choice is None:
        return []
    return [f"{choice_sentence(found.choice.engine, found.choice.reason)}; {costs_beside(found.engines)}."]


def _deployment(between: DeploymentEstimate) -> list[str]:
    from labelward.report.formatting import count, duration

    own = ", ".join(f"{name} {duration(seconds)}" for name, seconds in between.own.items())
    return [
        f"Between companies, each with a machine like this one, at {between.bandwidth:g} Mbit/s and "
        f"{between.latency:g} ms: {duration(between.seconds)}; own work: {own}; transmission "
        f"{duration(between.line)}, {count(between.turns)} round trips {duration(between.waiting)}.",
        "Encrypted rows are sent while further rows are encrypted; sums and answers are waited for.",
    ]


def _time(seconds: float | None) -> str:
    from labelward.report.formatting import duration

    return "–" if seconds is None else duration(seconds)
