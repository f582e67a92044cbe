"""Split networks with scikit-learn's interface. Fitting needs torch (``labelward[nets]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length

from labelward.data import PartyDataset
from labelward.errors import unknown_name
from labelward.estimators._columns import assign_positions, column_names, fit_columns
from labelward.estimators._errors import InvalidInputError, value_errors
from labelward.estimators._federation import TrainingPlan, private_seed, resolve_policies
from labelward.estimators._fitted_nets import FittedNetsMixin
from labelward.estimators._targets import ClassTargets, RegressionTargets
from labelward.estimators._trees import (
    Defenses,
    Parties,
    require_targets,
    resolve_seed,
    rollback_on_error,
    to_python_scalar,
    validation_pair,
)
from labelward.estimators._weights import resolve_weights
from labelward.party.deviation import malicious_base
from labelward.protocols.common import LabelVector
from labelward.protocols.splitnn.params import MODULE, SplitNet

Floats = NDArray[np.float64]
Blocks = dict[str, NDArray[Any]]

_MODULES = ("bottom", "top_model")
_CHECKED = ("batch_size", "loss", "class_weights")
"""Parameters that are presets or modules, and those of which a network gets other values than the estimator has."""


@dataclass(kw_only=True, eq=False, repr=False)
class _SplitNets(FittedNetsMixin):
    """Common parameters, described in :class:`SplitNetClassifier`."""

    parties: Parties | None = None
    active: str | None = None
    top: bool = True
    bottom: str | Mapping[str, Any] = "mlp"
    top_model: Any = "fcnn-4"
    embedding: int | None = None
    width: int = 64
    buckets: int = 4096
    vocabulary: int = 30522
    standardize: bool = True
    epochs: int = 30
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "step", "cosine"] = "constant"
    step_epochs: int = 10
    step_factor: float = 0.1
    loss: str = "auto"
    class_weights: Sequence[float] | None = None
    dtype: Literal["float32", "float64"] = "float32"
    wire_dtype: Literal["same", "float16"] = "same"
    patience: int = 0
    device: str = "cpu"
    random_state: Any = None
    defenses: Defenses | None = None
    behaviors: Mapping[str, Mapping[str, Any]] | None = None
    verbose: bool = False

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
            X: rows × columns, as :meth:`SecureBoostClassifier.fit` takes it; or a dictionary with each party's rows:
                tables of numbers, images [rows, channels, height, width], or texts as token numbers [rows, tokens].
            y: labels, known to the active party.
            parties: names (or positions) of each party's columns, in place of the constructor's.
            active: the party that holds the labels, in place of the constructor's.
            sample_weight: the rows' weights, at least 0. Rows of weight 0 take no part.
            eval_set: ``(X, y)``, or a list of one such pair: rows on which each epoch is measured.
            eval_sample_weight: their weights, or a list of them.

        A fit that fails or is interrupted leaves the estimator as it was.

        Raises:
            ValueError: a parameter or a value cannot be used; the message names it.
            DependencyError: torch is not installed.
            ProtocolError: a conversation between the parties went wrong.
        """
        with rollback_on_error(self.__dict__), value_errors({}):
            seed = resolve_seed(self.random_state)
            pair = validation_pair(eval_set, eval_sample_weight, "patience", bool(self.patience))
            x, count = self._given(X, reset=True)
            require_targets(self, y)
            weights = resolve_weights(sample_weight, count, "sample_weight")
            rows = np.flatnonzero(weights)
            check_consistent_length(np.empty(count), y)
            values, weights = self._learn_targets(y, rows), weights[rows]
            wanted = (self.parties, self.active) if parties is None else (parties, None)
            blocks, coded = self._learn(x, rows, wanted[0], active or wanted[1])
            if len(rows) < 2:
                reason = "a network needs two rows at least to learn from, and there is 1 sample"
                raise InvalidInputError(reason, code="rows", field="X", value=1)
            plan = self._plan(len(rows), seed)
            validation = {party: own[:0] for party, own in blocks.items()}
            if pair is not None:
                more, count = self._given(pair[0], reset=False)
                check_consistent_length(np.empty(count), pair[1])
                validation = {party: self._block(more, party, coded) for party in blocks}
                values = np.concatenate([values, self._targets(pair[1])])
                weights = np.concatenate([weights, resolve_weights(pair[2], count, "eval_sample_weight")])
            labels = LabelVector(values=values, weights=weights, classes=self._class_names())
            self._train(plan, blocks, validation, coded, labels)
            self.train_rows_ = rows
        return self

    def _plan(self, rows: int, seed: int) -> TrainingPlan:
        from labelward.protocols.splitnn.behavior import MaliciousOptimizer
        from labelward.protocols.splitnn.family import SplitNetFamily

        batch = to_python_scalar(self.batch_size)
        if isinstance(batch, int):
            batch = min(batch, rows)
        same = {each.name for each in fields(self)} & {each.name for each in fields(SplitNet)}
        same -= {*_MODULES, *_CHECKED}
        params = SplitNet(
            bottom=self.bottom if isinstance(self.bottom, str) else MODULE,
            top_model=self.top_model if isinstance(self.top_model, str) else MODULE,
            batch_size=batch,
            loss=self.loss,  # type: ignore[arg-type]
            class_weights=tuple(self.class_weights or ()),
            **{name: to_python_scalar(getattr(self, name)) for name in sorted(same)},
        )
        programs = SplitNetFamily(params, self._modules())
        behaviors: dict[str, Mapping[str, Any]] = {}
        for party, behavior in (self.behaviors or {}).items():
            if party not in list(self._places)[1:]:
                reason = unknown_name("passive party", str(party), list(self._places)[1:])
                raise InvalidInputError(reason, code="unknown", field="behaviors", value=party)
            if behavior.get("kind") != MaliciousOptimizer.kind:
                reason = unknown_name("kind", str(behavior.get("kind")), [MaliciousOptimizer.kind])
                raise InvalidInputError(reason, code="unknown", field="behaviors", value=behavior.get("kind"))
            base = malicious_base(params.optimizer, behavior.get("reading", "velocity"))
            behaviors[party] = {"base": base, **behavior}
            programs.make_behavior(behaviors[party])
        resolve_policies(self.defenses)
        return TrainingPlan(programs=programs, seed=seed, defenses=self.defenses, behaviors=behaviors)

    def _learn(
        self, x: Any, rows: NDArray[np.int64], parties: Parties | None, active: str | None
    ) -> tuple[Blocks, dict[str, dict[str, tuple[str, ...]]]]:
        """Return each party's training rows, the active party's first, and the categories of its columns."""
        if isinstance(x, dict):
            if parties is not None:
                reason = "X says by itself what each party holds, so it must be left out"
                raise InvalidInputError(reason, code="conflict", field="parties", value=parties)
            dealt = assign_positions({party: [at] for at, party in enumerate(x)}, active, list(x), named=False)
            self._places = dict.fromkeys(dealt, ())
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return {party: x[party][rows] for party in dealt}, {party: {} for party in dealt}
        self._places = assign_positions(parties, active, column_names(self), named=hasattr(self, "feature_names_in_"))
        coded = fit_columns(self, x, rows, self._places)
        blocks = {party: np.ascontiguousarray(coded.x[:, list(own)]) for party, own in self._places.items()}
        names = {party: [coded.names[place] for place in own] for party, own in self._places.items()}
        self._names = {party: tuple(own) for party, own in names.items()}
        return blocks, {
            party: {name: coded.categories[name] for name in own if name in coded.categories}
            for party, own in names.items()
        }

    def _train(
        self,
        plan: TrainingPlan,
        blocks: Blocks,
        validation: Blocks,
        coded: Mapping[str, Mapping[str, tuple[str, ...]]],
        labels: LabelVector,
    ) -> None:
        names = self._names if hasattr(self, "n_features_in_") else dict.fromkeys(blocks, ())
        datasets = [
            PartyDataset(
                name=party,
                columns=names[party],
                train=own,
                validation=validation[party],
                test=own[:0],
                categories={names[party].index(name): each for name, each in coded[party].items()},
                private=private_seed(self.random_state, plan.seed, party),
            )
            for party, own in blocks.items()
        ]
        ended = self._run(plan, datasets, labels)
        self.loss_curve_ = [epoch.train.loss for epoch in self._lead.history]
        self.__dict__.pop("evals_result_", None)
        if ended.watched is not None:
            self.evals_result_ = {"validation_0": {"loss": list(ended.watched.values)}}


class SplitNetClassifier(ClassifierMixin, ClassTargets, _SplitNets):  # type: ignore[misc]
    """A split network for two or more classes: each party has a bottom model, the active party a top model or none.

    All parties live in this process; nothing is encrypted: the active party reads all embeddings, and each passive
    party the gradients that come back. Fitting needs torch.

    Args:
        parties: for each party the names of its columns (positions where X has no names); as
            :class:`SecureBoostClassifier` has it. Not with an X that is a dictionary by party.
        active: the party that holds the labels; None: the one called ``"active"``, else the first one.
        top: whether there is a top model over the joined embeddings; without it the parties' outputs add up.
        bottom: preset of all bottom models, or for each party with columns a ``torch.nn.Module`` of its own, which is
            copied.
        top_model: preset, or a ``torch.nn.Module``.
        embedding: numbers a row that a bottom preset gives.
        width: of hidden layers.
        buckets: of ``"hashed"``.
        vocabulary: of a BERT.
        standardize: whether columns are centered and scaled.
        epochs: times that all rows are gone through.
        batch_size: rows a batch, at most all.
        optimizer: ``"sgd"`` or ``"adam"``.
        learning_rate: of every party.
        momentum: of ``"sgd"``.
        weight_decay: L2 penalty.
        schedule: ``"constant"``, ``"step"`` or ``"cosine"``.
        step_epochs: for ``"step"``.
        step_factor: for ``"step"``.
        loss: ``"auto"``, ``"cross_entropy"``, ``"weighted"``, ``"nll"`` or (two classes, one output)
            ``"logistic"``.
        class_weights: for ``"weighted"``, in the order of ``classes_``.
        dtype: of the model.
        wire_dtype: ``"same"``, or ``"float16"`` for embeddings and gradients on their way.
        patience: how many epochs the loss of ``eval_set`` may fail to improve; the best epoch's weights are kept.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        random_state: seed of all learning draws. If given, it fixes the parties' private draws, too, such as initial
            weights: whoever knows it can repeat them.
        defenses: what decides what leaves the active party: dictionaries with ``kind`` and parameters; or such a list
            for each party that has one, by its name, which then acts in predictions, too.
        behaviors: how passive parties train, where not as agreed: by party a dictionary with ``kind``
            (``"malicious-optimizer"``) and parameters; its ``base``, left out, is ``"adam"`` beside Adam.
        verbose: whether a bar on stderr shows the progress.

    Attributes:
        classes_: values of the label, sorted.
        n_classes_: how many.
        n_features_in_: columns of X, where X is a table.
        feature_names_in_: their names, where all are texts.
        n_iter_: epochs of the training.
        loss_curve_: mean loss of the training rows in each epoch.
        evals_result_: the loss of ``eval_set`` after each epoch.
        parties_: columns of each party, the active one first.
        train_rows_: positions in X of the rows that were trained on.
        shares_: each party's part of the model (:class:`~labelward.protocols.splitnn.share.NetShare`).
        views_: what each party saw in training (:class:`~labelward.party.view.View`). Treat them as you treat the data.
    """

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row: [rows], values of ``classes_``."""
        outputs = self._ask(X)  # one of the loss "logistic", else one for each class
        chosen = (outputs[:, 0] > 0).astype(np.int64) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class: float64 [rows, classes], in the order of ``classes_``."""
        return self._expected(X)

    def decision_function(self, X: Any) -> Floats:
        """Return the logits: float64 [rows, classes]; for two classes their difference (or only logit), [rows]."""
        outputs = self._ask(X)
        if outputs.shape[1] == 1:
            return outputs[:, 0]
        return outputs[:, 1] - outputs[:, 0] if self.n_classes_ == 2 else outputs


class SplitNetRegressor(RegressorMixin, RegressionTargets, _SplitNets):  # type: ignore[misc]
    """A split network for regression, fitted to squared error.

    Parameters and attributes are those of :class:`SplitNetClassifier`, but for those about classes; ``loss`` is
    ``"auto"`` or ``"mse"``.
    """

    def predict(self, X: Any) -> Floats:
        """Return the mean that is expected for each row: float64 [rows]."""
        return self._expected(X)
