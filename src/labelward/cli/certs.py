"""``labelward certs``: create and check keys and certificates of parties."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import fail
from labelward.cli._options import example
from labelward.cli._output import pluralize, say
from labelward.errors import InputError, OutputError

if TYPE_CHECKING:
    from labelward.transport.certificates import Issued

_AUTHORITY_KEY = "authority.key"
_AUTHORITY_FOLDER = "authority"
_MAX_DAYS = 3650

certs = typer.Typer(
    help="Create and check the certificates by which parties authenticate each other.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder; created if necessary.")]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--address", metavar="HOST", help="DNS name or IP address at which the party listens. Repeatable."),
]
Party = Annotated[str, typer.Option("--party", metavar="NAME", help="Name of the party in the job file.")]
Days = Annotated[int, typer.Option(min=1, max=_MAX_DAYS, help="Validity of the certificates in days.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


@certs.command(epilog=example("labelward certs new keys --party bank --party telco --address bank.example"))
def new(
    folder: Folder,
    party: Annotated[
        list[str], typer.Option("--party", metavar="NAME", help="Name of a party in the job file. Give all parties.")
    ],
    address: Addresses = None,
    listener: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Party that listens at the addresses. Default: the first --party."),
    ] = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Create an authority, and a folder with key and certificates for each party."""
    from labelward.transport.certificates import AUTHORITY_DAYS, check_party_name, new_authority, new_party

    for name in party:
        check_party_name(name)
    duplicates = sorted({name for name in party if party.count(name) > 1})
    if duplicates:
        raise InputError(f"{duplicates[0]!r} is given twice", code="duplicate", field="--party", value=duplicates[0])
    listener = party[0] if listener is None else listener
    if listener not in party:
        reason = f"{listener!r} is not one of the parties {', '.join(map(repr, party))}"
        raise InputError(reason, code="unknown", field="--listener", value=listener)
    authority = new_authority(days=max(days, AUTHORITY_DAYS))
    files = _authority_files(folder / _AUTHORITY_FOLDER, authority)
    for name in party:
        issued = new_party(authority, name, addresses=(address or []) if name == listener else [], days=days)
        files |= _party_files(folder / name, name, issued, authority.certificate)
    _write(files, force=force)
    for name in party:
        under = f", listening as {', '.join(address)}" if name == listener and address else ""
        typer.echo(
            f"wrote {folder / name}: {name}.crt (valid for {pluralize(days, 'day')}), {name}.key, authority.crt{under}"
        )
    typer.echo(f"wrote {folder / _AUTHORITY_FOLDER}: authority.crt, {_AUTHORITY_KEY}")
    if not address:
        say(f"no --address was given, so no party can connect to {listener} yet")
    say("Send each party its folder over a confidential channel, and delete it here.")
    say(_key_notice(folder / _AUTHORITY_FOLDER))


@certs.command("authority", epilog=example("labelward certs authority own"))
def authority_certificate(
    folder: Folder,
    name: Annotated[
        str | None, typer.Option(help="Name of the authority. Default: a name with a random suffix.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=10 * _MAX_DAYS, help="Validity in days.")] = _MAX_DAYS,
    force: Force = False,
) -> None:
    """Create an authority only: a certificate for all parties, and a secret key."""
    from labelward.transport.certificates import new_authority

    _write(_authority_files(folder, new_authority(name=name, days=days)), force=force)
    typer.echo(f"wrote {folder}: authority.crt (valid for {pluralize(days, 'day')}), {_AUTHORITY_KEY}")
    say(_key_notice(folder))


@certs.command("party", epilog=example("labelward certs party keys/shop --party shop --authority own"))
def party_certificate(
    folder: Folder,
    party: Party,
    authority: Annotated[Path, typer.Option(metavar="DIR", help="Folder with authority.crt and authority.key.")],
    address: Addresses = None,
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csr", help="Sign this request; the party's key stays where it was created."),
    ] = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Create a party's certificate with an existing authority, for renewal or for a new party."""
    from labelward.transport.certificates import (
        Issued,
        addresses_of,
        check_party_name,
        new_party,
        read_certificates,
        sign_request,
    )

    check_party_name(party)
    known = Issued(certificate=_read(authority / "authority.crt"), key=_read(authority / _AUTHORITY_KEY))
    if request is None:
        issued = new_party(known, party, addresses=address or [], days=days)
        files = _party_files(folder, party, issued, known.certificate)
    else:
        csr = _read(request)
        signed = sign_request(known, csr, party, addresses=address or [], days=days, where=str(request))
        files = {folder / f"{party}.crt": signed, folder / "authority.crt": known.certificate}
    _write(files, force=force, same=folder / "authority.crt")
    listed = addresses_of(read_certificates(files[folder / f"{party}.crt"], f"{party}.crt")[0])
    under = f", listening as {', '.join(listed)}" if listed else ""
    names = ", ".join(path.name for path in files)
    typer.echo(f"wrote {folder}: {names} (valid for {pluralize(days, 'day')}){under}")


@certs.command(epilog=example("labelward certs request later --party shop"))
def request(folder: Folder, party: Party, address: Addresses = None, force: Force = False) -> None:
    """Create a key and a signing request for your company's or your partner's authority."""
    from labelward.transport.certificates import check_party_name, new_request

    issued = new_request(check_party_name(party), addresses=address or [])
    _write({folder / f"{party}.csr": issued.certificate, folder / f"{party}.key": issued.key}, force=force)
    typer.echo(f"wrote {folder}: {party}.csr, {party}.key")
    typer.echo(f"Send {party}.csr to the authority; keep {party}.key here. Put the files that you receive next to it:")
    typer.echo(f"{party}.crt (followed by intermediate certificates, if any) and authority.crt.")
    typer.echo(f"Then run: labelward certs check {folder} --as {party}")


@certs.command(epilog=example("labelward certs check keys/bank --as bank"))
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder given in the job file.")],
    party: Annotated[str, typer.Option("--as", metavar="NAME", help="Name of the party.")],
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            metavar="HOST",
            help="For a party that listens: the address that others connect to, without the port. Repeatable.",
        ),
    ] = None,
) -> None:
    """Check a party's files and explain any problems; exit code 2 if there are any."""
    from labelward.transport.certificates import examine_credentials

    found = examine_credentials(folder, party, addresses=address or [])
    for finding in found:
        typer.echo(f"{finding.kind:5}  {finding.text}")
    wrong = sum(1 for finding in found if finding.kind == "wrong")
    if wrong:
        fail(f"{pluralize(wrong, 'problem')} in {folder}; connections to peers would fail", 2)
    typer.echo(f"{party} can connect with these files")


def _key_notice(folder: Path) -> str:
    return (
        f"Anyone with {folder / _AUTHORITY_KEY} can impersonate any party: one of you keeps it, away from the machines "
        "that run the parties. It is needed for further certificates only, not for runs."
    )


def _authority_files(folder: Path, issued: Issued) -> dict[Path, bytes]:
    return {folder / "authority.crt": issued.certificate, folder / _AUTHORITY_KEY: issued.key}


def _party_files(folder: Path, name: str, issued: Issued, authority: bytes) -> dict[Path, bytes]:
    return {
        folder / f"{name}.crt": issued.certificate,
        folder / f"{name}.key": issued.key,
        folder / "authority.crt": authority,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error


def _write(files: Mapping[Path, bytes], *, force: bool, same: Path | None = None) -> None:
    """Write all files, or none if one exists and may not be overwritten.

    Args:
        same: a file that may exist with the same content.

    Raises:
        OutputError: a file exists, cannot be written, or would be in the folder of a run.
    """
    from labelward.runs.purge import enclosing_run
    from labelward.runs.secure_files import output_errors, write_bytes

    for folder in sorted({path.parent for path in files}):
        if run := enclosing_run(folder):
            reason = f"is inside {run}, the folder of a run, which must not contain keys; choose another folder"
            raise OutputError(reason, code="foreign", field=str(folder), value=str(run))
    for path, content in files.items():
        with output_errors(path):
            unchanged = path == same and path.is_file() and path.read_bytes() == content
            if (path.exists() or path.is_symlink()) and not force and not unchanged:
                reason = "exists already; use --force to overwrite it permanently"
                raise OutputError(reason, code="exists", field=str(path), value=str(path))
    for path, content in files.items():
        with output_errors(path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(path, content)
