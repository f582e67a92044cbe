"""The command line application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from labelward.cli._errors import ErrorHandlingGroup
from labelward.cli.attack import attack_command, score_command
from labelward.cli.audit import audit_command, compare, demo, report
from labelward.cli.certs import certs
from labelward.cli.doctor import doctor_command
from labelward.cli.explain import explain, export
from labelward.cli.init import init
from labelward.cli.list import list_command
from labelward.cli.new import new
from labelward.cli.party import party_command
from labelward.cli.plan import plan
from labelward.cli.relay import relay_command
from labelward.cli.study import study
from labelward.cli.train import predict_command, train_command
from labelward.cli.tune import tune_command
from labelward.cli.view import view

app = typer.Typer(
    cls=ErrorHandlingGroup,
    help="Vertical federated learning with private labels: train under encryption, and audit label leakage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"labelward {version('labelward')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True, help="Show the traceback of an error.")] = False,
) -> None:
    pass


app.command("init")(init)
app.command("audit")(audit_command)
app.command("demo")(demo)
app.command("plan")(plan)
app.command("tune")(tune_command)
app.command("train")(train_command)
app.command("predict")(predict_command)
app.command("party")(party_command)
app.command("relay")(relay_command)
app.add_typer(explain, name="explain")
app.command("export")(export)
app.command("attack")(attack_command)
app.command("score")(score_command)
app.command("list")(list_command)
app.command("report")(report)
app.command("compare")(compare)
app.command("doctor")(doctor_command)
app.add_typer(new, name="new")
app.add_typer(view, name="view")
app.add_typer(certs, name="certs")
app.command()(study)
