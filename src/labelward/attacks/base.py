"""Attack interface: a function of one party's recorded view, its own data, and stated auxiliary knowledge.

An attack infers labels (of a party without them) or columns of other parties (of any party).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError
from labelward.metrics.registry import Metric
from labelward.parameters import Parameters
from labelward.party.view import View

UPPER_BOUND = "all labels"
"""The baseline that knows the labels of all other rows: no attack, since nobody who attacks knows them."""

_MOST_CATEGORIES = 64

TREE_MODELS = ("secureboost", "forest", "pivodl", "federboost")
"""The kinds of model whose parties see which rows share nodes of trees, or a side of a split."""


@dataclass(frozen=True, kw_only=True)
class SharedStart:
    """The initial weights of a split network, if they were drawn from the seed that all parties share.

    Up to version 0.1.0 they were. Later versions draw them from each owner's private seed; these weights then have
    nothing to do with the run.

    Attributes:
        tops: takes the number of classes; returns, for each set of parties that may have columns, float64 [classes,
            numbers]: the derivative of the logits by the embedding of the view's party. Nothing without a linear top
            model.
        bottom: takes a peer, its number of columns and the size of its embedding; returns its bottom model (a
            ``torch.nn.Module``) for columns that are numbers and are scaled already. None: no such preset.
    """

    tops: Callable[[int], Sequence[NDArray[np.float64]]]
    bottom: Callable[[str, int, int], Any] | None


@dataclass(frozen=True, kw_only=True)
class AttackerData:
    """The attacker's own data and models.

    Attributes:
        features: float64 [rows, columns]: its own columns of the training rows, in the view's row order; NaN is a
            missing value. A categorical column contains codes. For a network over images or texts, the rows are the
            network's input: pixels [rows, channels, height, width], or token ids [rows, tokens] of integer dtype.
        columns: column names; empty for images and texts.
        categories: number of categories of each categorical column.
        monotone: 1 or -1 by name of each column with a monotone constraint: predictions may only rise, or only fall,
            with it. The job says so.
        bottom: returns a fresh copy of the bottom model that the party trained (a ``torch.nn.Module``), which takes
            ``features``; None for other models. Where it is a ``Sequential`` whose first part has ``categories``, that
            part encodes the columns.
        untrained: returns a fresh copy of the same bottom model before training.
        returned: yields the gradients that the active party returned in the first epoch, batch by batch, by peer, as it
            computes them again: float64 [rows of the batch, numbers]. None: other parties and models.
        shared_start: returns the initial weights that a version up to 0.1.0 would have drawn; None for other models.
        outside: the same columns of the party's other rows, which the model was not trained on; None: no such rows.
        other_runs: views of the same party in other runs over the same rows, such as those of other seeds.
        labels: float64 [rows], of a label holder: class numbers, or regression targets; NaN where another party holds
            the label; None: it holds none.
        weights: float64 [rows]: its row weights; None: all are 1.
        encrypted_rows: at the active party of a tree model, returns for each tree the integers that it encrypted,
            int64 [rows, k], each row as often as it was drawn, and which of the k counts rows; None: no such model.
    """

    features: NDArray[Any]
    columns: Sequence[str]
    categories: Mapping[str, int] = field(default_factory=dict)
    monotone: Mapping[str, int] = field(default_factory=dict)
    bottom: Callable[[], Any] | None = None
    untrained: Callable[[], Any] | None = None
    returned: Callable[[], Iterable[Mapping[str, NDArray[np.float64]]]] | None = None
    shared_start: Callable[[], SharedStart] | None = None
    outside: NDArray[Any] | None = None
    other_runs: Sequence[View] = ()
    labels: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    encrypted_rows: Callable[[View], Iterator[tuple[NDArray[np.int64], int]]] | None = None

    def numbers(self, rows: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return float64 [rows, wide] without gaps, for attacks that measure distances.

        A categorical column becomes one column of 0 and 1 for each category but the first, as a table whose categories
        were encoded before would have it; of more than 64 (hashed texts), one for each of the 64 most frequent in
        ``features``. A missing value becomes the mean of the others, 0 where there are none. Images and texts are laid
        out in one row each.

        Args:
            rows: the same columns of other rows, in place of ``features``.
        """
        given = self.features if rows is None else rows
        if not self.columns:
            return given.reshape(len(given), -1).astype(np.float64)
        parts = [
            _numbers(given[:, at], self.categories.get(name), self.features[:, at])
            for at, name in enumerate(self.columns)
        ]
        return np.hstack(parts)


@dataclass(frozen=True, kw_only=True)
class AuxiliaryKnowledge:
    """Auxiliary knowledge assumed of the attacker, as stated in the report.

    Attributes:
        classes: number of classes; for regression, number of equally filled bins of the target.
        known_rows: int64 [k]: positions of training rows whose labels the attacker knows; they are not scored.
        known_labels: int64 [k]: the class numbers of these rows; for an attack that names a column
            (:attr:`Attack.known_column`), numbers of the column's values, in ascending order.
        class_counts: int64 [classes]: rows of each class in training, validation and test together; None: unknown.
        attribute: what the attacker knows of a further attribute (:attr:`Attack.attribute`), beside labels: the number
            of its values, and the rows of which it knows the value; None: the attack names none.
    """

    classes: int
    known_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    known_labels: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    class_counts: NDArray[np.int64] | None = None
    attribute: AuxiliaryKnowledge | None = None


@dataclass(frozen=True, kw_only=True)
class LabelGuess:
    """The attacker's inference for each training row.

    Attributes:
        values: int64 [rows]: cluster numbers, without names of classes; or class numbers.
        kind: ``"clusters"``, or ``"labels"``.
        notes: further results of the attack (modularity, number of communities); reported, never scored.
        known_per_cluster: number of rows per cluster whose class the attacker knows and labels the cluster with; the
            rows are drawn in scoring. 0: clusters remain unlabeled.
        known_per_class: number of known rows of each class, drawn from all rows in scoring, that label clusters
            instead; 0: none.
        scores: float64 [rows, classes], for ``"labels"``: score of each class, on any scale that orders the rows of a
            class and the classes of a row; None: no scores.
        outside: the guess for the rows of :attr:`AttackerData.outside`, if the attack supports it.
    """

    values: NDArray[np.int64]
    kind: Literal["clusters", "labels"] = "clusters"
    known_per_cluster: int = 0
    known_per_class: int = 0
    notes: dict[str, float] = field(default_factory=dict)
    scores: NDArray[np.float64] | None = None
    outside: LabelGuess | None = None

    @property
    def known_rows(self) -> dict[str, int]:
        """How many known rows of what label clusters, as the arguments of functions that score them."""
        return {"known_per_cluster": self.known_per_cluster, "known_per_class": self.known_per_class}

    @classmethod
    def of_scores(cls, scores: NDArray[np.float64], outside: NDArray[np.float64] | None = None) -> LabelGuess:
        """Return the guess of the class with the best score in each row.

        Args:
            scores: float64 [rows, classes].
            outside: float64 [rows outside, classes], for the rows of :attr:`AttackerData.outside`; None: no guess.
        """
        beyond = None if outside is None or not len(outside) else cls.of_scores(outside)
        return cls(values=scores.argmax(axis=1), kind="labels", scores=scores, outside=beyond)


@dataclass(frozen=True, kw_only=True)
class ColumnGuess:
    """The attacker's inference of columns of other parties, for each training row.

    Attributes:
        cells: by party float64 [rows, columns]: the bin or value of each cell, in the order of the party's encoded
            columns; NaN: no answer. A party without an answer may be left out.
        kind: what ``cells`` contains: ``"bins"``, numbered from 0 in the order of the column's values over all training
            rows, or the codes of categories (-1: the value is missing); ``"values"`` of the encoded columns; or
            ``"standardized"``: values less their mean, divided by their standard deviation over all training rows
            (codes of categories as they are).
        scores: by party and name of a column, float64 [rows, values]: the score of each value of the column, in
            ascending order, on any scale that orders the rows of a value; NaN for rows that are not scored.
        by_splits: of trees, those of the ``cells`` that the splits alone reveal; None: not told apart.
        notes: as :attr:`LabelGuess.notes`.
    """

    cells: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    kind: Literal["bins", "values", "standardized"] = "bins"
    scores: Mapping[tuple[str, str], NDArray[np.float64]] = field(default_factory=dict)
    by_splits: Mapping[str, NDArray[np.float64]] | None = None
    notes: dict[str, float] = field(default_factory=dict)


Guess = LabelGuess | ColumnGuess


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A guess without the view, as a reference for an attack.

    Attributes:
        guess: makes it, with a generator for its draws.
        depends_on: everything that the guess depends on apart from data, seed, party and name, so that attacks can
            share it; None: the attack with its parameters.
    """

    guess: Callable[[np.random.Generator], Guess]
    depends_on: Hashable = None


class Attack(Parameters, ABC):
    """Base class of attacks: a callable frozen keyword-only dataclass of parameters.

    Attributes:
        kind: the name in a job file.
        primary: the metric that its source judges it by; reports compare attacks in V-measure.
        metrics: metrics of its own, which :meth:`score` computes; their names are not among those of
            :data:`labelward.metrics.registry.METRICS`.
        reads_view: whether it reads anything of the view but the number of rows.
        names_classes: whether the numbers of a guess of ``"labels"`` are those of classes; False: which number is
            which class stays open, as for rankings whose ends have no names.
        models: the kinds of model whose views it reads; none: of any, since it reads none of what models differ in.
        needs: parameters of the model, with their values, without which its views hold nothing that the attack reads.
            Audits of models that have them run it, listed or not, unless it needs known labels.
        answers: kinds of defenses against which it is strong. Audits with one of them run it, listed or not, unless it
            needs known labels.
        reads_directions: whether it reads splits of own columns with a monotone constraint
            (:attr:`AttackerData.monotone`). Audits of jobs with constraints run it, listed or not, for the parties that
            have such a column.
        roles: the roles whose views it reads.
        target: what it infers: ``"labels"``, as a :class:`LabelGuess`, or ``"columns"``, as a :class:`ColumnGuess`.
    """

    kind: ClassVar[str]
    primary: ClassVar[str] = "v_measure"
    metrics: ClassVar[tuple[Metric, ...]] = ()
    reads_view: ClassVar[bool] = True
    names_classes: ClassVar[bool] = True
    models: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[Mapping[str, Any]] = {}
    answers: ClassVar[tuple[str, ...]] = ()
    reads_directions: ClassVar[bool] = False
    roles: ClassVar[tuple[str, ...]] = ("passive",)
    target: ClassVar[Literal["labels", "columns"]] = "labels"

    @property
    def labels_needed(self) -> int:
        """Number of training rows whose labels the attack requires."""
        return 0

    @property
    def known_per_class(self) -> int:
        """Number of rows of each class, drawn in scoring, that label clusters (:attr:`LabelGuess.known_per_class`)."""
        return 0

    @property
    def known_column(self) -> tuple[str, str] | None:
        """Another party and its column, whose values the attacker knows of :attr:`labels_needed` rows, not labels."""
        return None

    @property
    def attribute(self) -> tuple[str, int] | None:
        """A further attribute that is inferred: its column, and the number of training rows whose value is known.

        The column is one of the common table, whoever holds it; or, where the parties have tables of their own, that
        of a party, as ``"party.column"``. The knowledge is :attr:`AuxiliaryKnowledge.attribute`, beside known labels.
        The guess is a :class:`ColumnGuess` with scores of the column, by a party without a name.
        """
        return None

    @property
    def needs_class_counts(self) -> bool:
        """Whether the attack requires the class counts; it then does not apply to regression."""
        return False

    @property
    def reads_other_runs(self) -> bool:
        """Whether the attack uses the party's views of other runs over the same rows."""
        return False

    @property
    def reads_arrays(self) -> bool:
        """Whether the attack reads embeddings or gradients, so that a view with digests of them is not sufficient."""
        return False

    @property
    def reads_epochs(self) -> bool:
        """Whether the attack reads what a passive party observed of its own embeddings after an epoch."""
        return False

    @property
    def reads_trees(self) -> bool:
        """Whether the attack reads which rows share visible leaves of trees."""
        return not set(TREE_MODELS).isdisjoint(self.models)

    @property
    def behavior(self) -> dict[str, Any] | None:
        """Malicious training behavior of the attacker's party, if any: ``kind`` and parameters.

        Such an attack needs a run of its own in which its party behaves this way; it reads the view of that run.
        """
        return None

    @property
    def alone(self) -> str:
        """Why the attack reads no view of a coalition (:class:`~labelward.party.joined_view.JoinedView`); "": it does.

        A joined view reads like that of one party, with the columns of all. So does the attacker's data. What a split
        network returns to each member stands side by side (:attr:`View.members`).
        """
        if "passive" not in self.roles:
            return "it reads the view of the active party, and a coalition is of passive parties"
        return "" if self.behavior is None else "in a run one party deviates from the protocol, not several"

    def settled(self, model: Mapping[str, Any]) -> Self:
        """Return the attack with what its parameters leave to the model decided; by default they leave nothing.

        Jobs are completed with it, so that runs and results name what was done, whatever a later version would decide.
        It refuses nothing; :meth:`check_model` does.

        Args:
            model: kind and all parameters, as in a completed job.
        """
        return self

    def check_labels(self, rows: int, classes: int) -> None:
        """Refuse parameters that do not fit the numbers of rows and classes (0: quantities), before training.

        Raises:
            JobError: with the parameter.
        """
        return

    def check_model(self, model: Mapping[str, Any]) -> None:
        """Refuse a model whose views the attack cannot read, before anything is trained.

        Args:
            model: kind and all parameters, as in a completed job.

        Raises:
            JobError: the kind of model, or how it is set up.
        """
        if self.models and model["kind"] not in self.models:
            models = " or ".join(map(repr, self.models))
            raise JobError(
                f"attack {self.kind!r} reads views of {models}, not of {model['kind']!r}",
                code="unsupported",
                value=model["kind"],
            )
        for name, value in self.needs.items():
            if model.get(name) != value:
                raise JobError(
                    f"attack {self.kind!r} reads what models with {name} = {value!r} tell, not {model.get(name)!r}",
                    code="unsupported",
                    value=model.get(name),
                )

    @abstractmethod
    def __call__(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator) -> Any:
        """Return a guess for every training row, by :attr:`target` a :class:`LabelGuess` or a :class:`ColumnGuess`.

        Raises:
            InputError: a view that it cannot read.
        """

    def follows_from(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> bool:
        """Return whether what the attack reads of the view is a fixed function of the labels, and given by these.

        If it holds for the true labels but not after a change of one, no epsilon covers the view.

        Args:
            view: as the attack gets it.
            own: as the attack gets it.
            labels: int64 [training, validation and test rows], class numbers in the order that all parties share.
        """
        return False

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return the attack's own :attr:`metrics` of a guess, by name.

        Args:
            guess: of the rows that are scored, all other rows left out.
            truth: int64 [rows]: class numbers of the same rows; for regression, of the bins of the labels.
        """
        return {}

    def baselines(
        self, own: AttackerData, aux: AuxiliaryKnowledge, *, truth: NDArray[np.int64] | None
    ) -> dict[str, Baseline]:
        """Return baselines of the attack's own, by name.

        Supervised models of the known labels are baselines of every attack with known labels; they are not listed here.

        Args:
            own: as the attack gets it.
            aux: as the attack gets it.
            truth: int64 [rows]: class numbers of all training rows, for upper bounds; None where the job wants none.
        """
        return {}


def _frequent(values: NDArray[np.float64], categories: int) -> NDArray[np.int64]:
    """Return the categories that have columns of their own, ascending."""
    if categories <= _MOST_CATEGORIES:
        return np.arange(1, max(categories, 2))
    known = values[(values >= 0) & (values < categories)].astype(np.int64)
    counts = np.bincount(known, minlength=categories)
    return np.sort(np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES])


def _numbers(values: NDArray[np.float64], categories: int | None, own: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one column as float64 [rows, 1], or [rows, categories with a column], which follow from ``own``."""
    if categories is None:
        wide, missing = values[:, None].copy(), np.isnan(values)
    else:
        wide = (values[:, None] == _frequent(own, categories)).astype(np.float64)
        missing = ~((values >= 0) & (values < categories))
    if missing.any():
        wide[missing] = 0.0 if missing.all() else wide[~missing].mean(axis=0)
    return wide
