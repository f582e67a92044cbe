"""``labelward doctor``: which implementation of an encryption engine runs on this machine, why, and how fast."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from labelward.cli._options import Json, refuse_unread
from labelward.cli._output import print_json, print_table
from labelward.errors import InputError


def doctor_command(
    context: typer.Context,
    bits: Annotated[int, typer.Option(min=2048, max=4096, help="Length of the key to measure with.")] = 2048,
    engine: Annotated[str | None, typer.Option(help="Measure this engine only, instead of all.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A parameter of --engine, as in the job table encryption.ENGINE. Repeatable."
        ),
    ] = None,
    json: Json = False,
    compile_ahead: Annotated[
        bool, typer.Option("--warm", help="Compile the kernels ahead, once, instead of measuring; about 30 s.")
    ] = False,
) -> None:
    """Benchmark the encryption kernels: which one runs here, why, and microseconds of one core for one operation."""
    if compile_ahead:
        refuse_unread(context, ("bits", "engine", "parameter", "json"), "measures nothing with --warm; leave it out")
        from labelward.cli._warm import warm

        warm()
        return
    from labelward.he import benchmark_engines

    engines = benchmark_engines(bits, engine, _parameters(engine, parameter or ()))
    if json:
        kernels = [{"engine": name, **asdict(each)} for name, results in engines.items() for each in results]
        print_json({"bits": bits, "kernels": kernels})
        return
    if not engines:
        typer.echo(f"engine {engine!r} has no benchmark")
    for name, results in engines.items():
        operations = tuple(dict.fromkeys(operation for each in results for operation in each.microseconds))
        rows = [
            (
                each.kernel,
                "yes" if each.chosen else "no",
                *(_microseconds(each.microseconds.get(operation)) for operation in operations),
                each.why,
            )
            for each in results
        ]
        title = f"{name.capitalize()}, {results[0].bits or bits} bits: µs of one core"
        print_table(title, ("kernel", "runs", *operations, "why"), rows, words=1)


def _parameters(engine: str | None, given: Sequence[str]) -> dict[str, Any]:
    if given and engine is None:
        raise InputError("give the engine, too", code="missing", field="--engine")
    try:
        return {key: value for each in given for key, value in tomllib.loads(each).items()}
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not KEY=VALUE: {error}", code="unreadable", field="--parameter", value=given) from error


def _microseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
