"""Private seeds of the parties of a run, each stored only by its owner.

Draws that other parties must not reproduce (test rows, rows sampled by gradient) use these seeds and nothing that
another party knows. They are written once, before training, and read again when the run is resumed or repeated. A
simulation of all parties stores all seeds in one file; in a real deployment each party stores its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from labelward.errors import FileFormatError, OutputError
from labelward.party.json_file import read_versioned
from labelward.rng import PrivateSeed
from labelward.runs.secure_files import output_errors, write_json

FORMAT: Final = 1
PRIVATE_FILE = "private-seeds.json"

Seeds = Mapping[str, PrivateSeed]
"""Seeds by party."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``private-seeds.json``: for each party 32 bytes as hex."""

    format: int = FORMAT
    seeds: dict[str, str]


def stored_seeds(folder: Path) -> Seeds:
    """Return the seeds stored in a folder; empty if it has no seed file.

    Raises:
        FileFormatError: the file is damaged or of another format version.
    """
    path = folder / PRIVATE_FILE
    with output_errors(path):
        if not path.exists():
            return {}
    stored = read_versioned(path, _Stored, FORMAT)
    try:
        return {party: PrivateSeed.from_hex(text) for party, text in stored.seeds.items()}
    except ValueError as error:
        reason = f"a seed is not {PrivateSeed.SIZE} bytes as hex"
        raise FileFormatError(reason, code="damaged", field=str(path)) from error


def resolve_seeds(parties: Iterable[str], folder: Path | None = None, repeat: Sequence[Path] = ()) -> Seeds:
    """Return a seed for each party: from ``folder``, else from the first folder to repeat that has one, else new.

    Args:
        folder: folder of the run; not written to.
        repeat: folders of earlier runs, or of parties in one, whose draws are repeated.

    Raises:
        FileFormatError: a folder to repeat has no seeds, or only those of other parties; or a file is damaged or
            incomplete.
        OutputError: the run in ``folder`` has other seeds than the one to repeat.
    """
    seeds: dict[str, PrivateSeed] = {}
    for each in repeat:
        earlier = stored_seeds(each)
        if not earlier:
            raise FileFormatError(
                "contains no private seeds to repeat; name the folder of an audit, a training or a party's run",
                code="not-found",
                field=str(each / PRIVATE_FILE),
            )
        seeds = {**earlier, **seeds}
    own, wanted = {} if folder is None else stored_seeds(folder), list(parties)
    if repeat and not seeds.keys() & set(wanted):
        reason = f"contain no private seed of {', '.join(wanted)}, only of {', '.join(seeds)}"
        raise FileFormatError(reason, code="other-run", field=", ".join(map(str, repeat)))
    if own and not set(wanted) <= own.keys():
        missing = sorted(set(wanted) - own.keys())
        reason = f"contains no private seed of {', '.join(missing)}"
        raise FileFormatError(reason, code="damaged", field=str(folder), value=missing)
    for party, seed in own.items():
        if party in seeds and seeds[party] != seed:
            raise OutputError(
                f"has another seed for {party!r} than the run to repeat; choose another folder, or use --force",
                code="other-run",
                field=str(folder),
            )
    seeds |= own
    return {party: seeds.get(party) or PrivateSeed.drawn() for party in wanted}


def keep_seeds(folder: Path, seeds: Seeds) -> Seeds:
    """Store the seeds of a run unless it has some already; return the stored ones."""
    stored = stored_seeds(folder)
    if not stored:
        write_json(folder / PRIVATE_FILE, _Stored(seeds={party: seed.hex() for party, seed in seeds.items()}))
    return stored or seeds
