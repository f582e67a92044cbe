"""The private seeds of the parties of a run, on the disk of those who own them.

What is drawn from them (which rows are tested on, which are sampled by their gradients) is never drawn from anything
that another party knows. They are written once, before anything is trained, and read again by all that goes on with or
repeats the run. A rehearsal plays all parties and keeps all seeds in one file; between companies each has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from labelward.errors import FileFormatError, OutputError
from labelward.rng import PrivateSeed
from labelward.runs.json_records import read_json, write_json
from labelward.runs.secure_files import output_errors

FORMAT: Final = 1
PRIVATE_FILE = "private-seeds.json"

Seeds = Mapping[str, PrivateSeed]
"""By party."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``private-seeds.json``: for each party 32 bytes as hex."""

    format: int = FORMAT
    seeds: dict[str, str]


def stored_seeds(folder: Path) -> Seeds:
    """Return the seeds that a folder holds; none where it has no file of them.

    Raises:
        FileFormatError: the file is damaged or of another format version.
    """
    path = folder / PRIVATE_FILE
    with output_errors(path):
        if not path.exists():
            return {}
    stored = read_json(path, _Stored, FORMAT)
    try:
        return {party: PrivateSeed.from_hex(text) for party, text in stored.seeds.items()}
    except ValueError as error:
        reason = f"holds no {PrivateSeed.SIZE} bytes as hex for each party"
        raise FileFormatError(reason, code="damaged", field=str(path)) from error


def resolve_seeds(parties: Iterable[str], folder: Path | None = None, repeat: Sequence[Path] = ()) -> Seeds:
    """Return a seed for each party: that of ``folder``, else of a folder to repeat (the first that has one), else new.

    Args:
        folder: of the run; nothing is written into it.
        repeat: folders of earlier runs, or of parties of one, whose draws are to be repeated.

    Raises:
        FileFormatError: a folder to repeat holds no seeds, or of other parties; or a file is damaged or incomplete.
        OutputError: the run in ``folder`` draws otherwise than one that is to be repeated.
    """
    found: dict[str, PrivateSeed] = {}
    for each in repeat:
        earlier = stored_seeds(each)
        if not earlier:
            raise FileFormatError(
                "holds no private seeds to repeat; name the folder of an audit, a training or a party's run",
                code="not-found",
                field=str(each / PRIVATE_FILE),
            )
        found = {**earlier, **found}
    own, wanted = {} if folder is None else stored_seeds(folder), list(parties)
    if repeat and not found.keys() & set(wanted):
        reason = f"hold no private seed of {', '.join(wanted)}, but of {', '.join(found)}"
        raise FileFormatError(reason, code="other-run", field=", ".join(map(str, repeat)))
    if own and not set(wanted) <= own.keys():
        missing = sorted(set(wanted) - own.keys())
        reason = f"holds no private seed of {', '.join(missing)}"
        raise FileFormatError(reason, code="damaged", field=str(folder), value=missing)
    for party, seed in own.items():
        if party in found and found[party] != seed:
            raise OutputError(
                f"its run draws otherwise for {party!r} than the one to repeat; choose another folder, or --force",
                code="other-run",
                field=str(folder),
            )
    found |= own
    return {party: found.get(party) or PrivateSeed.drawn() for party in wanted}


def keep_seeds(folder: Path, seeds: Seeds) -> Seeds:
    """Write the seeds of a run where it has none yet, and return those that it has now."""
    stored = stored_seeds(folder)
    if not stored:
        write_json(folder / PRIVATE_FILE, _Stored(seeds={party: seed.hex() for party, seed in seeds.items()}))
    return stored or seeds
