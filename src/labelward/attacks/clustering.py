"""CL: the attacker's own columns clustered, without its view: what it can tell before anything arrives.

Reference: the baseline of the ID2Graph paper (k-means on the attacker's columns).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.errors import DataError, InputError
from labelward.kernels.spectral import one_thread
from labelward.party.view import View

_DENSE_BYTES = 256 * 2**20  # a larger matrix of features and indicators is kept sparse


@dataclass(frozen=True, kw_only=True)
class Clustering(Attack):
    """Baseline without the view: k-means on the attacker's min-max scaled columns, one cluster per class.

    Categories count as columns of 0 and 1, a missing value as its column's mean.

    Setting: any party; nothing of the view but its row count is read. Auxiliary knowledge: the number of
        classes.
    """

    kind: ClassVar[str] = "clustering"
    reads_view: ClassVar[bool] = False

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        return LabelGuess(values=cluster_features(own.numbers(), aux.classes, kmeans_seed(rng)))


def validate_features(view: View, own: AttackerData, aux: AuxiliaryKnowledge) -> None:
    """Refuse features that are not the view's rows or cannot be clustered; raises as :class:`Clustering`."""
    validate_rows(view, own)
    if own.features.shape[1] == 0:
        raise DataError(f"party {view.party!r} holds no column to cluster", code="columns", value=view.party)
    bad = np.argwhere(np.isinf(own.features))
    if len(bad):
        row, column = bad[0]
        value = own.features[row, column]
        raise DataError(
            f"column {own.columns[column]!r} holds {value} in row {row}; k-means needs finite values",
            code="values",
            value=float(value),
        )
    validate_classes(view, aux)


def validate_rows(view: View, own: AttackerData) -> None:
    """Refuse features that are not the view's rows."""
    if len(own.features) != view.rows:
        raise DataError(
            f"the features of party {view.party!r} have {len(own.features)} rows but its view has {view.rows}",
            code="rows",
            value=len(own.features),
        )


def validate_classes(view: View, aux: AuxiliaryKnowledge) -> None:
    """Refuse fewer than one class, and more classes than rows."""
    if not 1 <= aux.classes <= view.rows:
        raise InputError(
            f"classes must be from 1 to the number of rows ({view.rows}) but is {aux.classes}",
            code="range",
            value=aux.classes,
        )


def kmeans_seed(rng: np.random.Generator) -> int:
    """Draw the seed of :func:`cluster_features`.

    Attacks that extend CL draw it first, so that without a view they give CL's clusters.
    """
    return int(rng.integers(2**31))


def cluster_features(
    features: NDArray[np.float64],
    classes: int,
    seed: int,
    *,
    community: NDArray[np.int32] | None = None,
    alpha: float = 0.0,
) -> NDArray[np.int64]:
    """Return int64 [rows]: k-means clusters of [min-max scaled features, alpha × indicators of the communities].

    K-means as :func:`kmeans` does it, of :func:`cluster_points`.
    """
    return kmeans(cluster_points(features, community, alpha), classes, seed)


def cluster_points(
    features: NDArray[np.float64], community: NDArray[np.int32] | None = None, alpha: float = 0.0
) -> Any:
    """Return new points, one a row: [min-max scaled features, alpha × indicators of the communities].

    A constant column counts as 0; so does a single community, which is uninformative. With so many communities that the
    matrix would exceed 256 MiB, the indicators are kept sparse.
    """
    count = 0 if community is None else int(community.max(initial=0)) + 1
    return _block(features, community, count, alpha) if community is not None and count > 1 else _scaled(features)


def kmeans(points: Any, classes: int, seed: int, *, weights: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Return int64 [rows]: clusters of points (a dense or sparse matrix, which may be overwritten), each of its weight.

    K-means++, 10 starts, at most 300 iterations, tolerance 1e-4. One thread, so that the number of cores
    cannot change a rounding.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(n_clusters=classes, n_init=10, max_iter=300, tol=1e-4, random_state=seed, copy_x=False)
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters: some stay empty
        labels: NDArray[np.int32] = model.fit(points, sample_weight=weights).labels_
    return labels.astype(np.int64)


def _scaled(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a copy with each column's values from 0 to 1, a constant column 0."""
    low, high = features.min(axis=0), features.max(axis=0)
    scaled: NDArray[np.float64] = (features - low).astype(np.float64)  # token numbers are whole
    scaled /= np.where(high > low, high - low, 1.0)
    return scaled


def _block(features: NDArray[np.float64], community: NDArray[np.int32], count: int, alpha: float) -> Any:
    """Return [scaled features, alpha × indicators], dense, or sparse if that would be large."""
    rows, columns = features.shape
    if rows * (columns + count) * features.itemsize <= _DENSE_BYTES:
        block = np.zeros((rows, columns + count))
        block[:, :columns] = _scaled(features)
        block[np.arange(rows), columns + community] = alpha
        return block
    from scipy.sparse import csr_matrix

    values, indices = np.full((rows, columns + 1), alpha), np.empty((rows, columns + 1), np.int32)
    values[:, :columns] = _scaled(features)
    indices[:, :columns], indices[:, columns] = np.arange(columns), columns + community
    starts = np.arange(rows + 1, dtype=np.int32) * (columns + 1)
    return csr_matrix((values.ravel(), indices.ravel(), starts), shape=(rows, columns + count))
