"""Distance correlation over equal rows, several blocks and single precision, by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.defenses.distance_correlation import DistanceCorrelation, distance_correlation
from labelward.policy.net_points import ReturnedGradient
from labelward.rng import SecureRandom

Floats = NDArray[np.float64]
ROWS = 300


def by_definition(x: Floats, labels: NDArray[np.int64]) -> tuple[float, Floats]:
    """Return the correlation and its gradient from all pairs of rows; equal rows have no direction."""
    distances = np.sqrt(np.square(x[:, None] - x).sum(axis=2))
    of_rows, of_labels = centered(distances), centered((labels[:, None] != labels).astype(np.float64))
    shared, rows, classes = (of_rows * of_labels).mean(), np.square(of_rows).mean(), np.square(of_labels).mean()
    correlation = float(np.sqrt(shared / np.sqrt(rows * classes)))
    by_distance = (of_labels - shared / rows * of_rows) / (np.sqrt(rows * classes) * len(x) ** 2 * correlation)
    units = (x[:, None] - x) / np.where(distances, distances, np.inf)[..., None]
    return correlation, (by_distance[..., None] * units).sum(axis=1)


def centered(distances: Floats) -> Floats:
    means = distances.mean(axis=0)
    return np.asarray(distances - means - means[:, None] + means.mean())


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("classes", [2, 4])
def test_equal_rows_and_single_precision(width: int, classes: int) -> None:
    rng = np.random.default_rng(width)
    labels = rng.integers(0, classes, ROWS) * 3
    x = np.round(2 * rng.normal(size=(ROWS, width)) + labels[:, None] / 3) / 2 + 0.1
    expected, gradient = by_definition(x, labels)
    found, pulled = distance_correlation(x, labels)
    assert found == pytest.approx(expected, abs=1e-9)
    assert np.abs(pulled - gradient).max() < 1e-9
    single = distance_correlation(x.astype(np.float32), labels)[1]
    assert np.abs(single - gradient).max() < 1e-4 * np.abs(gradient).max()


@pytest.mark.parametrize("width", [1, 3])
def test_rows_that_are_all_equal_get_nothing(width: int) -> None:
    correlation, gradient = distance_correlation(np.full((17, width), 0.3), np.arange(17) % 2)
    assert correlation == 0.0
    assert not gradient.any()


def test_large_batches_are_compared_in_parts() -> None:
    """Each part gets the gradient of its own correlation, by its share of the batch; one number is compared whole."""
    rng = np.random.default_rng(5)
    labels = np.arange(70) % 2
    for width, parts in ((3, [slice(0, 24), slice(24, 47), slice(47, 70)]), (1, [slice(0, 70)])):
        x = rng.normal(size=(70, width)) + labels[:, None]
        returned = ReturnedGradient(
            party="telco",
            epoch=0,
            batch=0,
            values=np.ones_like(x),
            targets=labels.astype(np.float64),
            classes=2,
            draw=lambda purpose: np.random.default_rng(1),
            protection=SecureRandom(1),
            embeddings=x,
        )
        found = DistanceCorrelation(weight=2.0, rows=30).on_returned_gradient(returned) - returned.values
        for rows in parts:
            share = len(labels[rows]) / len(labels)
            expected = 2.0 * share * distance_correlation(x[rows], labels[rows])[1]
            np.testing.assert_allclose(found[rows], expected, atol=1e-12)
