"""Attribute inference: a further attribute of each row, from own columns and the labels that completion inferred."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.active_completion import ActiveCompletion
from labelward.attacks.base import UPPER_BOUND, AttackerData, AuxiliaryKnowledge, Baseline, ColumnGuess, LabelGuess
from labelward.attacks.known_label_models import fit_logistic, predict_known
from labelward.errors import DataError
from labelward.parameters import PositiveInt
from labelward.party.view import View

Classes = NDArray[np.int64]
Learner = Literal["network", "logistic"]

LEARNERS: tuple[Learner, ...] = ("network", "logistic")
_HIDDEN_LAYERS = (32, 16)


@dataclass(frozen=True, kw_only=True)
class AttributeInference(ActiveCompletion):
    """A further attribute of each row, by a model of own columns and of labels that model completion inferred.

    The second step of label inference: the inferred label is one more column of the attacker, from which it learns an
    attribute that it knows of a few rows. The attribute is a category, or on which side of its median a quantity is.

    Setting: a curious passive party of a split network that lacks the attribute; another party may hold it, or nobody.
        Auxiliary knowledge: the attribute of ``known_values`` training rows, equally many of each value, which are not
        scored; and the labels of ``auxiliary`` rows, as for the completion. With ``honest = false`` the party trains
        with the malicious optimizer, for the labels of active completion.

    Reference: Appendix E of the label inference paper, second step. It does not name the model that infers the
    attribute: here a network of three layers, as its bottom models have, or logistic regression.
    """

    kind: ClassVar[str] = "attribute-inference"
    primary: ClassVar[str] = "accuracy"
    target: ClassVar[Literal["labels", "columns"]] = "columns"

    column: Annotated[
        str,
        Meta(
            min_length=1,
            description="Column of the attribute: of the common table, whether or not a party holds it; where parties "
            "have tables of their own, as 'party.column'.",
        ),
    ]
    known_values: Annotated[
        PositiveInt, Meta(description="Number of training rows whose attribute the attacker knows.")
    ] = 40
    learner: Annotated[
        Learner,
        Meta(description="Model of the attribute: 'network' (three layers) or 'logistic' (logistic regression)."),
    ] = "network"
    honest: Annotated[
        bool,
        Meta(
            description="Labels are those of passive completion, in the run of a party that follows the protocol; "
            "false: of active completion, for which an audit makes a run of its own."
        ),
    ] = True

    @property
    def attribute(self) -> tuple[str, int]:
        """The column, and the number of rows whose value is known."""
        return self.column, self.known_values

    def __call__(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator) -> Any:
        """Return scores of the attribute's values for each row, NaN for those that the attacker knows.

        Notes are those of the completion.

        Raises:
            DataError: no value of the attribute is known; or as for the completion.
            DependencyError: torch is not installed.
            FileFormatError: records of the view contradict each other.
            InputError: as for the completion.
        """
        known = self._known_values(aux)
        inferred = super().__call__(view, own, aux, rng=rng)
        guess = self._learned(append_labels(own, inferred.values, aux.classes), known, rng)
        return replace(guess, notes=inferred.notes)

    def baselines(
        self, own: AttackerData, aux: AuxiliaryKnowledge, *, truth: NDArray[np.int64] | None
    ) -> dict[str, Baseline]:
        """Return ``"own columns"``, the same model without labels; and the upper bound, the same with true labels."""
        known = self._known_values(aux)
        inputs = {"own columns": own}
        if truth is not None:
            inputs[UPPER_BOUND] = append_labels(own, truth, aux.classes)

        def guess_of(columns: AttackerData) -> Baseline:
            return Baseline(
                guess=lambda rng: self._learned(columns, known, rng),
                depends_on=(self.attribute, self.learner),
            )

        return {name: guess_of(columns) for name, columns in inputs.items()}

    def _known_values(self, aux: AuxiliaryKnowledge) -> AuxiliaryKnowledge:
        if aux.attribute is None or not len(aux.attribute.known_rows):
            reason = "the attacker must know the attribute of some rows"
            raise DataError(reason, code="missing", field="[[attack]] column", value=self.column)
        return aux.attribute

    def _learned(self, columns: AttackerData, known: AuxiliaryKnowledge, rng: np.random.Generator) -> ColumnGuess:
        guess = infer_attribute(columns, known, learner=self.learner, seed=int(rng.integers(2**31)))
        assert guess.scores is not None
        scores = guess.scores.copy()
        scores[known.known_rows] = np.nan
        return ColumnGuess(scores={("", self.column): scores})


def infer_attribute(columns: AttackerData, known: AuxiliaryKnowledge, *, learner: Learner, seed: int) -> LabelGuess:
    """Return the guess of an attribute of all rows.

    Args:
        columns: of the attacker, with a column of labels where it has inferred some (:func:`append_labels`).
        known: the number of the attribute's values, and the rows of which it is known.
        learner: ``"network"`` of three layers, or ``"logistic"`` regression.
        seed: of the network's weights.
    """
    own = replace(columns, outside=None)
    return fit_logistic(own, known) if learner == "logistic" else _network(own, known, seed)


def append_labels(own: AttackerData, labels: Classes, classes: int) -> AttackerData:
    """Return a party's columns and one more, categorical, of class numbers int64 [rows]; without rows outside.

    Images and texts are laid out in one column for each number.
    """
    if not own.columns:
        wide = own.numbers()
        own = replace(own, features=wide, columns=[str(column) for column in range(wide.shape[1])])
    name = "label"
    while name in own.columns:
        name += "_"
    return replace(
        own,
        features=np.column_stack([own.features, labels]),
        columns=[*own.columns, name],
        categories={**own.categories, name: classes},
        outside=None,
    )


def _network(own: AttackerData, aux: AuxiliaryKnowledge, seed: int) -> LabelGuess:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(_HIDDEN_LAYERS, random_state=seed, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is fixed
        return predict_known(model, own, aux)
