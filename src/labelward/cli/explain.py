"""``labelward explain`` and ``labelward export``: what a trained model goes by, and the joined model elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import check_output_file
from labelward.cli._output import pluralize, print_json, print_table, warn
from labelward.cli._table_options import model_parties, resolve_tables

if TYPE_CHECKING:
    from labelward.protocols.secureboost.explain import Importance

__all__ = ["explain", "export"]

explain = typer.Typer(help="Explain a trained model: importance, tree, rows.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="What labelward train wrote.")]
Names = Annotated[
    list[str] | None,
    typer.Option(metavar="PARTY", help="A party that lets the names of its columns be told; may be repeated."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@explain.command("importance")
def show_importance(
    run_dir: Run,
    names: Names = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print how often the model splits on each column, and what these splits gained."""
    model_parties(run_dir)
    from labelward.federation.model import FederatedModel

    found = FederatedModel.load(run_dir).importance(names or ())
    if json:
        print_json({"importance": [_entry(each) for each in found]})
    elif not found:
        typer.echo("no tree of this model splits")
    else:
        all_gain = sum(each.total_gain for each in found)
        rows = [
            (
                each.feature.party,
                each.feature.label,
                f"{each.weight:,}",
                f"{each.gain:.4g}",
                f"{each.total_gain:.4g}",
                f"{each.total_gain / all_gain:.1%}",
            )
            for each in found
        ]
        print_table("", ("party", "column", "splits", "mean gain", "total gain", "share"), rows, words=2)


@explain.command("tree")
def show_tree(
    run_dir: Run,
    number: Annotated[int, typer.Argument(metavar="TREE", min=0, help="Number of the tree, from 0.")],
    svg: Annotated[Path | None, typer.Option(help="Write a picture, too (.svg).")] = None,
    names: Names = None,
    force: Force = False,
) -> None:
    """Draw a tree: the active party's splits in words, the others by their owner."""
    model_parties(run_dir)
    if svg is not None:
        check_output_file(svg, force=force, ending=".svg")
    from labelward.federation.model import FederatedModel
    from labelward.runs.secure_files import atomic_write

    text, picture = FederatedModel.load(run_dir).draw(number, names or ())
    typer.echo(text, nl=False)
    if svg is not None:
        with atomic_write(svg) as file:
            file.write(picture.encode())
        typer.echo(f"wrote {svg}")


@explain.command("rows")
def explain_command(
    run_dir: Run,
    out: Annotated[Path, typer.Option(help="Where the SHAP values go (.parquet).")],
    table: Annotated[Path | None, typer.Option(help="One table with all parties' columns.")] = None,
    party: Annotated[list[str] | None, typer.Option(help="One party's own table, as NAME=TABLE.")] = None,
    background: Annotated[
        Path | None, typer.Option(help="One table of rows to compare with; without one, the rows that are explained.")
    ] = None,
    background_party: Annotated[
        list[str] | None, typer.Option(help="One party's own table of rows to compare with, as NAME=TABLE.")
    ] = None,
    background_rows: Annotated[
        int, typer.Option(min=1, help="How many of them: of more, so many are taken, evenly spaced.")
    ] = 100,
    names: Names = None,
    force: Force = False,
) -> None:
    """Write SHAP values: what each column adds to the margin of each row, against background rows."""
    check_output_file(out, force=force, ending=".parquet")
    parties = model_parties(run_dir)
    tables, behind = resolve_tables(parties, table, party or []), None
    if background is not None or background_party:
        behind = resolve_tables(parties, background, background_party or [], ("--background", "--background-party"))
    from labelward.federation.explain import explain_stored_model as run_explain

    rows, outputs = run_explain(
        run_dir, tables, out, background=behind, most=background_rows, names=names or (), warn=warn
    )
    typer.echo(f"wrote {out}: {pluralize(rows, 'row')}{f', {outputs} outputs of each' if outputs > 1 else ''}")


def export(
    run_dir: Run,
    out: Annotated[Path, typer.Option(help="Where the model goes (.json).")],
    consent: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY", help="A party that consents and so tells its splits; all others must."),
    ] = None,
    names: Names = None,
    force: Force = False,
) -> None:
    """Write the joined model for XGBoost, if every party consents."""
    check_output_file(out, force=force, ending=".json")
    model_parties(run_dir)
    from labelward.federation.model import FederatedModel

    FederatedModel.load(run_dir).export(out, consent=consent or (), names=names or ())
    typer.echo(f"wrote {out}")


def _entry(found: Importance) -> dict[str, object]:
    return {
        "party": found.feature.party,
        "column": found.feature.number,
        "name": found.feature.name or None,
        "splits": found.weight,
        "gain": found.gain,
        "total_gain": found.total_gain,
    }
