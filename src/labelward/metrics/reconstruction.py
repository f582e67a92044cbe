"""Reconstruction advantage: how much better labels are guessed with a view than without.

Accuracy here is the mean recall of the classes, so that all attacks and baselines are on one scale; clusters are named
by the one-to-one assignment of classes that is best for the attacker. *Additive*: the accuracy of an attack minus that
of the best attacker without the view. *Multiplicative*: the difference of their log odds. If labels are
(epsilon, 0)-label DP and the best attacker without the view is optimal, the latter is at most epsilon: the odds of a
guess of one row grow by a factor of e^epsilon at most, and the odds of the mean by no more, as the bound is concave.
So both kinds of defense, with epsilon and without, have a value on the axis of epsilon.

Reference: Busa-Fekete et al., Auditing privacy mechanisms via label inference attacks (NeurIPS 2024). Differences: the
attackers are those that were run, not the optimal ones, so values may be too low with the view, and too high without
a strong attacker among those without; the multiplicative value is of the mean over rows, not a distribution over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.metrics.cluster_labeling import Floats

Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]

_DRAWS = 200


class ReconstructionAdvantage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Advantage of one attack over the best attacker without the view.

    Attributes:
        accuracy: mean recall of the classes, with the view.
        without_view: the same of the best attacker without the view.
        additive: difference of the two.
        additive_error: its standard error, by a bootstrap over rows.
        multiplicative: difference of their log odds, in units of epsilon.
        multiplicative_error: its standard error.
    """

    accuracy: float
    without_view: float
    additive: float
    additive_error: float
    multiplicative: float
    multiplicative_error: float


def right_rows(values: Labels, truth: Labels, *, named: bool) -> Flags:
    """Return bool [rows]: whose label is guessed.

    Args:
        values: int64 [rows], class numbers or clusters.
        truth: int64 [rows], class numbers.
        named: whether ``values`` are class numbers; clusters get the best one-to-one names.
    """
    from scipy.optimize import linear_sum_assignment

    if named:
        return np.asarray(values == truth)
    clusters, cluster = np.unique(values, return_inverse=True)
    classes, label = np.unique(truth, return_inverse=True)
    flat = np.bincount(cluster * len(classes) + label, minlength=len(clusters) * len(classes))
    table = flat.reshape(len(clusters), len(classes)) / np.bincount(label)
    names = np.full(len(clusters), -1)
    taken, given = linear_sum_assignment(table, maximize=True)
    names[taken] = given
    return np.asarray(names[cluster] == label)


def reconstruction_advantages(
    attacks: Sequence[Flags], without: Sequence[Flags], truth: Labels, *, rng: np.random.Generator
) -> list[ReconstructionAdvantage]:
    """Return the advantage of each attack.

    Rows are drawn anew 200 times within their classes, for all attackers alike, and the best one without the view is
    chosen anew each time. Odds are those of shares at least half a row away from 0 and 1.

    Args:
        attacks: for each attack bool [rows], from :func:`right_rows`.
        without: for each attacker without the view, the same.
        truth: int64 [rows], class numbers.
        rng: draws rows.
    """
    all_right = np.stack([*attacks, *without])
    patterns = np.unique(
        np.vstack([truth, np.packbits(all_right, axis=0)]), axis=1, return_index=True, return_counts=True
    )
    first, counts = patterns[1], patterns[2]
    right, of_class = all_right[:, first].astype(np.float64), truth[first]
    classes = [np.flatnonzero(of_class == label) for label in np.unique(truth)]
    sizes = [int(counts[rows].sum()) for rows in classes]

    def accuracies(drawn: Sequence[NDArray[np.int64]]) -> Floats:
        parts = [right[:, rows] @ times / size for rows, times, size in zip(classes, drawn, sizes, strict=True)]
        return np.asarray(np.mean(parts, axis=0))

    def differences(accuracy: Floats) -> tuple[Floats, Floats]:
        best, half = accuracy[len(attacks) :].max(), 0.5 / len(truth)
        odds = [np.log(share / (1 - share)) for share in (np.clip(each, half, 1 - half) for each in (accuracy, best))]
        return accuracy[: len(attacks)] - best, (odds[0] - odds[1])[: len(attacks)]

    measured = accuracies([counts[rows] for rows in classes])
    additive, multiplicative = differences(measured)
    again = [
        differences(accuracies([rng.multinomial(n, counts[rows] / n) for rows, n in zip(classes, sizes, strict=True)]))
        for _ in range(_DRAWS)
    ]
    errors = np.std(again, axis=0, ddof=1)
    return [
        ReconstructionAdvantage(
            accuracy=float(measured[number]),
            without_view=float(measured[len(attacks) :].max()),
            additive=float(additive[number]),
            additive_error=float(errors[0, number]),
            multiplicative=float(multiplicative[number]),
            multiplicative_error=float(errors[1, number]),
        )
        for number in range(len(attacks))
    ]
