"""Federated boosted trees with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labelward.estimators._targets import FederatedClassifierMixin, FederatedRegressorMixin
from labelward.estimators._trees import FederatedTrees
from labelward.protocols.secureboost.params import SecureBoost


@dataclass(kw_only=True, eq=False, repr=False)
class _Boosted(FederatedTrees):
    """Further parameters, described in :class:`SecureBoostClassifier`."""

    model = SecureBoost
    renamed: ClassVar[Mapping[str, str]] = {
        **FederatedTrees.renamed,
        "row_fraction": "subsample",
        "sampling": "sampling_method",
    }

    learning_rate: float = 0.3
    subsample: float = 1.0
    reg_lambda: float = 1.0
    max_delta_step: float | None = None
    objective: str | None = None
    base_score: float | None = None
    tweedie_variance_power: float = 1.5
    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = "multi_output_tree"
    sampling_method: Literal["uniform", "goss"] = "uniform"
    top_rate: float = 0.2
    other_rate: float = 0.1
    early_stopping_rounds: int | None = None
    eval_metric: str | None = None
    mode: Literal["standard", "mixed", "layered"] = "standard"
    passive_depth: int = 2

    def _learn_history(self, history: tuple[float, ...]) -> None:
        for name in ("evals_result_", "best_iteration_", "best_score_"):
            if hasattr(self, name):
                delattr(self, name)
        if history:
            metric = self.eval_metric or "auto"
            best = np.argmax(history) if metric == "auc" else np.argmin(history)
            self.evals_result_ = {"validation_0": {"loss" if metric == "auto" else metric: list(history)}}
            self.best_iteration_, self.best_score_ = int(best), float(history[best])


class SecureBoostClassifier(FederatedClassifierMixin, _Boosted):
    """Boosted trees for two or more classes, trained across parties under encryption.

    All parties live in this process: you bring the columns of all of them, and the messages, bytes and views are those
    that separate machines would have. Parameters are called as in XGBoost where they mean the same.

    Args:
        parties: for each party the names of its columns (positions where X has no names). A party without columns may
            only be the active one; columns of no party are left out. None: the first half of the columns is held by
            ``"active"``, the others by ``"passive"``, so that a single column is the passive party's.
        active: the party that holds the labels; None: the one called ``"active"``, else the first one.
        n_estimators: rounds; a round is one tree, or one for each class. Each encrypts all rows, so that the
            default is below XGBoost's 100.
        max_depth: most splits between root and leaf.
        learning_rate: factor of each leaf weight.
        subsample: share of the rows drawn for each tree, without replacement.
        colsample_bytree: share of each party's columns drawn for each tree.
        max_bin: candidates per column are at most ``max_bin - 1``. XGBoost's 256 would mean eight times the sums.
        candidates: ``"global"``: quantiles of the column; ``"node"``: percentiles within each node; ``"all"``.
        reg_lambda: L2 penalty of leaf weights.
        gamma: least gain of a split.
        min_rows: least number of rows in a leaf.
        min_child_weight: least sum of hessians in a leaf; 0 here, 1 in XGBoost.
        max_leaves: most leaves of a tree; 0 for no limit.
        max_delta_step: largest size of a leaf weight before ``learning_rate``; None: the objective's own.
        objective: ``"binary:logistic"`` or ``"multi:softprob"``; None: what fits the number of classes.
        base_score: the probability of the second class where training starts; None: a margin of 0.
        scale_pos_weight: factor of the weights of the second of two classes.
        tweedie_variance_power: for :class:`SecureBoostRegressor`.
        multi_strategy: several classes: ``"multi_output_tree"``: one tree a round, with a weight for each class in its
            leaves; ``"one_output_per_tree"``: one tree for each class.
        max_cat_to_onehot: columns of fewer categories than this are split one category against the rest.
        max_cat_threshold: most categories in the smaller side of a set.
        monotone_constraints: for some columns (a dictionary by name or position) or for each (a list) 1, -1 or 0:
            predictions may only rise, only fall, or both. Two classes at most.
        sampling_method: ``"uniform"``, or ``"goss"``: rows of large gradients, and some of the others.
        top_rate: for ``"goss"``: share of the rows that are kept.
        other_rate: for ``"goss"``: share of the rows that are drawn from the others.
        early_stopping_rounds: how many rounds the metric of ``eval_set`` may fail to improve; the best round is kept.
            None: no stop.
        eval_metric: ``"logloss"``, ``"error"`` or ``"auc"``; None: the loss itself.
        mode: ``"standard"``, ``"mixed"`` (each tree on one party's columns, in turn) or ``"layered"`` (the upper levels
            on those of the passive parties, the lower ones on the active party's).
        passive_depth: for ``"layered"``: how many levels the passive parties grow.
        warm_start: whether the next ``fit`` continues the model, until it has ``n_estimators`` rounds; ``views_``
            then tell of the new ones alone.
        random_state: seed of all draws of rows and columns. Keys and ciphertexts never depend on it.
        engine: ``"paillier"``, ``"lattice"``, or ``"plain"``: no encryption at all, only with ``insecure``; the model
            is the same. A dictionary with ``kind`` and parameters for an engine that has parameters of its own.
        key_bits: of ``"paillier"`` 2048, 3072 or 4096; less only with ``insecure``. None: the engine's default.
        insecure: whether a training that protects nothing is wanted.
        workers: processes for encryption; 0: as many as there are cores.
        defenses: what decides what leaves the active party: dictionaries with ``kind`` and parameters, as in a job
            file, composed in this order; or such a list for each party that has one, by its name.
        verbose: whether a bar on stderr shows the progress.

    Attributes:
        classes_: values of the label, sorted.
        n_classes_: how many.
        n_features_in_: columns of X.
        feature_names_in_: their names, where all are texts.
        feature_importances_: share of each column in the total gain of all splits.
        n_estimators_: rounds that the model has.
        parties_: columns of each party, the active one first.
        train_rows_: positions in X of the rows that were trained on: those of positive weight.
        shares_: each party's part of the model (:class:`~labelward.protocols.secureboost.share.ModelShare`).
        views_: what each party saw in training (:class:`~labelward.party.view.View`). Treat them as you treat the data.
        evals_result_: the metric of ``eval_set`` after each round, as XGBoost gives it.
        best_iteration_: the round of its best value, from 0.
        best_score_: this value.

    Example:
        How much of the labels could the partner infer? Attacks are given the partner's view and columns, no label::

            from labelward import AttackerData, AuxiliaryKnowledge
            from labelward.attacks import ATTACKS, fitting_attacks

            model = SecureBoostClassifier(parties={"bank": ["age"], "telco": ["calls", "area"]}).fit(X, y)
            view = model.views_["telco"]
            own = AttackerData(
                features=model.held_by("telco", X),
                columns=view.header.columns,
                categories={name: len(values) for name, values in view.header.categories.items()},
                monotone=view.header.monotone,
            )
            for kind in fitting_attacks("secureboost"):
                aux, rng = AuxiliaryKnowledge(classes=2), np.random.default_rng(1)
                print(kind, v_measure_score(y, ATTACKS.make(kind, {})(view, own, aux, rng=rng).values))
    """

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the margins: float64 [rows] for two classes, [rows, classes] for more."""
        margins: NDArray[np.float64] = self._ask(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins


class SecureBoostRegressor(FederatedRegressorMixin, _Boosted):
    """Boosted trees for regression and counts, trained across parties under encryption.

    Parameters and attributes are those of :class:`SecureBoostClassifier`, but for those about classes, and with:

    Args:
        objective: ``"reg:squarederror"``, ``"count:poisson"`` or ``"reg:tweedie"``; None: squared error.
        base_score: the mean where training starts; None: that of the training targets.
        tweedie_variance_power: of ``"reg:tweedie"``: strictly between 1 (like Poisson) and 2 (like gamma).
        eval_metric: ``"rmse"`` or ``"mae"``; None: the loss itself.
    """
