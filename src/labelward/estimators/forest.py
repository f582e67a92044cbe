"""Federated random forests with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from labelward.estimators._targets import FederatedClassifierMixin, FederatedRegressorMixin
from labelward.estimators._trees import FederatedTrees
from labelward.protocols.secureboost.params import FederatedForest


@dataclass(kw_only=True, eq=False, repr=False)
class _Forest(FederatedTrees):
    """Further parameters, described in :class:`FederatedForestClassifier`."""

    model = FederatedForest
    renamed: ClassVar[Mapping[str, str]] = {
        **FederatedTrees.renamed,
        "row_fraction": "max_samples",
        "replace": "bootstrap",
    }

    max_samples: float = 1.0
    bootstrap: bool = True
    trees_at_once: int = 4


class FederatedForestClassifier(FederatedClassifierMixin, _Forest):
    """A random forest for classes, trained across parties under encryption.

    All parties live in this process; see :class:`~labelward.estimators.SecureBoostClassifier`, of which all parameters
    and attributes that are not listed here have the same meaning.

    Args:
        n_estimators: number of trees. Rows are encrypted once for all of them.
        max_samples: share of the rows drawn for each tree.
        bootstrap: whether rows are drawn with replacement.
        colsample_bytree: share of each party's columns drawn for each tree. scikit-learn's ``max_features`` draws anew
            in each node, which would tell parties where the nodes are, so it does not exist here.
        gamma: least gain of a split: the decrease of Gini impurity times the node's rows.
        min_child_weight: least sum of row weights in a leaf.
        monotone_constraints: for :class:`FederatedForestRegressor`; a forest has an output for each class, even of two.
        trees_at_once: how many trees grow side by side, so that the parties work at the same time.

    Of scikit-learn's checks of estimators, ``check_sample_weight_equivalence_on_dense_data`` does not hold, as it does
    not for scikit-learn's own forests: it takes a row of weight 2 for two rows, but where rows are drawn, a row of
    weight 2 is one to draw, and not two. With ``bootstrap=False`` and ``max_samples=1.0`` it holds.
    """


class FederatedForestRegressor(FederatedRegressorMixin, _Forest):
    """A random forest for regression, trained across parties under encryption.

    Parameters and attributes are those of :class:`FederatedForestClassifier`, but for those about classes; splits are
    chosen by the decrease of the variance. The same check of scikit-learn does not hold, for the same reason.
    """
