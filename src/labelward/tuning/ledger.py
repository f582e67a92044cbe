"""Ledger: what a search measured, one flushed line for each evaluation, and the files that follow from it.

``search.json`` holds what all evaluations share, ``evaluations.jsonl`` one :class:`Evaluation` a line, ``front.jsonl``
one :class:`FrontPoint` a line. A search that was killed repeats its path with the stored evaluations. One that came to
its end leaves ``evaluations.jsonl.gz``, the same lines in a third of the room.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from labelward.errors import FileFormatError
from labelward.party.json_file import decode_versioned, read_versioned
from labelward.runs.secure_files import append_line, output_errors, write_bytes

FORMAT = 1
SEARCH_FILE, LEDGER_FILE, FRONT_FILE, RESULT_FILE = "search.json", "evaluations.jsonl", "front.jsonl", "result.json"
CLOSED_FILE = f"{LEDGER_FILE}.gz"
SETTINGS = "settings"


def is_search(folder: Path) -> bool:
    """Return whether a search was begun in a folder."""
    return (folder / SEARCH_FILE).exists()


class Point(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A setting's figures: of a training, or of its first trees or epochs. A list in the file, as most lines have many.

    Attributes:
        values: the objectives, in their order, all minimized.
        length: how many first trees or epochs; None: the training's own.
    """

    values: tuple[float, ...]
    length: int | None = None


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training.

    Attributes:
        key: of setting, seed, rows, data and version.
        version: of labelward.
        data: digest of the tables.
        rows: what is scored: ``"validation"`` in the search, ``"test"`` for its front.
        share: of the training rows that were trained on.
        status: ``"refused"``: model or defenses do not take the setting; ``"failed"``: the training did not end;
            ``"cut"``: it was ended early, so that only its first trees are points.
        reason: of a refusal, failure or cut; why first trees are no points, if they are not.
        varies: the variable whose first values are points as well; empty: none.
        points: the training last, before it its first trees or epochs.
        counts: ciphertext operations.
        seconds: of a processor, for training and attacks.
    """

    format: Literal[1] = 1
    key: str
    version: str
    data: str
    setting: dict[str, Any]
    seed: int
    rows: Literal["validation", "test"] = "validation"
    share: float = 1.0
    status: Literal["done", "cut", "refused", "failed"] = "done"
    reason: str = ""
    varies: str = ""
    points: tuple[Point, ...] = ()
    counts: dict[str, int] = {}
    seconds: float = 0.0

    def compared(self) -> list[tuple[dict[str, Any], tuple[float, ...]]]:
        """Return setting and objectives of each point."""
        lengths = [{} if point.length is None else {self.varies: point.length} for point in self.points]
        return [({**self.setting, **each}, point.values) for each, point in zip(lengths, self.points, strict=True)]


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all evaluations of a search share.

    Attributes:
        variables: name and range of each.
        bounds: best and worst corner of the fixed hypervolume.
        units: seconds of an operation.
        own_columns: leakage of the same attacks on an empty view: what a party's own columns give.
        utility_metric: whose complement the loss of utility is.
        margin: standard errors that a confirmed mean must stay below a limit.
    """

    format: Literal[1] = 1
    version: str
    data: str
    dataset: str
    seed: int
    search: str
    evaluations: int
    objectives: tuple[str, ...]
    constraints: dict[str, float]
    variables: tuple[dict[str, Any], ...]
    bounds: tuple[tuple[float, ...], tuple[float, ...]]
    units: dict[str, float]
    own_columns: float | None
    utility_metric: str
    margin: float


class FrontPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that no other beats, as it was found and as it was measured again.

    Attributes:
        number: of ``settings/NUMBER.toml``.
        found: objectives on the validation rows of the search's seed.
        tested: objectives on its test rows, scored once; None without confirmation.
        confirmed: objectives for each further seed, on test rows.
        undominated: whether no other point of the front beats the means of the further seeds; None without any.
        feasible: whether ``found`` is within all limits.
    """

    format: Literal[1] = 1
    number: int
    setting: dict[str, Any]
    found: tuple[float, ...]
    tested: tuple[float, ...] | None = None
    confirmed: tuple[tuple[float, ...], ...] = ()
    undominated: bool | None = None
    feasible: bool = True


class SearchSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search that came to its end, in figures that follow from its ledger.

    Attributes:
        hypervolume: after each evaluation, of all points between the fixed bounds.
        feasible: the same of points within the limits.
        pooled: at the end, between the least and the largest value of each objective in this search, as the paper has
            it: it depends on what else is pooled.
        trainings: evaluations of the search that ended, were cut short, were refused, failed.
    """

    format: Literal[1] = 1
    hypervolume: tuple[float, ...]
    feasible: tuple[float, ...]
    pooled: float
    trainings: tuple[int, int, int, int]


T = TypeVar("T", bound=msgspec.Struct)


def evaluation_key(job: Mapping[str, Any], data: str, seed: int, rows: str, share: float, version: str) -> str:
    """Return the key of an evaluation: a digest of all that its figures follow from.

    Args:
        job: with the setting and the lengths that count.
        data: digest of the tables.
    """
    text = msgspec.json.encode([job, data, seed, rows, share, version], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:24]


class Ledger:
    """The evaluations of a folder, in memory by key, and on the disk as they come."""

    def __init__(self, folder: Path) -> None:
        self.path, self._closed = folder / LEDGER_FILE, folder / CLOSED_FILE
        self.known = {each.key: each for each in read_evaluations(folder)}

    def add(self, evaluation: Evaluation) -> None:
        """Append an evaluation, flushed; an incomplete last line is dropped first."""
        append_line(self.path, evaluation)
        self.known[evaluation.key] = evaluation

    def close(self) -> None:
        """Compress the lines of a search that came to its end; a process that is killed meanwhile leaves both files."""
        write_bytes(self._closed, gzip.compress(msgspec.json.Encoder().encode_lines(self.known.values()), mtime=0))
        with output_errors(self.path):
            self.path.unlink(missing_ok=True)


def read_evaluations(folder: Path) -> list[Evaluation]:
    """Return the evaluations of a folder, be it closed or not; errors as of :func:`read_lines`."""
    found = [each for name in (CLOSED_FILE, LEDGER_FILE) for each in read_lines(folder / name, Evaluation)]
    return list({each.key: each for each in found}.values())


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Return the records of a file, without an incomplete last line; none if there is no file.

    Raises:
        FileFormatError: a line is damaged, or of another format version.
    """
    lines = _content(path).split(b"\n")[:-1] if path.exists() else []
    return [decode_versioned(line, kind, FORMAT, field=f"{path}, line {at}") for at, line in enumerate(lines, start=1)]


def _content(path: Path) -> bytes:
    """Return the bytes of a file, which may be compressed."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(f"damaged: {error}", code="damaged", field=str(path)) from error


def read_one(path: Path, kind: type[T]) -> T:
    """Return the record of a file; errors as of :func:`read_lines`, and if there is no file."""
    return read_versioned(path, kind, FORMAT)
