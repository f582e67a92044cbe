"""What the four estimators have in common: fitting, predicting, importances, saving."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from labelward.defenses import DEFENSES
from labelward.estimators import _saved
from labelward.estimators._columns import Coded, code_columns, column_names, deal_columns, learn_columns, position_of
from labelward.estimators._columns import read_columns as read
from labelward.estimators._errors import UnfitInputError, value_errors
from labelward.estimators._federation import Plan, ask, train
from labelward.estimators._progress import progress_bar
from labelward.job import EncryptionSection
from labelward.party.policy import Policy
from labelward.protocols.tree.columns import Columns, Labels
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.roles import Held
from labelward.protocols.tree.share import ModelShare

__all__ = ["FederatedTrees", "Parties"]

Floats = NDArray[np.float64]
Parties = Mapping[str, Iterable[str | int]]

_ENGINE = {"engine": "engine", "bits": "key_bits", "insecure": "insecure", "workers": "workers"}


class FederatedTrees(BaseEstimator):  # type: ignore[misc]
    """A federated tree model; subclasses have a constructor, targets and predictions.

    Attributes:
        model: the class of its parameters.
        names: for each key of a job's ``[model]`` the estimator's parameter.
        objectives: those that fit the targets, ``"auto"`` first.
        idle: parameters that mean nothing for the targets.
    """

    model: ClassVar[type[TreeModel]]
    names: ClassVar[Mapping[str, str]]
    objectives: ClassVar[tuple[str, ...]]
    idle: ClassVar[tuple[str, ...]] = ()

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        parties: Parties | None = None,
        active: str | None = None,
        sample_weight: ArrayLike | None = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
    ) -> Self:
        """Train, every party in a thread of this process, with the messages that separate machines would exchange.

        Args:
            X: rows × columns: numbers as an array, or a table of pandas, polars or Arrow. NaN and null are missing
                values. Of tables, texts and categories are categorical columns, booleans 0 and 1, dates and times days
                since 1970.
            y: the labels, held by the active party.
            parties: names (or positions) of each party's columns, in place of the constructor's; columns of no party
                are left out.
            active: the party that holds the labels, in place of the constructor's.
            sample_weight: the rows' weights, at least 0. Rows of weight 0 take no part.
            eval_set: ``(X, y)``, or a list of one such pair: rows on which each round is measured.
            eval_sample_weight: their weights, or a list of them.

        Raises:
            ValueError: a parameter or a value cannot be used; the message names it.
            ProtocolError: a conversation between the parties went wrong.
        """
        with value_errors(self._keys()):
            plan, before = self._going_on(self._plan())
            if before is None:  # a training that fails leaves nothing that could be taken for its model
                for name in ("shares_", "views_"):
                    if name in vars(self):
                        delattr(self, name)
            given = read(self, X, reset=True)
            if y is None:
                raise UnfitInputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            weights = _weights(sample_weight, len(given), "sample_weight")
            rows = np.flatnonzero(weights)
            check_consistent_length(given, y)
            labels = self._learn_targets(y, rows), weights[rows]
            columns = learn_columns(self, given, rows)
            named = hasattr(self, "feature_names_in_")
            wanted = (self.parties, self.active) if parties is None else (parties, None)
            places = deal_columns(wanted[0], active or wanted[1], columns.names, named=named)
            self._check_parties(places, before)
            held = {party: self._columns(columns, own) for party, own in places.items()}
            validation = self._validation(eval_set, eval_sample_weight, held, places)
            self._train(plan, held, (*labels, validation), before)
        self._places, self.train_rows_ = places, rows
        return self

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return for each row the number of the leaf that it reaches in each tree: [rows, trees].

        The root is 0; the children of node i are 2i + 1 (left) and 2i + 2 (right).
        """
        reached = self._ask(X, "leaves")
        leaves = [np.asarray(tree.leaves, dtype=np.int64) for tree in self._lead.trees]
        return np.stack([leaves[number][reached[:, number]] for number in range(len(leaves))], axis=1)

    def held_by(self, party: str, X: Any) -> Floats:
        """Return what a party holds of these rows, coded as in training: float64 [rows, columns of the party].

        This is what an attack on the party's view takes as its own features.

        Raises:
            ValueError: no such party, or other columns than in training.
        """
        check_is_fitted(self)
        if party not in self.shares_:
            raise UnfitInputError(f"there is no party {party!r}, only {', '.join(self.shares_)}")
        with value_errors({}):
            given = read(self, X, reset=False)
            return self._block(given, party)

    def save(self, folder: str | Path) -> Path:
        """Save each party's share in ``folder/<party>/model``, and beside them what this class needs; no view, no key.

        The shares are those of ``labelward train``. A fitted object can be pickled, too, with its views.

        Raises:
            OutputError: the folder cannot be written.
            ValueError: a parameter that a file cannot hold.
        """
        check_is_fitted(self)
        return _saved.save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return an estimator that was saved; it predicts as before, and has no ``views_``.

        Raises:
            FileFormatError: a file is missing, damaged, of another version, class or model.
        """
        estimator: Self = _saved.load(cls, Path(folder))
        return estimator

    @property
    def parties_(self) -> dict[str, list[Any]]:
        """Columns of each party, by name, or by position where X has no names; the active party first."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return {party: [names[place] for place in places] for party, places in self._places.items()}

    @property
    def n_estimators_(self) -> int:
        """Rounds of boosting, or trees of a forest, that the model has."""
        lead = self._lead
        return len(lead.trees) // (lead.outputs if lead.trees[0].output >= 0 else 1)

    @property
    def feature_importances_(self) -> Floats:
        """Share of each column of X in the total gain of all splits: float64 [columns], zeros without a split."""
        check_is_fitted(self)
        gains = np.zeros(self.n_features_in_)
        lead = self._lead
        for tree in lead.trees:
            for owner, record, gain in zip(tree.owners, tree.records, tree.gains, strict=True):
                party = lead.parties[owner]
                gains[self._places[party][self.shares_[party].own.columns[record]]] += gain
        total = gains.sum()
        return gains / total if total > 0 else gains

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "shares_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _learn_targets(self, y: ArrayLike, rows: NDArray[np.int64]) -> Floats:
        """Learn the classes, if any, from the labels of these rows, and return these labels as numbers."""
        raise NotImplementedError

    def _targets(self, y: ArrayLike) -> Floats:
        """Return labels of validation rows as numbers."""
        raise NotImplementedError

    def _class_names(self) -> tuple[str, ...]:
        return ()

    @property
    def _lead(self) -> ModelShare:
        check_is_fitted(self)
        share: ModelShare = next(iter(self.shares_.values()))
        return share

    def _keys(self) -> dict[str, str]:
        return {**self.names, **_ENGINE}

    def _plan(self) -> Plan:
        """Check all parameters before anything else."""
        values = {key: _plain(getattr(self, name)) for key, name in self.names.items()}
        section = EncryptionSection(**{key: _plain(getattr(self, name)) for key, name in _ENGINE.items()})
        params = self.model(**{key: value for key, value in values.items() if value is not None})
        if params.objective not in self.objectives:
            told = ", ".join(map(repr, self.objectives[1:]))
            raise UnfitInputError(f"objective: {type(self).__name__} takes {told} but got {params.objective!r}")
        known = inspect.signature(type(self)).parameters
        for name in self.idle:
            if name in known and getattr(self, name) != known[name].default:
                raise UnfitInputError(f"{name}: means nothing for {type(self).__name__}, so it must be left out")
        return Plan(params=params, encryption=section, policies=self._policies(), seed=_seed(self.random_state))

    def _going_on(self, plan: Plan) -> tuple[Plan, Mapping[str, ModelShare] | None]:
        """Return what is still to be trained, and the shares that it goes on from, if any."""
        if not self.warm_start or not self.__sklearn_is_fitted__():
            return plan, None
        wanted, done = plan.params.trees, self.n_estimators_
        if wanted <= done:
            told = f"with warm_start it counts the {done} that there are, so it must be larger but got {wanted}"
            raise UnfitInputError(f"n_estimators: {told}")
        return replace(plan, params=replace(plan.params, trees=wanted - done)), self.shares_

    def _check_parties(self, places: Mapping[str, Sequence[int]], before: Mapping[str, ModelShare] | None) -> None:
        """Refuse constraints on columns of no party, and other parties or classes than of a model that goes on."""
        names = column_names(self)
        held = {place for own in places.values() for place in own}
        for column in self.monotone_constraints or {}:
            if position_of(column, names, "monotone_constraints", named=hasattr(self, "feature_names_in_")) not in held:
                raise UnfitInputError(f"monotone_constraints: column {column!r} is held by no party")
        if before is None:
            return
        if tuple(before) != tuple(places):
            raise UnfitInputError(f"parties: the model that goes on has {', '.join(before)}, not {', '.join(places)}")
        if next(iter(before.values())).classes != self._class_names():
            raise UnfitInputError("y: its classes are not those of the model that goes on")

    def _policies(self) -> tuple[Policy, ...]:
        chain = self.defenses or ()
        if isinstance(chain, str | Mapping) or not all(isinstance(one, Mapping) and "kind" in one for one in chain):
            raise UnfitInputError(f"defenses: must be a list of dictionaries with a kind but got {chain!r}")
        return tuple(DEFENSES.make(one["kind"], {key: one[key] for key in one if key != "kind"}) for one in chain)

    def _columns(self, columns: Coded, places: Sequence[int]) -> Columns:
        names = tuple(columns.names[place] for place in places)
        categories = {at: columns.categories[name] for at, name in enumerate(names) if name in columns.categories}
        monotone: dict[int, int] = {}
        named = hasattr(self, "feature_names_in_")
        for column, direction in (self.monotone_constraints or {}).items():
            place = position_of(column, columns.names, "monotone_constraints", named=named)
            if direction not in (-1, 0, 1) or columns.names[place] in columns.categories:
                told = (
                    "categories have no order" if columns.names[place] in columns.categories else "must be 1, -1 or 0"
                )
                raise UnfitInputError(f"monotone_constraints: {told}, but {column!r} has {direction!r}")
            if direction and place in places:
                monotone[places.index(place)] = int(direction)
        return Columns(names, np.ascontiguousarray(columns.x[:, list(places)]), categories, monotone)

    def _validation(
        self, eval_set: Any, weight: Any, held: Mapping[str, Columns], places: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, Floats], Floats, Floats] | None:
        """Return the validation rows: each party's columns, labels, weights."""
        if eval_set is None:
            if getattr(self, "early_stopping_rounds", None):
                raise UnfitInputError("early_stopping_rounds: needs an eval_set to measure the rounds on")
            return None
        pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UnfitInputError("eval_set: must be (X, y), or a list of one such pair")
        if isinstance(weight, list) and len(weight) == 1 and np.ndim(weight[0]) == 1:
            weight = weight[0]
        given = read(self, pair[0], reset=False)
        check_consistent_length(given, pair[1])
        blocks = {
            party: code_columns(own.names, places[party], own.category_names(), given) for party, own in held.items()
        }
        return blocks, self._targets(pair[1]), _weights(weight, len(given), "eval_sample_weight")

    def _train(
        self,
        plan: Plan,
        held: Mapping[str, Columns],
        told: tuple[Floats, Floats, tuple[dict[str, Floats], Floats, Floats] | None],
        before: Mapping[str, ModelShare] | None,
    ) -> None:
        """Train on labels, weights and validation rows."""
        values, weights, validation = told
        count = 0
        if validation is not None:
            blocks, more, their = validation
            held = {party: replace(own, x=np.concatenate([own.x, blocks[party]])) for party, own in held.items()}
            values, weights, count = np.concatenate([values, more]), np.concatenate([weights, their]), len(more)
        everyone = {
            party: Held(train=own, test=np.empty((0, len(own.names))), validation=count) for party, own in held.items()
        }
        labels = Labels(values=values, weights=weights, classes=self._class_names())
        with progress_bar(bool(self.verbose)) as progress:
            ended = train(plan, everyone, labels, progress, before)
        self.shares_, self.views_ = ended.shares, ended.views
        self._learn_history(ended.history)

    def _learn_history(self, history: tuple[float, ...]) -> None:
        """Keep what the validation rows said of each round."""

    def _block(self, given: Any, party: str) -> Floats:
        share = self.shares_[party]
        return code_columns(share.columns, self._places[party], share.categories, given)

    def _ask(self, X: Any, what: str = "margins") -> NDArray[Any]:
        check_is_fitted(self)
        with value_errors({}):
            given = read(self, X, reset=False)
            return ask(self.shares_, {party: self._block(given, party) for party in self.shares_}, what)


def _weights(given: Any, rows: int, name: str) -> Floats:
    """Return weights as float64 [rows]; ones where there are none."""
    if given is None:
        return np.ones(rows)
    weights: Floats = check_array(given, ensure_2d=False, dtype=np.float64, input_name=name)
    if weights.shape != (rows,):
        raise UnfitInputError(f"{name}.shape == {weights.shape}, expected {(rows,)}!")
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise UnfitInputError(f"{name}: row {row}, counting from 0, is {weights[row]:g}; weights may not be negative")
    if not weights.any():
        raise UnfitInputError(f"{name}: every weight is zero")
    return weights


def _plain(value: Any) -> Any:
    """Return numbers of NumPy, as grids of parameters hold them, as numbers of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _seed(random_state: Any) -> int:
    """Return the seed of the learning draws: a whole number as it is, else a number drawn."""
    plain = _plain(random_state)
    if isinstance(plain, int) and not isinstance(plain, bool):
        if not 0 <= plain < 2**32:
            raise UnfitInputError(f"random_state: must lie between 0 and 2**32 - 1 but got {plain}")
        return plain
    return int(check_random_state(random_state).randint(2**31 - 1))
