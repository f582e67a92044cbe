"""``labelward certs``: keys and certificates for the parties of a run, and what is wrong with a pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import fail
from labelward.cli._output import pluralize
from labelward.errors import InputError, OutputError

if TYPE_CHECKING:
    from labelward.transport.certificates import Issued

__all__ = ["certs"]

_AUTHORITY_KEY = "authority.key"
_AUTHORITY_FOLDER = "authority"
_MOST_DAYS = 3650

certs = typer.Typer(help="Make the certificates that parties show each other, and check them.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made where it does not exist.")]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--address", metavar="HOST", help="A DNS name or IP under which it listens; may be given again."),
]
Party = Annotated[str, typer.Option("--party", metavar="NAME", help="Its name in the job file.")]
Days = Annotated[int, typer.Option(min=1, max=_MOST_DAYS, help="How long the certificates are valid.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]


@certs.command()
def new(
    folder: Folder,
    party: Annotated[list[str], typer.Option("--party", metavar="NAME", help="Its name in the job file; each party.")],
    address: Addresses = None,
    listener: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who listens under the addresses; the first --party.")
    ] = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Make an authority, and for each party a folder with all that it needs."""
    from labelward.transport.certificates import AUTHORITY_DAYS, check_party_name, new_authority, new_party

    for name in party:
        check_party_name(name)
    twice = sorted({name for name in party if party.count(name) > 1})
    if twice:
        raise InputError(f"{twice[0]!r} is given twice", code="duplicate", field="--party", value=twice[0])
    listener = party[0] if listener is None else listener
    if listener not in party:
        raise InputError(
            f"{listener!r} is none of the parties {', '.join(map(repr, party))}",
            code="unknown",
            field="--listener",
            value=listener,
        )
    authority = new_authority(days=max(days, AUTHORITY_DAYS))
    files = _authority_files(folder / _AUTHORITY_FOLDER, authority)
    for name in party:
        made = new_party(authority, name, addresses=(address or []) if name == listener else [], days=days)
        files |= _party_files(folder / name, name, made, authority.certificate)
    _write(files, force=force)
    for name in party:
        under = f", to listen as {', '.join(address)}" if name == listener and address else ""
        typer.echo(
            f"wrote {folder / name}: {name}.crt (valid for {pluralize(days, 'day')}), {name}.key, authority.crt{under}"
        )
    typer.echo(f"wrote {folder / _AUTHORITY_FOLDER}: authority.crt, {_AUTHORITY_KEY}")
    if not address:
        typer.echo(f"no --address was given, so that nobody can connect to {listener} yet")
    typer.echo("Hand each party its folder on a way that nobody else can read, and delete it here.")
    typer.echo(_keep(folder / _AUTHORITY_FOLDER))


@certs.command("authority")
def authority_certificate(
    folder: Folder,
    name: Annotated[str | None, typer.Option(help="What it is called; a name with a random end.")] = None,
    days: Annotated[int, typer.Option(min=1, max=10 * _MOST_DAYS, help="How long it is valid.")] = _MOST_DAYS,
    force: Force = False,
) -> None:
    """Make an authority alone: its certificate, which all parties get, and its key, which nobody gets."""
    from labelward.transport.certificates import new_authority

    _write(_authority_files(folder, new_authority(name=name, days=days)), force=force)
    typer.echo(f"wrote {folder}: authority.crt (valid for {pluralize(days, 'day')}), {_AUTHORITY_KEY}")
    typer.echo(_keep(folder))


@certs.command("party")
def party_certificate(
    folder: Folder,
    party: Party,
    authority: Annotated[Path, typer.Option(metavar="DIR", help="The folder with authority.crt and authority.key.")],
    address: Addresses = None,
    request: Annotated[
        Path | None, typer.Option(metavar="FILE.csr", help="Sign this request; the key stays where it was made.")
    ] = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Make one party's certificate with an authority that exists: the next one, or that of a new party."""
    from labelward.transport.certificates import (
        Issued,
        addresses_of,
        certificates_in,
        check_party_name,
        new_party,
        sign_request,
    )

    check_party_name(party)
    known = Issued(certificate=_read(authority / "authority.crt"), key=_read(authority / _AUTHORITY_KEY))
    if request is None:
        made = new_party(known, party, addresses=address or [], days=days)
        files = _party_files(folder, party, made, known.certificate)
    else:
        asked = _read(request)
        signed = sign_request(known, asked, party, addresses=address or [], days=days, where=str(request))
        files = {folder / f"{party}.crt": signed, folder / "authority.crt": known.certificate}
    _write(files, force=force, same=folder / "authority.crt")
    listed = addresses_of(certificates_in(files[folder / f"{party}.crt"], f"{party}.crt")[0])
    under = f", to listen as {', '.join(listed)}" if listed else ""
    names = ", ".join(path.name for path in files)
    typer.echo(f"wrote {folder}: {names} (valid for {pluralize(days, 'day')}){under}")


@certs.command()
def request(folder: Folder, party: Party, address: Addresses = None, force: Force = False) -> None:
    """Make a key, and a request that your company's authority, or your partner's, can sign."""
    from labelward.transport.certificates import check_party_name, new_request

    made = new_request(check_party_name(party), addresses=address or [])
    _write({folder / f"{party}.csr": made.certificate, folder / f"{party}.key": made.key}, force=force)
    typer.echo(f"wrote {folder}: {party}.csr, {party}.key")
    typer.echo(f"Send {party}.csr to the authority; {party}.key stays here. What comes back goes beside it:")
    typer.echo(f"{party}.crt (with the authorities between, if any, after it) and authority.crt.")
    typer.echo(f"Then: labelward certs check {folder} --as {party}")


@certs.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that the job file names.")],
    party: Annotated[str, typer.Option("--as", metavar="NAME", help="Whose it is.")],
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="HOST", help="What others connect to, without the port; of who listens."),
    ] = None,
) -> None:
    """Say in plain words what is right and wrong with a party's files; exit code 2 where anything is wrong."""
    from labelward.transport.certificates import examine_credentials

    found = examine_credentials(folder, party, addresses=address or [])
    for finding in found:
        typer.echo(f"{finding.kind:5}  {finding.text}")
    wrong = sum(1 for finding in found if finding.kind == "wrong")
    if wrong:
        fail(
            f"{pluralize(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong in {folder}; no peer would be reached",
            2,
        )
    typer.echo(f"{party} can take part with these files")


def _keep(folder: Path) -> str:
    return (
        f"Whoever has {folder / _AUTHORITY_KEY} can be any party: one of you keeps it, away from the machines of the "
        "runs. No run needs it; the next certificate does."
    )


def _authority_files(folder: Path, made: Issued) -> dict[Path, bytes]:
    return {folder / "authority.crt": made.certificate, folder / _AUTHORITY_KEY: made.key}


def _party_files(folder: Path, name: str, made: Issued, authority: bytes) -> dict[Path, bytes]:
    return {
        folder / f"{name}.crt": made.certificate,
        folder / f"{name}.key": made.key,
        folder / "authority.crt": authority,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error


def _write(files: Mapping[Path, bytes], *, force: bool, same: Path | None = None) -> None:
    """Write all files or, where one may not be overwritten, none.

    Args:
        same: a file that may be there if it holds the same.
    """
    from labelward.runs.purge import enclosing_run
    from labelward.runs.secure_files import atomic_write, output_errors

    for folder in sorted({path.parent for path in files}):
        if run := enclosing_run(folder):
            raise OutputError(
                f"lies in {run}, the folder of a run, where no key belongs; choose another place",
                code="foreign",
                field=str(folder),
                value=str(run),
            )
    for path, content in files.items():
        with output_errors(path):
            unchanged = path == same and path.is_file() and path.read_bytes() == content
            if (path.exists() or path.is_symlink()) and not force and not unchanged:
                raise OutputError(
                    f"{path} exists already; --force overwrites it, and what it was is lost",
                    code="exists",
                    value=str(path),
                )
    for path, content in files.items():
        with output_errors(path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(content)
