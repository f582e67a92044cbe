"""Fitting of the tree estimators, and argument checks that all estimators share."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, check_random_state

from labelward.data import PartyDataset
from labelward.errors import unknown_name
from labelward.estimators._columns import (
    EncodedColumns,
    assign_positions,
    column_names,
    fit_columns,
    parse_monotone,
    transform_columns,
)
from labelward.estimators._columns import read_columns as read
from labelward.estimators._errors import InvalidInputError, value_errors
from labelward.estimators._federation import TrainingPlan, private_seed, resolve_policies
from labelward.estimators._fitted_trees import FittedTreesMixin
from labelward.estimators._weights import check_class_weight, resolve_weights
from labelward.federation.components import check_key_length
from labelward.he import check_engine, engine_names
from labelward.job import EncryptionSection
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.share import ModelShare
from labelward.rng import PrivateSeed

Floats = NDArray[np.float64]
Parties = Mapping[str, Iterable[str | int]]
Defenses = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]

_ENGINE = {"engine": "engine", "bits": "key_bits", "insecure": "insecure", "workers": "workers"}


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedTrees(FittedTreesMixin):
    """A federated tree model; subclasses have further parameters, targets and predictions.

    Attributes:
        renamed: for some keys of a job's ``[model]`` the estimator's parameter, where it is called otherwise.
        objectives: those that fit the targets, ``"auto"`` first.
        idle: parameters that mean nothing for the targets.
    """

    model: ClassVar[type[TreeModel]]
    renamed: ClassVar[Mapping[str, str]] = {
        "trees": "n_estimators",
        "depth": "max_depth",
        "feature_fraction": "colsample_bytree",
        "bins": "max_bin",
    }
    objectives: ClassVar[tuple[str, ...]]
    idle: ClassVar[tuple[str, ...]] = ()

    parties: Parties | None = None
    active: str | None = None
    n_estimators: int = 20
    max_depth: int = 6
    colsample_bytree: float = 1.0
    max_bin: int = 32
    candidates: Literal["global", "node", "all"] = "global"
    gamma: float = 0.0
    min_rows: int = 1
    min_child_weight: float = 0.0
    max_leaves: int = 0
    scale_pos_weight: float = 1.0
    max_cat_to_onehot: int = 4
    max_cat_threshold: int = 64
    monotone_constraints: Mapping[str | int, int] | Sequence[int] | str | None = None
    warm_start: bool = False
    random_state: Any = None
    engine: str | Mapping[str, Any] = "paillier"
    key_bits: int | None = None
    insecure: bool = False
    workers: int = 0
    defenses: Defenses | None = None
    verbose: bool = False

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return for each key of a job's ``[model]`` the estimator's parameter, where it has one."""
        own, keys = {each.name for each in fields(cls)}, {each.name: each.name for each in fields(cls.model)}
        return {key: name for key, name in (keys | dict(cls.renamed)).items() if name in own}

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
            y: labels, known to the active party.
            parties: names (or positions) of each party's columns, in place of the constructor's; columns of no party
                are left out.
            active: the party that holds the labels, in place of the constructor's.
            sample_weight: the rows' weights, at least 0. Rows of weight 0 take no part; the others may weigh at most a
                billion times as much as the lightest of them.
            eval_set: ``(X, y)``, or a list of one such pair: rows on which each round is measured, of every class.
            eval_sample_weight: their weights, or a list of them.

        A fit that fails or is interrupted leaves the estimator as it was: unfitted, or with its earlier model.

        Raises:
            ValueError: a parameter or a value cannot be used; the message names it.
            ProtocolError: a conversation between the parties went wrong.
        """
        with rollback_on_error(self.__dict__), value_errors(self._keys()):
            plan, before = self._going_on(self._plan())
            table = read(self, X, reset=True)
            require_targets(self, y)
            weights = resolve_weights(sample_weight, len(table), "sample_weight")
            rows = np.flatnonzero(weights)
            check_consistent_length(table, y)
            labels = self._learn_targets(y, rows), weights[rows]
            check_class_weight(plan.programs.params.scale_pos_weight, *labels)
            named = hasattr(self, "feature_names_in_")
            wanted = (self.parties, self.active) if parties is None else (parties, None)
            places = assign_positions(wanted[0], active or wanted[1], column_names(self), named=named)
            columns = fit_columns(self, table, rows, places)
            directions = parse_monotone(self.monotone_constraints, columns, named=named)
            self._check_directions(directions, places, plan)
            self._check_parties(places, before)
            datasets = [
                _party_data(party, columns, own, directions, private_seed(self.random_state, plan.seed, party))
                for party, own in places.items()
            ]
            validation = self._validation(eval_set, eval_sample_weight, datasets, places)
            self._train(plan, datasets, labels, validation, before)
            self._places, self.train_rows_ = places, rows
        return self

    def _keys(self) -> dict[str, str]:
        return {**self.names(), **_ENGINE}

    def _encryption(self) -> EncryptionSection:
        """Return engine and key; ``engine`` is a name, or a dictionary with ``kind`` and the engine's parameters."""
        values = {key: to_python_scalar(getattr(self, name)) for key, name in _ENGINE.items()}
        if values["bits"] is None:
            del values["bits"]
        if isinstance(values["engine"], Mapping):
            own = dict(values["engine"])
            values |= {"engine": own.pop("kind", None), "engine_parameters": own}
        section = EncryptionSection(**values)
        if section.engine not in engine_names():
            reason = unknown_name("engine", section.engine, engine_names())
            raise InvalidInputError(reason, code="unknown", field="engine", value=section.engine)
        checked = check_engine(section.engine, section.engine_parameters, insecure=section.insecure)
        section = replace(section, engine_parameters=checked.parameters())
        check_key_length(section)
        return section

    def _plan(self) -> TrainingPlan:
        """Check all parameters before anything else."""
        for name in ("warm_start", "verbose"):
            if not isinstance(value := to_python_scalar(getattr(self, name)), int) or value not in (0, 1):
                raise InvalidInputError(
                    f"must be True or False but got {value!r}", code="type", field=name, value=value
                )
        values = {key: to_python_scalar(getattr(self, name)) for key, name in self.names().items()}
        section = self._encryption()
        params = self.model(**{key: value for key, value in values.items() if value is not None})
        if params.objective not in self.objectives:
            choices = ", ".join(map(repr, self.objectives[1:]))
            reason = f"{type(self).__name__} takes {choices} but got {params.objective!r}"
            raise InvalidInputError(reason, code="choice", field="objective", value=params.objective)
        known = inspect.signature(type(self)).parameters
        for name in self.idle:
            if name in known and getattr(self, name) != known[name].default:
                reason = f"means nothing for {type(self).__name__}, so it must be left out"
                raise InvalidInputError(reason, code="unsupported", field=name, value=getattr(self, name))
        resolve_policies(self.defenses)
        return TrainingPlan(
            programs=TreeFamily(params),
            encryption=section,
            defenses=self.defenses,
            seed=resolve_seed(self.random_state),
        )

    def _going_on(self, plan: TrainingPlan) -> tuple[TrainingPlan, Mapping[str, ModelShare] | None]:
        """Return what is still to be trained, and the shares of the model that is continued, if any."""
        if not self.warm_start or not self.__sklearn_is_fitted__():
            return plan, None
        params, done = plan.programs.params, self.n_estimators_
        wanted = params.trees
        if wanted <= done:
            reason = f"counts all trees with warm_start, so it must exceed the {done} of the model but got {wanted}"
            raise InvalidInputError(reason, code="range", field="n_estimators", value=wanted)
        return replace(plan, programs=TreeFamily(replace(params, trees=wanted - done))), self.shares_

    def _check_directions(
        self, directions: Mapping[int, int], places: Mapping[str, Sequence[int]], plan: TrainingPlan
    ) -> None:
        """Refuse monotone constraints on columns of no party, and where no single output could follow them."""
        assigned = {place for own in places.values() for place in own}
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        for place in directions:
            column = names[place]
            if place not in assigned:
                raise InvalidInputError(
                    f"column {column!r} belongs to no party", code="columns", field="monotone_constraints", value=column
                )
            if reason := self._several_outputs(plan.programs.params):
                reason = f"column {column!r} cannot have one: constraints need a model of one output, and {reason}"
                raise InvalidInputError(reason, code="unsupported", field="monotone_constraints", value=column)

    def _several_outputs(self, params: TreeModel) -> str:
        """Return why the model has more outputs than one; empty if it has not."""
        return ""

    def _check_parties(self, places: Mapping[str, Sequence[int]], before: Mapping[str, ModelShare] | None) -> None:
        """Refuse other parties or classes than of the warm-started model."""
        if before is None:
            return
        if tuple(before) != tuple(places):
            reason = f"the warm-started model has {', '.join(before)}, not {', '.join(places)}"
            raise InvalidInputError(reason, code="other-run", field="parties", value=tuple(places))
        if next(iter(before.values())).classes != self._class_names():
            reason = "its classes are not those of the warm-started model"
            raise InvalidInputError(reason, code="other-run", field="y", value=self._class_names())

    def _validation(
        self, eval_set: Any, weight: Any, datasets: Sequence[PartyDataset], places: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, Floats], Floats, Floats] | None:
        """Return the validation rows: each party's columns, labels, weights."""
        stops = bool(getattr(self, "early_stopping_rounds", None))
        pair = validation_pair(eval_set, weight, "early_stopping_rounds", stops)
        if pair is None:
            return None
        table = read(self, pair[0], reset=False)
        check_consistent_length(table, pair[1])
        blocks = {}
        for own in datasets:
            coded = {own.columns[at]: names for at, names in own.categories.items()}
            blocks[own.name] = transform_columns(own.columns, places[own.name], coded, table)
        values, weights = self._targets(pair[1]), resolve_weights(pair[2], len(table), "eval_sample_weight")
        self._check_validation(values[weights > 0])
        return blocks, values, weights

    def _check_validation(self, values: Floats) -> None:
        """Refuse targets of validation rows, those of positive weight, on which no metric can be measured."""

    def _train(
        self,
        plan: TrainingPlan,
        datasets: Sequence[PartyDataset],
        labels: tuple[Floats, Floats],
        validation: tuple[dict[str, Floats], Floats, Floats] | None,
        before: Mapping[str, ModelShare] | None,
    ) -> None:
        """Train on labels and weights, and on validation rows (each party's columns, labels, weights)."""
        values, weights = labels
        if validation is not None:
            blocks, *theirs = validation
            datasets = [replace(own, validation=blocks[own.name]) for own in datasets]
            values, weights = (np.concatenate(pair) for pair in zip(labels, theirs, strict=True))
        vector = LabelVector(values=values, weights=weights, classes=self._class_names())
        ended = self._run(plan, datasets, vector, before)
        self._learn_history(() if ended.watched is None else ended.watched.values)

    def _learn_history(self, history: tuple[float, ...]) -> None:
        """Store the validation metric of each round."""


@contextmanager
def rollback_on_error(attributes: dict[str, Any]) -> Iterator[None]:
    """Set attributes back to what they were before, if anything fails or is interrupted meanwhile."""
    before = dict(attributes)
    try:
        yield
    except BaseException:
        attributes.clear()
        attributes.update(before)
        raise


def _party_data(
    party: str, columns: EncodedColumns, places: Sequence[int], directions: Mapping[int, int], private: PrivateSeed
) -> PartyDataset:
    """Return a party's columns of the training rows."""
    names = tuple(columns.names[place] for place in places)
    x = np.ascontiguousarray(columns.x[:, list(places)])
    return PartyDataset(
        name=party,
        columns=names,
        train=x,
        validation=x[:0],
        test=x[:0],
        categories={at: columns.categories[name] for at, name in enumerate(names) if name in columns.categories},
        monotone={at: directions[place] for at, place in enumerate(places) if place in directions},
        private=private,
    )


def to_python_scalar(value: Any) -> Any:
    """Return numbers of NumPy, as grids of parameters hold them, as numbers of Python."""
    return value.item() if isinstance(value, np.generic) else value


def require_targets(estimator: Any, y: Any) -> None:
    """Refuse a fit without targets, in the words that scikit-learn's checks look for."""
    if y is None:
        reason = f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        raise InvalidInputError(reason, code="missing")


def resolve_seed(random_state: Any) -> int:
    """Return the seed of the learning draws: an integer unchanged, else a random one."""
    number = to_python_scalar(random_state)
    if isinstance(number, int) and not isinstance(number, bool):
        if not 0 <= number < 2**32:
            raise InvalidInputError(
                f"must lie between 0 and 2**32 - 1 but got {number}", code="range", field="random_state", value=number
            )
        return number
    return int(check_random_state(random_state).randint(2**31 - 1))


def validation_pair(eval_set: Any, weight: Any, stopping: str, stops: bool) -> tuple[Any, Any, Any] | None:
    """Return X, y and weights of the validation rows; None where there are none.

    Args:
        eval_set: ``(X, y)``, or a list of one such pair.
        stopping: the parameter that needs an ``eval_set``.
    """
    if eval_set is None:
        if stops:
            raise InvalidInputError("needs an eval_set to measure the rounds on", code="missing", field=stopping)
        if weight is not None:
            raise InvalidInputError(
                "needs an eval_set, of whose rows these are the weights", code="missing", field="eval_sample_weight"
            )
        return None
    pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InvalidInputError(
            "must be (X, y), or a list of one such pair", code="type", field="eval_set", value=eval_set
        )
    if isinstance(weight, list) and len(weight) == 1 and np.ndim(weight[0]) == 1:
        weight = weight[0]
    return (*pair, weight)
