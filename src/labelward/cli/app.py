"""The command line application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from labelward.cli._errors import ErrorHandlingGroup
from labelward.cli._options import example
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
    epilog="labelward COMMAND --help ends with an example of the command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        from labelward.installation import version

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


_BEGIN, _AUDIT, _MODEL = "Begin", "Audit in a simulation", "Train and use a model"
_BETWEEN, _RECORDS, _EXTEND = "Between companies", "Attack and inspect views", "Extend"

_GUESS = "--features telco.csv --attack id2graph --classes 2 --seed 1 --out guess.parquet"

_COMMANDS = (
    (_BEGIN, "demo", demo, "labelward demo --small"),
    (_BEGIN, "init", init, "labelward init job.toml"),
    (_BEGIN, "list", list_command, "labelward list attacks"),
    (_BEGIN, "doctor", doctor_command, "labelward doctor --warm"),
    (_AUDIT, "audit", audit_command, "labelward audit job.toml --out audit"),
    (_AUDIT, "plan", plan, "labelward plan job.toml --bandwidth 100 --latency 20"),
    (_AUDIT, "report", report, "labelward report audit"),
    (_AUDIT, "compare", compare, "labelward compare audit other --out compared.html"),
    (_AUDIT, "tune", tune_command, "labelward tune tune.toml --out search"),
    (_AUDIT, "study", study, 'labelward study id2graph --part "table 2" --seeds 1 --out study'),
    (_MODEL, "train", train_command, "labelward train job.toml --defense none --out model"),
    (_MODEL, "predict", predict_command, "labelward predict model --table new.csv --out predictions.csv"),
    (_MODEL, "explain", explain, "labelward explain importance model"),
    (_MODEL, "export", export, "labelward export model --consent telco --out model.json"),
    (_BETWEEN, "party", party_command, "labelward party job.toml --as telco"),
    (_BETWEEN, "relay", relay_command, "labelward relay --listen 0.0.0.0:7443 --party bank --party telco"),
    (_BETWEEN, "certs", certs, "labelward certs new keys --party bank --party telco"),
    (_RECORDS, "view", view, "labelward view show model/telco/view"),
    (_RECORDS, "attack", attack_command, f"labelward attack model/telco/view {_GUESS}"),
    (_RECORDS, "score", score_command, "labelward score guess.parquet --truth labels.csv"),
    (_EXTEND, "new", new, "labelward new attack last-tree"),
)
"""Commands by task, in the order in which they are needed, each with an example."""

for _panel, _name, _command, _line in _COMMANDS:
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name, rich_help_panel=_panel, epilog=example(_line))
    else:
        app.command(_name, rich_help_panel=_panel, epilog=example(_line))(_command)
