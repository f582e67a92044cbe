"""Record of drawn noise: that it was drawn outlives the checkpoints, which hold what was drawn.

Noise on the same labels or gradients, drawn twice, tells more than its account says. The record is a file outside the
folder of checkpoints. It is written after the first checkpoint and before anything that carries the noise leaves; so a
run whose checkpoints were purged, deleted or damaged is refused instead of drawing anew. It holds no key and no noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from labelward.errors import OutputError, PolicyError
from labelward.party.checkpoint import Checkpoints
from labelward.party.durable_files import write_durably
from labelward.party.json_file import encode_versioned, read_versioned
from labelward.party.purge_record import read_purges
from labelward.policy.base import Policy

FORMAT = 1


class NoiseDraw(msgspec.Struct, frozen=True, kw_only=True):
    """Noise that one defense drew for one training.

    Attributes:
        time: in UTC, to the second, as ISO 8601.
        defense: kind of the defense.
        rows: digest of the row ids of the training.
        epsilon: the most that the training costs; None for noise without an account.
        delta: that belongs to epsilon; 0 without one.
        superseded: whether its training was given up, with ``--force`` or because a peer lost what it had drawn; its
            cost is added to later ones in the folder.
    """

    time: str
    defense: str
    rows: str
    epsilon: float | None = None
    delta: float = 0.0
    superseded: bool = False


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    draws: tuple[NoiseDraw, ...]


def read_draws(path: Path) -> tuple[NoiseDraw, ...]:
    """Return all draws of a record, oldest first; empty if there is no file.

    Raises:
        FileFormatError: the record is damaged, or of another format version.
    """
    return read_versioned(path, _Stored, FORMAT).draws if path.exists() else ()


def refuse_redraw(drawing: Iterable[Policy], checkpoints: Checkpoints) -> None:
    """Refuse to draw where an earlier attempt may have drawn and no checkpoint holds what: a second draw tells more.

    Raises:
        PolicyError: names the defense and the file that says so.
    """
    for policy in drawing:
        for path, reason in _earlier(policy, checkpoints):
            raise PolicyError(
                f"defense {policy.kind!r} may not draw again what an earlier attempt drew, and no checkpoint that "
                f"could be gone on from holds that: {reason}. Put the checkpoints back, or start over with --force, "
                "where the costs of both add up",
                code="cannot-act",
                field=path,
                value=policy.kind,
            )


def _earlier(policy: Policy, checkpoints: Checkpoints) -> Iterator[tuple[str, str]]:
    """Yield files that tell of an earlier draw, each with what it tells."""
    folder, noise = checkpoints.folder, checkpoints.noise
    for sentence in checkpoints.damaged:
        yield str(folder), sentence
    for draw in read_draws(noise) if noise else ():
        if draw.defense == policy.kind and not draw.superseded:
            yield str(noise), f"{noise} says that noise was drawn at {draw.time}"
    for purge in read_purges(folder) if folder else ():
        if any(file.name.endswith(".lwc") for file in purge.files):
            yield str(folder), f"checkpoints were purged at {purge.time}"


def record_draws(drawing: Iterable[Policy], checkpoints: Checkpoints) -> None:
    """Record that policies drew, unless the record says so already; it is on disk when this returns.

    Call it once an attempt, when a checkpoint holds what they drew, and before anything leaves.

    Noise that is derived from a stored key and from what is sent is the same in a new beginning as long as all parties
    do what they did. Where a peer has lost what it drew (:attr:`Checkpoints.apart`), the sums or gradients are others,
    and so is the noise on them: the attempts before then cost as much as a training that was given up.
    """
    if checkpoints.noise is None:
        return
    draws = read_draws(checkpoints.noise)
    found = list[NoiseDraw](draws)
    for policy in drawing:
        place = next((at for at, each in enumerate(found) if each.defense == policy.kind and not each.superseded), None)
        drawn = NoiseDraw(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            defense=policy.kind,
            rows=checkpoints.run.get("rows", ""),
            epsilon=policy.promise,
            delta=float(getattr(policy, "delta", None) or 0.0),
        )
        if place is None:
            found.append(drawn)
            continue
        if found[place].epsilon is None:  # as versions before recorded it that had no account of this defense
            found[place] = msgspec.structs.replace(found[place], epsilon=drawn.epsilon, delta=drawn.delta)
        if checkpoints.apart and _follows_peers(policy):
            found[place] = msgspec.structs.replace(found[place], superseded=True)
            found.append(drawn)
    if tuple(found) != draws:
        _write(checkpoints.noise, tuple(found))


def _follows_peers(policy: Policy) -> bool:
    """Return whether what a policy promises is of noise on what depends on the peers, not on the labels alone."""
    scopes = policy.scopes(policy.parameters()).values()
    return policy.promise is not None and any(scope.private != "labels" for scope in scopes)


def with_earlier_cost(account: Mapping[str, Any], checkpoints: Checkpoints) -> dict[str, Any]:
    """Return a policy's account with the cost of trainings that were given up.

    ``spent`` then is the sum, and ``spent_before`` (``delta_before``) says what of it they cost at most. They count on
    whatever rows they were: of two tables with different rows most may be the same.
    """
    draws = read_draws(checkpoints.noise) if checkpoints.noise and "spent" in account else ()
    before = [draw for draw in draws if draw.superseded and draw.epsilon is not None]
    if not before:
        return dict(account)
    spent = math.fsum(draw.epsilon or 0.0 for draw in before)
    found = {**account, "spent": account["spent"] + spent, "spent_before": spent}
    delta = sum(draw.delta for draw in before)
    return found | ({"delta_before": delta} if delta else {})


def supersede_draws(path: Path) -> None:
    """Give up the trainings whose noise is recorded, so that another may draw; both then count."""
    draws = read_draws(path)
    if any(not draw.superseded for draw in draws):
        _write(path, tuple(msgspec.structs.replace(draw, superseded=True) for draw in draws))


def _write(path: Path, draws: tuple[NoiseDraw, ...]) -> None:
    try:
        write_durably(path, encode_versioned(_Stored(format=FORMAT, draws=draws)))
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", code="unwritable", field=str(path)) from error
