"""Non-interference: what no policy released does not depend on the labels.

::

    views = [run(labels).views for labels in relabelings(labels, classes=2, count=20, rng=rng)]
    coverage = check_non_interference(views, holders={"active"})

Setting: a curious party that holds no label, or labels that are equal in all runs. Two runs differ in labels only:
columns, seeds and all noise are equal. Its views are compared message by message. The comparison of two runs ends at
the first message in which a ``Released`` value differs, since everything later may depend on labels through it. Up to
there all else must be equal: who sends a message of which type at which step, every other field (of ciphertexts shape,
layout and size), and whether another message follows.

Of fields that a message class declares as ``masked`` the size is compared: that masks hide their content, and serve
once, needs a test of its own.

So a view that passes is, as far as it was compared, a function of what policies released. What the party computes
itself (its observations, checkpoints and counters) is a function of its view and its own data; where a whole view is
equal, observations are compared, and whatever else ``left`` gives.

:func:`replayed` holds released values fixed where a protocol's sender does not act on them, such as the gradients of a
split network: then whole views are comparable whatever the labels.

Reference: Goguen and Meseguer, Security policies and security models (1982), with declassification by the policy chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.messages.base import Array, CipherDigest, Message, Released, wire_name
from labelward.party.view import View

_DRAWN = frozenset({"nonce", "ids", "buckets", "key", "model"})
"""Volatile fields that are drawn at random or depend on such draws, and on no label."""


class Interference(AssertionError):  # noqa: N818
    """Something in a view depends on labels that its party does not hold, and no policy released it."""


@dataclass
class Coverage:
    """How much was compared.

    Attributes:
        compared: messages that were compared, by type.
        whole: pairs of views that were equal to the end although their labels differ.
        pairs: pairs of views.
    """

    compared: dict[str, int] = field(default_factory=dict)
    whole: int = 0
    pairs: int = 0


def relabelings(
    labels: NDArray[np.int64],
    *,
    classes: int,
    count: int,
    rng: np.random.Generator,
    among: NDArray[np.int64] | None = None,
) -> list[NDArray[np.int64]]:
    """Return the labels, and ``count`` copies in each of which one label is another one, each of another row.

    Args:
        among: rows whose labels may change, such as those that others label; None: all.
    """
    rows = rng.choice(len(labels) if among is None else among, size=count, replace=False)
    changed = [labels.copy() for _ in rows]
    for row, each in zip(rows, changed, strict=True):
        each[row] = (each[row] + rng.integers(1, classes)) % classes
    return [labels, *changed]


def check_non_interference(
    runs: Sequence[Mapping[str, View]],
    *,
    holders: Collection[str],
    disclosed: Collection[str] = (),
    left: Sequence[Mapping[str, Any]] = (),
) -> Coverage:
    """Compare each party's views of every two runs, which differ in labels only.

    Args:
        runs: views by party.
        holders: the parties whose own labels change; their views are not compared.
        disclosed: what a protocol declares to tell of the labels apart from released values: ``"Type.field"``, or
            ``"Type"`` where the presence of a message tells it, or for an observation of what a key of the party opens.
        left: for each of the runs, by party what it left apart from the view, such as counters and checkpoints.

    Raises:
        Interference: names party, message, step, field and both values.
    """
    coverage = Coverage()
    for party in runs[0]:
        if party not in holders:
            after = [each[party] for each in left] or [None] * len(runs)
            views = [_Sequence.of(run[party], each) for run, each in zip(runs, after, strict=True)]
            for first, second in combinations(views, 2):
                _compare(party, first, second, disclosed, coverage)
    return coverage


@contextmanager
def replayed(cls: type, method: str, answers: list[Any]) -> Iterator[None]:
    """Let a method give the answers of an earlier run, in their order; the first run fills the empty list.

    Args:
        cls: such as ``PolicyChain``.
        method: which returns released values, and is called by one party only.
        answers: of all runs that are to be compared; the same list for each.
    """
    original, replay, at = getattr(cls, method), bool(answers), iter(range(1 << 62))

    def answer(self: Any, *args: Any, **kwargs: Any) -> Any:
        if replay:
            return answers[next(at)]
        answers.append(original(self, *args, **kwargs))
        return answers[-1]

    with mock.patch.object(cls, method, answer):
        yield


@dataclass(frozen=True)
class _Sequence:
    """A view as it is compared: the messages of each sender in their order, all observations, the header, the rest."""

    messages: list[tuple[str, tuple[int, ...], Message]]
    rest: list[tuple[str, bytes]]
    left: Any

    @classmethod
    def of(cls, view: View, left: Any) -> _Sequence:
        received = [(peer, step, each) for _, peer, step, each in view.records() if isinstance(each, Message)]
        received.sort(key=lambda each: each[0])  # messages of different senders may arrive in any order
        rest = [(each[2], msgspec.msgpack.encode(each)) for each in view.content() if each[0] == "observed"]
        return cls(received, [*rest, ("", msgspec.msgpack.encode(view.header))], left)


def _compare(party: str, first: _Sequence, second: _Sequence, disclosed: Collection[str], coverage: Coverage) -> None:
    coverage.pairs += 1
    for (peer, step, one), (other_peer, other_step, other) in zip(first.messages, second.messages, strict=False):
        name, other_name = wire_name(type(one)), wire_name(type(other))
        if (peer, name, step) != (other_peer, other_name, other_step):
            if name in disclosed or other_name in disclosed:
                return
            raise Interference(f"{party!r} received {name} {step} of {peer!r}, or {other_name} {other_step}")
        differing = [each for each in one.__struct_fields__ if _seen(one, each) != _seen(other, each)]
        if any(isinstance(getattr(one, each), Released) or f"{name}.{each}" in disclosed for each in differing):
            return
        for each in differing:
            if each not in _DRAWN or each not in one.volatile:
                values = f"{_value(one, each)!r} or {_value(other, each)!r}"
                raise Interference(f"{party!r}, {name} {step}, field {each}: {values}")
        coverage.compared[name] = coverage.compared.get(name, 0) + 1
    if len(first.messages) != len(second.messages):
        raise Interference(f"{party!r} received {len(first.messages)} or {len(second.messages)} messages")
    rest = [[each for each in view.rest if each[0] not in disclosed] for view in (first, second)]
    if rest[0] != rest[1]:
        raise Interference(f"the observations of {party!r} differ where all messages are equal")
    if first.left != second.left:
        raise Interference(f"what {party!r} kept differs where its views are equal: {first.left} or {second.left}")
    coverage.whole += 1


def _seen(message: Message, name: str) -> Any:
    """Return a field as it is compared: of one under masks its size, since its content differs in any two runs."""
    value = _value(message, name)
    if name not in message.masked:
        return value
    return (value.dtype, value.shape, len(value.data)) if isinstance(value, Array) else len(value)


def _value(message: Message, name: str) -> Any:
    value = getattr(message, name)
    if isinstance(value, Released):
        return value.value
    return msgspec.structs.replace(value, sha256=b"") if isinstance(value, CipherDigest) else value
