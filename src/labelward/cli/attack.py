"""``labelward attack`` and ``labelward score``: attack a stored view, and score the guess against the true labels."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelward.cli._errors import MAX_SEED, check_output_file
from labelward.cli._options import Force, Json, refuse_overwriting, refuse_unread
from labelward.cli._output import pluralize, print_json, say, warn_insecure
from labelward.errors import InputError, JobError, unknown_name
from labelward.job.table_formats import listed_suffixes

if TYPE_CHECKING:
    from labelward.metrics.epsilon_bound import EpsilonEvidence


def attack_command(
    context: typer.Context,
    view_dir: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a stored view; several folders: of passive parties of one run that collude, and attack "
            "with their views and columns together."
        ),
    ],
    features: Annotated[
        list[Path],
        typer.Option(
            help=f"Table of the attacker's own columns of the training rows ({listed_suffixes()}). One for each view, "
            "in the same order."
        ),
    ],
    attack: Annotated[str, typer.Option(help="Kind of attack; see labelward list attacks.")],
    classes: Annotated[
        int, typer.Option(min=2, help="Number of classes known to the attacker; for regression, number of bins.")
    ],
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the attack's random draws.")],
    out: Annotated[Path, typer.Option(help="Output file for the guess (.parquet).")],
    id_column: Annotated[str | None, typer.Option("--id", help="Column of row ids in --features.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the attack, as name=value. Repeatable.")] = None,
    known: Annotated[
        Path | None, typer.Option(help="Table of row ids and known labels, for attacks that need some.")
    ] = None,
    attribute: Annotated[
        Path | None,
        typer.Option(help="Table of row ids and known values of the attribute, for attacks that infer a further one."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Table of row ids and the active party's labels, for attacks on its view.")
    ] = None,
    label: Annotated[str, typer.Option(help="Label column in --known and --labels.")] = "label",
    model: Annotated[
        Path | None, typer.Option(help="Folder of the party's model share. Default: the one next to the view.")
    ] = None,
    other_view: Annotated[
        list[Path] | None,
        typer.Option(help="View of the same party in another run on the same rows, such as another seed. Repeatable."),
    ] = None,
    incomplete: Annotated[bool, typer.Option("--incomplete", help="Accept a truncated view.")] = False,
    force: Force = False,
) -> None:
    """Attack a stored view with its party's features, part of the model and known labels."""
    from labelward.attacks import ATTACKS
    from labelward.attacks.base import LabelGuess
    from labelward.leakage.stored_guesses import write_guess
    from labelward.leakage.stored_views import AttackerKnowledge, attack_view, load_models, read_known
    from labelward.party.joined_view import JoinedView
    from labelward.party.view import View

    if attack not in ATTACKS.classes():
        reason = unknown_name("attack", attack, ATTACKS.classes())
        raise InputError(reason, code="unknown", field="--attack", value=attack)
    check_output_file(out, force=force, ending=".parquet")
    refuse_overwriting(out, [*features, known, attribute, labels])
    if known is None and labels is None:
        refuse_unread(context, ("label",), "needs --known or --labels; add one")
    parameters = _parse_parameters(param or [])
    if len(view_dir) != len(features):
        reason = f"must be given once for each of the {len(view_dir)} views"
        raise InputError(reason, code="rows", field="--features", value=len(features))
    if model is not None and len(view_dir) > 1:
        raise InputError("is for a single view", code="conflict", field="--model", value=str(model))
    views = [View.load(folder) for folder in view_dir]
    view = views[0] if len(views) == 1 else JoinedView(views)
    if classes > view.rows:
        reason = f"must be at most the number of rows in the view ({view.rows} rows) but got {classes}"
        raise InputError(reason, code="range", field="--classes", value=classes)
    warn_insecure(view.header.insecure)
    ids, guess = attack_view(
        view_dir[0],
        features[0],
        attack,
        parameters,
        classes=classes,
        seed=seed,
        id_column=id_column,
        incomplete=incomplete,
        knowledge=AttackerKnowledge(
            known=known,
            attribute=attribute,
            labels=labels,
            label=label,
            other_runs=tuple(other_view or ()),
            models=load_models(view_dir[0], model),
            colluding=tuple(zip(view_dir[1:], features[1:], strict=True)),
        ),
    )
    about = {"attack": {"kind": attack} | parameters, "party": view.party, "seed": seed, "classes": classes}
    if not isinstance(guess, LabelGuess):
        about["model"] = {key: view.parameter(f"model.{key}") for key in ("bins", "candidates")}
    rows, _, names = (None, None, ()) if known is None else read_known(known, ids, label, id_column)
    write_guess(out, ids, guess, about | {"view": view.ended}, known=rows, names=names)
    noun = "labels" if isinstance(guess, LabelGuess) else "columns"
    typer.echo(f"wrote {out}: {attack} by {view.party}, guessed {noun} of {len(ids)} rows")


def score_command(
    context: typer.Context,
    guess: Annotated[Path, typer.Argument(help="Output of labelward attack.")],
    truth: Annotated[
        Path, typer.Option(help=f"Table of the true labels, or of the columns of --party ({listed_suffixes()}).")
    ],
    label: Annotated[str, typer.Option(help="Label column in --truth.")] = "label",
    id_column: Annotated[str | None, typer.Option("--id", help="Column of row ids in --truth.")] = None,
    bins: Annotated[int | None, typer.Option(min=2, max=100, help="For regression targets: number of bins.")] = None,
    party: Annotated[
        str | None,
        typer.Option(help="Of a guess of columns: the party that holds --truth; of a further attribute, any name."),
    ] = None,
    columns: Annotated[
        list[Path] | None,
        typer.Option(help="Table of columns; those of all parties give a lower bound of epsilon. Repeatable."),
    ] = None,
    view: Annotated[
        list[Path] | None,
        typer.Option(
            help="The attacked view, then others that the attack read; for the lower bound of epsilon. Repeatable."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Score a guess against the true labels, or columns."""
    from labelward.leakage.stored_columns import score_stored_columns
    from labelward.leakage.stored_guesses import score_guess

    if bins is not None and (columns or view):
        raise InputError("classes have an epsilon, quantities have none", code="conflict", field="--bins", value=bins)
    if party is None:
        scores = score_guess(guess, truth, label=label, id_column=id_column, bins=bins)
    else:
        refuse_unread(context, ("label", "bins"), "is for a guess of labels; with --party leave it out")
        scores = score_stored_columns(guess, truth, party, id_column=id_column)
    evidence = None
    if columns or view:
        from labelward.leakage.stored_evidence import stored_evidence

        evidence = stored_evidence(guess, truth, columns or (), view or (), label=label, id_column=id_column)
    if json:
        print_json(scores if evidence is None else scores | {"epsilon": evidence.figures()})
        return
    chance = scores.get("chance", {})
    for name, value in scores.items():
        if isinstance(value, int | float):
            by_chance = f"  (chance {chance[name]:.4f})" if name in chance else ""
            typer.echo(f"{name}  {value!r}{by_chance}")
    if evidence is not None:
        say(_epsilon_sentence(evidence))


def _epsilon_sentence(evidence: EpsilonEvidence) -> str:
    bound = evidence.bound()
    if bound == math.inf:
        return (
            f"epsilon  none is finite: the view follows from the labels, and is impossible after a change of one "
            f"({evidence.contradicted} of {evidence.changed} examined)"
        )
    return f"epsilon  at least {bound:.2f}, with 95% confidence ({pluralize(evidence.pairs, 'pair')} of labels)"


def _parse_parameters(options: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name:
            raise JobError(f"must be name=value but got {option!r}", code="type", field="--param", value=option)
        if name in found:
            raise JobError(f"{name!r} is given twice", code="duplicate", field="--param", value=name)
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    """Return the value as in a job file; text that is no TOML value is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
