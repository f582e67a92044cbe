"""A perceptron with one hidden layer (ReLU), its gradients under cross-entropy, and Adam; float64, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.line_perceptron import line_gradients
from labelward.kernels.objectives import softmax

Floats = NDArray[np.float64]
Weights = Sequence[Floats]

_PIECE = 512
"""Rows whose hidden layer is worked out together; more at once took twice the time, fewer no less."""
_DECAY, _SQUARE_DECAY, _TINY = 0.9, 0.999, 1e-8


@dataclass
class Adam:
    """Weights in training, with the means and mean squares of their gradients (Adam, as torch has it)."""

    weights: list[Floats]
    means: list[Floats] = field(default_factory=list)
    squares: list[Floats] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.means = self.means or [np.zeros_like(weight) for weight in self.weights]
        self.squares = self.squares or [np.zeros_like(weight) for weight in self.weights]

    def step(self, gradients: Weights, rate: float) -> None:
        """Change all weights in place."""
        self.steps += 1
        for weight, mean, square, gradient in zip(self.weights, self.means, self.squares, gradients, strict=True):
            mean += (1 - _DECAY) * (gradient - mean)
            square += (1 - _SQUARE_DECAY) * (gradient**2 - square)
            size = np.sqrt(square / (1 - _SQUARE_DECAY**self.steps)) + _TINY
            weight -= rate * mean / (1 - _DECAY**self.steps) / size


def drawn_perceptron(inputs: int, width: int, classes: int, rng: np.random.Generator) -> list[Floats]:
    """Return weights and biases of both layers, uniform within 1/√inputs of the layer."""
    sizes = ((inputs, width), (width,), (width, classes), (classes,))
    bounds = np.sqrt([1 / inputs, 1 / inputs, 1 / width, 1 / width])
    return [rng.uniform(-bound, bound, size) for bound, size in zip(bounds, sizes, strict=True)]


def cross_entropy_gradients(weights: Weights, inputs: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Weights]:
    """Return the gradients of the mean cross-entropy by the inputs [rows, inputs], and by the weights."""
    if inputs.shape[1] == 1:
        by_rows, of_sum = line_gradients(weights, inputs[:, 0], labels)
        return by_rows[:, None] / len(labels), [each / len(labels) for each in of_sum]
    first, first_bias, last, last_bias = weights
    with_bias, joined = np.vstack([first, first_bias]), np.column_stack([inputs, np.ones(len(inputs))])
    pieces = [
        _summed_gradients((with_bias, last, last_bias), joined[start : start + _PIECE], labels[start : start + _PIECE])
        for start in range(0, len(labels), _PIECE)
    ]
    by_inputs = np.concatenate([each for each, _ in pieces])
    by_first, by_last, by_last_bias = (
        np.sum(each, axis=0) / len(labels) for each in zip(*(own for _, own in pieces), strict=True)
    )
    return by_inputs / len(labels), [by_first[:-1], by_first[-1], by_last, by_last_bias]


def _summed_gradients(
    weights: tuple[Floats, Floats, Floats], inputs: Floats, labels: NDArray[np.int64]
) -> tuple[Floats, Weights]:
    """Return the gradients of the sum of cross-entropies of a piece of the rows, whose arrays stay in the cache.

    Args:
        weights: those of the hidden layer with its biases as last row, and those of the other layer.
        inputs: float64 [rows, inputs + 1], the last column 1.
        labels: int64 [rows].
    """
    first, last, last_bias = weights
    hidden = inputs @ first
    np.maximum(hidden, 0.0, out=hidden)
    wrong = softmax(hidden @ last + last_bias)
    wrong[np.arange(len(labels)), labels] -= 1.0
    back = wrong @ last.T
    back *= hidden > 0
    return back @ first[:-1].T, (inputs.T @ back, hidden.T @ wrong, wrong.sum(axis=0))
