"""Distances of all pairs of rows, and what the directions from one row to another count.

All loops run over the rows of one number, which lie side by side, so that a processor takes several at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit


@jit
def distance_sums(
    x: NDArray[Any],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    sums: NDArray[Any],
    of_class: NDArray[Any],
    inverse: NDArray[Any],
) -> None:
    """Add each row's distances to all rows and to those of its class, and note the inverse of each.

    Args:
        x: [numbers, rows], rows ordered by class; all arrays have its type.
        begin: int64 [rows]: the first row of each row's class.
        end: int64 [rows]: the row behind its last one.
        sums: [rows], added to.
        of_class: [rows], added to.
        inverse: [rows, rows], written; 0 for rows that are equal.
    """
    numbers, rows = x.shape
    far, one, none = np.empty(rows, x.dtype), x.dtype.type(1), x.dtype.type(0)
    for i in range(rows):
        far[:] = none
        for k in range(0, numbers - 1, 2):
            here, other = x[k, i], x[k + 1, i]
            for j in range(rows):
                step, another = x[k, j] - here, x[k + 1, j] - other
                far[j] += step * step + another * another
        for k in range(numbers - numbers % 2, numbers):
            here = x[k, i]
            for j in range(rows):
                step = x[k, j] - here
                far[j] += step * step
        for j in range(rows):
            far[j] = np.sqrt(far[j])
        for j in range(rows):
            sums[j] += far[j]
        row = inverse[i]
        for j in range(rows):
            row[j] = np.divide(one, far[j]) if far[j] > none else none
        own, near = of_class[begin[i] : end[i]], far[begin[i] : end[i]]
        for j in range(len(own)):
            own[j] += near[j]


@jit
def direction_weights(
    begin: NDArray[np.int64], end: NDArray[np.int64], inverse: NDArray[Any], masses: NDArray[Any]
) -> None:
    """Multiply the inverse of each distance by the masses of both rows, less 1 within a class.

    Args:
        begin: as of :func:`distance_sums`, like the next two; the last one is changed.
        masses: [rows].
    """
    rows = len(masses)
    for i in range(rows):
        mass, first, last = masses[i], begin[i], end[i]
        less = mass - masses.dtype.type(1)
        row = inverse[i]
        for j in range(rows):
            row[j] *= mass + masses[j] if j < first or j >= last else less + masses[j]


@jit
def line_distance_sums(x: NDArray[np.float64], own: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
    """Write sums over all rows of one number each, and over those of the row's class.

    Args:
        x: float64 [rows], ascending.
        own: int64 [rows], the class of each, counted from 0.
        sums: float64 [4, rows], zeros at first: distances to all rows, to those of the class; rows below less rows
            above, and the same of the class. Equal rows are neither.
    """
    rows, classes = len(x), own.max() + 1
    count, total = np.zeros(classes), np.zeros(classes)
    for sign in (1, -1):
        count[:], total[:] = 0, 0
        all_count = all_total = 0.0
        first = 0
        while first < rows:
            last = first
            here = x[first] if sign > 0 else x[rows - 1 - first]
            while last < rows and (x[last] if sign > 0 else x[rows - 1 - last]) == here:
                at = last if sign > 0 else rows - 1 - last
                sums[0, at] += sign * (here * all_count - all_total)
                sums[1, at] += sign * (here * count[own[at]] - total[own[at]])
                sums[2, at] += sign * all_count
                sums[3, at] += sign * count[own[at]]
                last += 1
            for place in range(first, last):
                at = place if sign > 0 else rows - 1 - place
                count[own[at]] += 1
                total[own[at]] += here
            all_count += last - first
            all_total += here * (last - first)
            first = last


@jit
def line_direction_sums(x: NDArray[np.float64], masses: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    """Write for each row the mass of the rows below it less that of the rows above; equal rows are neither.

    Args:
        x: float64 [rows], ascending.
        masses: float64 [rows].
        sums: float64 [rows], written.
    """
    rows, whole = len(x), masses.sum()
    below, first = 0.0, 0
    while first < rows:
        last, equal = first, 0.0
        while last < rows and x[last] == x[first]:
            equal += masses[last]
            last += 1
        for at in range(first, last):
            sums[at] = 2 * below + equal - whole
        below += equal
        first = last


@jit
def covariances(
    near: NDArray[Any], within: NDArray[Any], others: NDArray[np.float64], square: float, masses: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return squared distance covariances: of rows and classes, of rows, of classes.

    Args:
        near: [rows], mean distance of each row to all rows.
        within: [rows], the same with distances to rows of other classes counted as 0.
        others: float64 [rows], share of the rows of other classes.
        square: mean squared length of the rows, whose mean is 0.
        masses: float64 [rows], written: what the directions to a row count in the gradient of the correlation
            (:func:`direction_weights`).
    """
    rows = len(near)
    mean = other = crossed = inside = squares = other_squares = 0.0
    for row in range(rows):
        mean += near[row]
        other += others[row]
        crossed += others[row] * near[row]
        inside += within[row]
        squares += near[row] * near[row]
        other_squares += others[row] * others[row]
    mean, other = mean / rows, other / rows
    shared = (1 + other) * mean - (2 * crossed + inside) / rows
    of_rows = 2 * (square - squares / rows) + mean * mean
    ratio = shared / of_rows if of_rows > 0 else 0.0
    for row in range(rows):
        masses[row] = ratio * near[row] - others[row] + (1 + other - ratio * mean) / 2
    return shared, of_rows, other - 2 * other_squares / rows + other * other
