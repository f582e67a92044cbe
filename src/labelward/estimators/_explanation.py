"""SHAP values of an estimator: one for every column of X, in the order of X, and as ``shap`` plots them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.installation import missing_library
from labelward.protocols.secureboost.explain import Explanation, Feature
from labelward.protocols.secureboost.share import ModelShare

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TableExplanation(Explanation):
    """SHAP values of some rows for all columns of X, in their order.

    Columns without a split, and columns of no party, have the value 0. Of a party that keeps its names, the columns
    on which the model splits follow at the end, numbered as the active party knows them.

    Attributes:
        data: float64 [rows, features], the explained rows as the parties hold them: numbers, codes of categories, NaN
            for missing values, columns of no party, and those of parties that keep their names.
        categories: for each categorical feature, by its position, the names of its categories by code.
        outputs: names of the classes with an output each; empty for a model of one output.
    """

    data: Floats
    categories: Mapping[int, tuple[str, ...]]
    outputs: tuple[str, ...] = ()

    def to_shap(self) -> Any:
        """Return them as a ``shap.Explanation``, for example for ``shap.plots.beeswarm`` and ``shap.plots.waterfall``.

        Its values are [rows, features], and [rows, features, outputs] for a model of several outputs: plots take one
        of these, such as ``found.to_shap()[:, :, "virginica"]``.

        Raises:
            DependencyError: ``shap`` is not installed.
        """
        try:
            import shap
        except ImportError as error:
            raise missing_library("a shap.Explanation", "shap", "explain") from error
        values, expected = self.values, np.broadcast_to(self.expected, self.margins.shape).copy()
        names: list[str] | None = list(self.outputs)
        if not self.outputs:
            values, expected, names = values[:, :, 0], expected[:, 0], None
        return shap.Explanation(
            values=values,
            base_values=expected,
            data=self.data,
            display_data=self._shown() if self.categories else None,
            feature_names=[each.label for each in self.features],
            output_names=names,
        )

    def _shown(self) -> NDArray[np.object_]:
        """Return the rows with categories by name: object [rows, features]."""
        shown: NDArray[np.object_] = self.data.astype(object)
        for at, names in self.categories.items():
            codes = self.data[:, at]
            shown[:, at] = [_category(names, code) for code in codes]
        return shown


def _category(names: Sequence[str], code: float) -> str:
    if np.isnan(code):
        return "missing"
    return names[int(code)] if code >= 0 else "another"


def in_table_order(
    found: Explanation,
    rows: Mapping[str, Floats],
    shares: Mapping[str, ModelShare],
    places: Mapping[str, Sequence[int]],
    columns: Sequence[str],
    named: Collection[str],
) -> TableExplanation:
    """Return an explanation of the columns on which a model splits for all columns of X.

    Args:
        rows: each party's columns of the explained rows.
        places: for each party the positions of its columns in X.
        columns: names of all columns of X.
        named: parties whose columns are known by name.
    """
    lead = next(iter(shares))
    features: list[Feature] = [Feature("", at, name) for at, name in enumerate(columns)]
    data = np.full((len(found.values), len(columns)), np.nan)
    categories: dict[int, tuple[str, ...]] = {}
    for party in dict.fromkeys([lead, *named]):
        share, own = shares[party], places[party]
        data[:, list(own)] = rows[party]
        for number, (at, name) in enumerate(zip(own, share.columns, strict=True)):
            features[at] = Feature(party, number, columns[at])
            if name in share.categories:
                categories[at] = share.categories[name]
    values = np.zeros((len(found.values), len(columns), found.values.shape[2]))
    hidden = []
    for position, each in enumerate(found.features):
        if each.party == lead:
            values[:, places[lead][each.number]] = found.values[:, position]
        elif each.party in named:
            used = list(dict.fromkeys(shares[each.party].own.columns))
            values[:, places[each.party][used[each.number]]] = found.values[:, position]
        else:
            hidden.append(position)
    classes = shares[lead].classes
    return TableExplanation(
        features=(*features, *(found.features[position] for position in hidden)),
        values=np.concatenate([values, found.values[:, hidden]], axis=1),
        expected=found.expected,
        margins=found.margins,
        data=np.concatenate([data, np.full((len(data), len(hidden)), np.nan)], axis=1),
        categories=categories,
        outputs=classes if values.shape[2] > 1 else (),
    )
