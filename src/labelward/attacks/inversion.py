"""Model inversion: a column of another party, from the embeddings that it sends and a few known values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.after_epoch import AfterEpoch
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, Baseline, ColumnGuess
from labelward.attacks.clustering import validate_rows
from labelward.attacks.nets.view_embeddings import embeddings_by_row
from labelward.errors import DataError
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Inversion(AfterEpoch):
    """A column of two values of another party, by a model of the embeddings of rows whose value is known.

    A perceptron learns to tell the value from the standardized embeddings of the last epoch in the view.

    Setting: a curious active party of a split network. Auxiliary knowledge: the values of ``auxiliary`` training rows,
        equally many of each; these are not scored. On a view without embeddings it learns from the active party's own
        columns, which is also a baseline.

    Reference: Appendix G.3 of the LPSC paper, after He et al., "Model inversion attacks against collaborative
        inference" (2019). The network there is not described.
    """

    kind: ClassVar[str] = "inversion"
    primary: ClassVar[str] = "auc"
    models: ClassVar[tuple[str, ...]] = ("splitnn",)
    roles: ClassVar[tuple[str, ...]] = ("active",)
    target: ClassVar[Literal["labels", "columns"]] = "columns"

    column: Annotated[str, Meta(description="Column that is inferred, as 'party.column'; it has two values.")]
    auxiliary: Annotated[
        PositiveInt, Meta(description="Number of training rows whose value of the column the attacker knows.")
    ] = 1000
    width: Annotated[PositiveInt, Meta(description="Width of the model's hidden layer.")] = 64

    def check_parameters(self) -> None:
        """Require the name of a party and a column."""
        if not all(self.column.partition(".")):
            raise self.error("column", "must name a party and a column of it, as 'telco.housing'", code="choice")

    @property
    def labels_needed(self) -> int:
        """Number of training rows whose value the attack requires."""
        return self.auxiliary

    @property
    def known_column(self) -> tuple[str, str]:
        """Party and column of the values."""
        party, _, column = self.column.partition(".")
        return party, column

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads embeddings."""
        return True

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> ColumnGuess:
        """Return scores of both values for each row, NaN for those that it was told.

        Raises:
            DataError: the view is a passive party's; ``own`` does not hold its rows; the view has digests; the known
                rows do not have two values.
            FileFormatError: records of the view contradict each other.
        """
        if view.header.role != "active":
            reason = f"{self.kind} reads the view of the active party, but {view.party!r} is a passive one"
            raise DataError(reason, code="unsupported", value=view.party)
        validate_rows(view, own)
        seen = embeddings_by_row(view, self.known_column[0], self.epoch)
        return self._guess(own.numbers() if seen is None else seen, aux, rng)

    def baselines(
        self, own: AttackerData, aux: AuxiliaryKnowledge, *, truth: NDArray[np.int64] | None
    ) -> dict[str, Baseline]:
        """Return ``"own columns"``: the same model of the attacker's columns, without the view."""
        return {"own columns": Baseline(guess=lambda rng: self._guess(own.numbers(), aux, rng))}

    def _guess(self, values: Floats, aux: AuxiliaryKnowledge, rng: np.random.Generator) -> ColumnGuess:
        if set(aux.known_labels.tolist()) != {0, 1}:
            raise DataError(
                "the known rows must have two values, and each of them",
                code="values",
                field="[[attack]] column",
                value=self.column,
            )
        scores = _fitted_scores(values, aux, self.width, int(rng.integers(2**31)))
        scores[aux.known_rows] = np.nan
        return ColumnGuess(scores={self.known_column: scores})


def _fitted_scores(values: Floats, aux: AuxiliaryKnowledge, width: int, seed: int) -> Floats:
    from sklearn.neural_network import MLPClassifier

    if not values.shape[1]:
        values = np.zeros((len(values), 1))
    known = values[aux.known_rows]
    spread = known.std(axis=0)
    scaled = (values - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    model = MLPClassifier((width,), early_stopping=len(known) >= 100, max_iter=500, random_state=seed)
    model.fit(scaled[aux.known_rows], aux.known_labels)
    return np.asarray(model.predict_proba(scaled), dtype=np.float64)
