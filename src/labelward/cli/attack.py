"""``labelward attack`` and ``labelward score``: a stored view, one party's own features, and later the truth."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from labelward.cli._errors import LARGEST_SEED, check_output_file
from labelward.cli._output import print_json, warn_insecure
from labelward.errors import InputError, JobError
from labelward.job.table_formats import listed_suffixes

__all__ = ["attack_command", "score_command"]


def attack_command(
    view_dir: Annotated[Path, typer.Argument(help="The folder of a stored view.")],
    features: Annotated[
        Path, typer.Option(help=f"The attacker's own columns of the training rows ({listed_suffixes()}).")
    ],
    attack: Annotated[str, typer.Option(help="Kind of the attack; labelward list attacks shows them.")],
    classes: Annotated[
        int, typer.Option(min=2, help="How many classes the attacker knows of; bins, if labels are quantities.")
    ],
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the attack's own random draws.")],
    out: Annotated[Path, typer.Option(help="Where the guess goes (.parquet).")],
    id_column: Annotated[str | None, typer.Option("--id", help="The features' column of row ids.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the attack, as name=value.")] = None,
    known: Annotated[
        Path | None, typer.Option(help="Row ids and labels that the attacker was told, for attacks that need some.")
    ] = None,
    label: Annotated[str, typer.Option(help="The label column of --known.")] = "label",
    model: Annotated[
        Path | None, typer.Option(help="The folder of the party's model share; that beside the view, if there is one.")
    ] = None,
    other_view: Annotated[
        list[Path] | None,
        typer.Option(help="A view of the same party in another run over the same rows, such as one of another seed."),
    ] = None,
    incomplete: Annotated[bool, typer.Option("--incomplete", help="Attack a view that was cut off, too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Attack a stored view with what its party has: its features, its part of the model, and labels it was told."""
    from labelward.leakage.bottom_models import load_bottom_models
    from labelward.leakage.stored_views import AttackerKnowledge, attack_view, read_known, write_guess
    from labelward.party.view import View

    check_output_file(out, force=force, ending=".parquet")
    parameters = _parameters(param or [])
    view = View.load(view_dir)
    if classes > view.rows:
        raise InputError(
            f"{classes} classes are more than the {view.rows} rows of the view",
            code="range",
            field="--classes",
            value=classes,
        )
    warn_insecure(view.header.insecure)
    ids, guess = attack_view(
        view_dir,
        features,
        attack,
        parameters,
        classes=classes,
        seed=seed,
        id_column=id_column,
        incomplete=incomplete,
        told=AttackerKnowledge(
            known=known, label=label, other_runs=tuple(other_view or ()), bottoms=load_bottom_models(view_dir, model)
        ),
    )
    about = {"attack": {"kind": attack} | parameters, "party": view.party, "seed": seed, "classes": classes}
    rows, _, names = (None, None, ()) if known is None else read_known(known, ids, label, id_column)
    write_guess(out, ids, guess, about | {"view": view.ended}, known=rows, names=names)
    typer.echo(f"wrote {out}: {attack} by {view.party}, a guess for {len(ids)} rows")


def score_command(
    guess: Annotated[Path, typer.Argument(help="A guess that labelward attack wrote.")],
    truth: Annotated[Path, typer.Option(help=f"The table with the true labels ({listed_suffixes()}).")],
    label: Annotated[str, typer.Option(help="Its label column.")] = "label",
    id_column: Annotated[str | None, typer.Option("--id", help="Its column of row ids.")] = None,
    bins: Annotated[
        int | None, typer.Option(min=2, max=100, help="The labels are quantities: cut them into so many bins.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare a guess with the true labels."""
    from labelward.leakage.stored_views import score_guess

    scores = score_guess(guess, truth, label=label, id_column=id_column, bins=bins)
    if json:
        print_json(scores)
        return
    chance = scores.get("chance", {})
    for name, value in scores.items():
        if isinstance(value, int | float):
            beside = f"  (chance {chance[name]:.4f})" if name in chance else ""
            typer.echo(f"{name}  {value!r}{beside}")


def _parameters(given: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise JobError(f"must be name=value but got {one!r}", code="type", field="--param", value=one)
        if name in found:
            raise JobError(f"{name!r} is given twice", code="duplicate", field="--param", value=name)
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    """Return the value as a job file would hold it; what is no TOML value is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
