"""Embedding inversion: columns of passive parties from the first embeddings of their bottom models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, ColumnGuess, SharedStart
from labelward.attacks.clustering import validate_rows
from labelward.attacks.nets.view_embeddings import Batches, embeddings_of_epoch
from labelward.errors import DataError
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_TRIED = 32  # rows by which the number of columns is found
_FITTED = 0.9  # share of these rows that a right number fits
_DEVIATION = 1e-4  # of the largest embedding: up to this, rounding and repeated steps explain it


@dataclass(frozen=True, kw_only=True)
class EmbeddingInversion(Attack):
    """Columns of passive parties, by inverting their bottom models, if these began with weights of the shared seed.

    Up to version 0.1.0 the initial weights of every bottom model followed from the seed that all parties share. The
    embeddings of the first batch are then a known function of the columns, and determine them where there are fewer
    columns than numbers in an embedding: Levenberg-Marquardt inverts it row by row. For the next batch the attacker
    repeats the party's step, with the columns that it found and the gradient that it returned, and so on through the
    first epoch. The number of columns is the least one with which the embeddings can be inverted. Initial weights of a
    private seed fit no number of columns, and the attack gives no answer.

    Setting: a curious active party of a split network whose bottom models are ``"linear"`` or ``"mlp"``. It knows its
        own columns, labels, models and the gradients that it returned, which it computes again; after a defense of
        gradients it inverts the first batch only. Columns are numbers; a party with a categorical column gets no
        answer. They are found up to their unit: less their mean, divided by their standard deviation.
    """

    kind: ClassVar[str] = "embedding-inversion"
    primary: ClassVar[str] = "recovered"
    models: ClassVar[tuple[str, ...]] = ("splitnn",)
    roles: ClassVar[tuple[str, ...]] = ("active",)
    target: ClassVar[Literal["labels", "columns"]] = "columns"

    columns: Annotated[
        PositiveInt,
        Meta(description="Largest number of columns of a party that is tried; always below the embedding's size."),
    ] = 8

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads embeddings."""
        return True

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> ColumnGuess:
        """Return the columns of the parties whose embeddings can be inverted, NaN for rows that cannot.

        Notes: the rows inverted, by party.

        Raises:
            DataError: the view is a passive party's; ``own`` does not hold its rows; the view has digests.
            FileFormatError: records of the view contradict each other.
        """
        if view.header.role != "active":
            reason = f"{self.kind} reads the view of the active party, but {view.party!r} is a passive one"
            raise DataError(reason, code="unsupported", value=view.party)
        validate_rows(view, own)
        start = own.shared_start() if own.shared_start is not None else None
        received = embeddings_of_epoch(view, 0)
        if start is None or start.bottom is None or not received:
            return ColumnGuess(kind="standardized")
        returned = [] if own.returned is None else list(own.returned())
        cells, notes = {}, {}
        for peer, batches in received.items():
            gradients = [each[peer] for each in returned]
            found = self._columns(view, start, peer, batches, gradients, rng)
            notes[f"rows of {peer} inverted"] = 0.0 if found is None else float(np.isfinite(found[:, 0]).sum())
            if found is not None:
                cells[peer] = found
        return ColumnGuess(cells=cells, kind="standardized", notes=notes)

    def _columns(
        self,
        view: View,
        start: SharedStart,
        peer: str,
        batches: Batches,
        gradients: Sequence[Floats],
        rng: np.random.Generator,
    ) -> Floats | None:
        """Return float64 [rows, columns], NaN where a row is not inverted; None: no number of columns fits."""
        from labelward.attacks.nets.inversion import Replay, invert

        assert start.bottom is not None
        first, outputs = batches[0][1], batches[0][1].shape[1]
        for width in range(1, min(self.columns, outputs - 1) + 1):
            _, apart = invert(start.bottom(peer, width, outputs), first[:_TRIED].astype(np.float64), width, rng)
            if np.mean(apart < _deviation(first)) >= _FITTED:
                break
        else:
            return None
        cells = np.full((view.rows, width), np.nan)
        replay = Replay(start.bottom(peer, width, outputs), view)
        for batch, (rows, embeddings) in enumerate(batches):
            values, apart = invert(replay.copy(), embeddings.astype(np.float64), width, rng)
            fits = apart < _deviation(embeddings)
            cells[rows[fits]] = values[fits]
            if batch >= len(gradients) or np.mean(fits) < _FITTED:
                break
            replay.step(values, gradients[batch])
        known = np.isfinite(cells[:, 0])
        if (np.isin(np.round(cells[known], 3), (0.0, 1.0))).all(axis=0).any():
            return None  # an indicator of a category: standardized columns never have these two values alone
        if view.parameter("model.standardize") is False:
            spread = cells[known].std(axis=0)
            cells = (cells - cells[known].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return cells


def _deviation(embeddings: NDArray[Any]) -> float:
    unit = max(_DEVIATION, 4 * float(np.finfo(embeddings.dtype).eps))
    return unit * float(np.abs(embeddings).max(initial=0.0))
