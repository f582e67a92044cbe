"""What the members of a coalition know together, as the attacker of a joined view knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from labelward.attacks.base import AttackerData
from labelward.errors import DataError
from labelward.party.joined_view import JoinedView, joined_column


def joined_data(parties: Sequence[str], data: Sequence[AttackerData]) -> AttackerData:
    """Return the data of several parties as those of one, with their columns side by side as ``party.column``.

    The bottom models become one that gives the embeddings of all, side by side.

    Args:
        parties: names, in party order, as in the joined view.
        data: of each party; rows in the same order.

    Raises:
        DataError: images or texts, of which columns cannot stand side by side; or numbers of rows that differ.
    """
    for party, each in zip(parties, data, strict=True):
        if each.features.ndim != 2 or (each.features.shape[1] and not each.columns):
            reason = f"party {party!r} has images or texts; only columns of tables are joined"
            raise DataError(reason, code="unsupported", value=party)
        if len(each.features) != len(data[0].features):
            rows = {name: len(one.features) for name, one in zip(parties, data, strict=True)}
            raise DataError(f"the members have different numbers of rows: {rows}", code="rows", value=rows)
    named = list(zip(parties, data, strict=True))
    runs = list(zip(*(each.other_runs for each in data), strict=False))
    widths = [each.features.shape[1] for each in data]
    outside = [each.outside for each in data if each.outside is not None]
    return AttackerData(
        features=np.hstack([each.features for each in data]),
        columns=tuple(joined_column(party, name) for party, each in named for name in each.columns),
        categories={joined_column(party, name): n for party, each in named for name, n in each.categories.items()},
        monotone={joined_column(party, name): way for party, each in named for name, way in each.monotone.items()},
        bottom=_joined_module([each.bottom for each in data], widths),
        untrained=_joined_module([each.untrained for each in data], widths),
        outside=np.hstack(outside) if len(outside) == len(data) else None,
        other_runs=tuple(JoinedView(views) for views in runs),
    )


def _joined_module(made: Sequence[Callable[[], Any] | None], widths: Sequence[int]) -> Callable[[], Any] | None:
    """Return what makes one model of several, each over its own columns; None where any is missing."""
    present = [each for each in made if each is not None]
    return partial(_side_by_side, present, widths) if len(present) == len(made) else None


def _side_by_side(made: Sequence[Callable[[], Any]], widths: Sequence[int]) -> Any:
    from labelward.attacks.nets.side_by_side import SideBySide

    return SideBySide([each() for each in made], widths)
