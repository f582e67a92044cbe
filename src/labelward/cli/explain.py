"""``labelward explain`` and ``labelward export``: explanations of a trained model, and export to XGBoost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import check_output_file
from labelward.cli._options import (
    Force,
    Json,
    example,
    model_parties,
    refuse_overwriting,
    refuse_unread,
    resolve_tables,
)
from labelward.cli._output import pluralize, print_json, print_table, warn
from labelward.errors import InputError, quoted

if TYPE_CHECKING:
    from labelward.protocols.secureboost.explain import Importance

explain = typer.Typer(help="Explain a trained model: column importance, trees, predictions.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Output folder of labelward train.")]
Names = Annotated[
    list[str] | None, typer.Option(metavar="PARTY", help="Party that reveals the names of its columns. Repeatable.")
]


_LONGEST_NAME = 1_000  # characters


@explain.command("importance", epilog=example("labelward explain importance model --names telco"))
def show_importance(run_dir: Run, names: Names = None, json: Json = False) -> None:
    """Print the number of splits and their gain for each column."""
    found = _importance(run_dir, names or [])
    if json:
        print_json({"importance": [_entry(each) for each in found]})
    elif not found:
        typer.echo("this model has no splits")
    else:
        all_gain = sum(each.total_gain for each in found)
        gains = not math.isnan(all_gain)
        rows = [
            (each.feature.party, quoted(each.feature.label, _LONGEST_NAME), f"{each.weight:,}")
            + ((f"{each.gain:.4g}", f"{each.total_gain:.4g}", f"{each.total_gain / all_gain:.1%}") if gains else ())
            for each in found
        ]
        header = ("party", "column", "splits") + (("mean gain", "total gain", "share") if gains else ())
        print_table("", header, rows, words=2)


@explain.command("tree", epilog=example("labelward explain tree model 0 --svg tree.svg"))
def show_tree(
    context: typer.Context,
    run_dir: Run,
    number: Annotated[int, typer.Argument(metavar="TREE", min=0, help="Index of the tree, from 0.")],
    svg: Annotated[Path | None, typer.Option(help="Also write an image (.svg).")] = None,
    names: Names = None,
    force: Force = False,
) -> None:
    """Print a tree: the active party's splits in full, other splits by owner."""
    model_parties(run_dir)
    if svg is None:
        refuse_unread(context, ("force",), "needs --svg; add it")
    else:
        check_output_file(svg, force=force, ending=".svg")
    from labelward.federation.model import FederatedModel
    from labelward.runs.secure_files import write_bytes

    text, picture = FederatedModel.load(run_dir).draw(number, names or ())
    typer.echo(text, nl=False)
    if svg is not None:
        write_bytes(svg, picture.encode())
        typer.echo(f"wrote {svg}")


@explain.command("rows", epilog=example("labelward explain rows model --table new.csv --out shap.parquet"))
def explain_command(
    run_dir: Run,
    out: Annotated[Path, typer.Option(help="Output file for the SHAP values (.parquet).")],
    table: Annotated[Path | None, typer.Option(help="Table with the columns of all parties.")] = None,
    party: Annotated[list[str] | None, typer.Option(help="A party's own table, as NAME=TABLE. Repeatable.")] = None,
    background: Annotated[
        Path | None,
        typer.Option(help="Table of background rows with the columns of all parties. Default: the explained rows."),
    ] = None,
    background_party: Annotated[
        list[str] | None, typer.Option(help="A party's own table of background rows, as NAME=TABLE. Repeatable.")
    ] = None,
    background_rows: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of background rows; from a larger table, evenly spaced rows are taken."
        ),
    ] = 100,
    names: Names = None,
    force: Force = False,
) -> None:
    """Write SHAP values: the contribution of each column to each row's margin, relative to background rows."""
    check_output_file(out, force=force, ending=".parquet")
    parties = model_parties(run_dir)
    tables, background_tables = resolve_tables(parties, table, party or []), None
    if background is not None or background_party:
        background_tables = resolve_tables(
            parties, background, background_party or [], ("--background", "--background-party")
        )
    refuse_overwriting(out, [*tables.values(), *(background_tables or {}).values()])
    from labelward.federation.explain import explain_stored_model as run_explain

    rows, outputs = run_explain(
        run_dir, tables, out, background=background_tables, most=background_rows, names=names or (), warn=warn
    )
    typer.echo(f"wrote {out}: {pluralize(rows, 'row')}{f', {outputs} outputs per row' if outputs > 1 else ''}")


def export(
    run_dir: Run,
    out: Annotated[Path, typer.Option(help="Output file for the model (.json).")],
    consent: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY", help="Party that agrees to reveal its splits; all parties must be given."),
    ] = None,
    names: Names = None,
    force: Force = False,
) -> None:
    """Export the joint model to XGBoost, if all parties consent."""
    check_output_file(out, force=force, ending=".json")
    model_parties(run_dir)
    from labelward.federation.model import FederatedModel

    FederatedModel.load(run_dir).export(out, consent=consent or (), names=names or ())
    typer.echo(f"wrote {out}")


def _importance(run_dir: Path, names: list[str]) -> tuple[Importance, ...]:
    """Return what all shares of a rehearsal say, or what one party's share says by itself."""
    from labelward.runs.party_record import PARTY_FILE

    if (run_dir / PARTY_FILE).exists():
        if names:
            raise InputError(
                "a party knows its own names, and none of others", code="conflict", field="--names", value=names
            )
        from labelward.federation.model_shares import trained_job
        from labelward.federation.party_explanation import importance_at_party

        return importance_at_party(run_dir, trained_job(run_dir))
    model_parties(run_dir)
    from labelward.federation.model import FederatedModel

    return FederatedModel.load(run_dir).importance(names)


def _entry(found: Importance) -> dict[str, object]:
    known = not math.isnan(found.total_gain)
    return {
        "party": found.feature.party,
        "column": found.feature.number,
        "name": found.feature.name or None,
        "splits": found.weight,
        "gain": found.gain if known else None,
        "total_gain": found.total_gain if known else None,
    }
