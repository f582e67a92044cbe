"""Inversion of a bottom model with known weights, from embeddings to columns, and the repetition of its training."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.nets._torch import nn, torch
from labelward.party.view import View

Floats = NDArray[np.float64]

_SAMPLES, _STARTS, _STEPS = 8192, 16, 60
_DEVIATIONS = (1.0, 2.0, 4.0)  # of the rows that starts are sampled from, in those of a column
_FITS = 1e-5  # deviation, relative to the embedding, up to which a row needs no other start
_PIECE = 4096
_TOGETHER = 2**16  # embeddings' numbers up to which all columns of the Jacobian are found in one pass


class Replay:
    """A party's training of its bottom model, repeated with its rows and the gradients that it got.

    Args:
        bottom: the model at its start.
        view: of the run.
    """

    def __init__(self, bottom: nn.Module, view: View) -> None:
        self._bottom = bottom.train()
        rate, decay = view.parameter("model.learning_rate", 0.05), view.parameter("model.weight_decay", 0.0)
        weights = list(bottom.parameters())
        self._optimizer: torch.optim.Optimizer
        if view.parameter("model.optimizer", "sgd") == "adam":
            self._optimizer = torch.optim.Adam(weights, lr=rate, weight_decay=decay)
        else:
            momentum = view.parameter("model.momentum", 0.9)
            self._optimizer = torch.optim.SGD(weights, lr=rate, momentum=momentum, weight_decay=decay)

    def copy(self) -> nn.Module:
        """Return a copy of the model as it is now."""
        return deepcopy(self._bottom)

    def step(self, rows: Floats, gradient: Floats) -> None:
        """Take the step of a batch: rows [rows, columns], and the gradient of their embeddings."""
        dtype = next(self._bottom.parameters()).dtype
        self._optimizer.zero_grad()
        self._bottom(torch.from_numpy(rows).to(dtype)).backward(torch.from_numpy(gradient).to(dtype))
        self._optimizer.step()


def invert(bottom: nn.Module, embeddings: Floats, columns: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return rows of columns with these embeddings, and the largest deviation of each row's embedding.

    Levenberg-Marquardt for each row, from the best of sampled rows; rows that do not fit start again from all of the
    next best.

    Args:
        bottom: the model; it is used in double precision, and left so.
        embeddings: float64 [rows, numbers].
        columns: number of columns of the model.
        rng: draws the starts.

    Returns:
        float64 [rows, columns] and float64 [rows].
    """
    bottom = bottom.double().eval()
    spread = np.resize(_DEVIATIONS, (_SAMPLES, 1))
    samples = torch.from_numpy(spread * rng.normal(size=(_SAMPLES, columns)))
    with torch.no_grad():
        images = bottom(samples)
    pieces = [
        _inverted(bottom, torch.from_numpy(embeddings[at : at + _PIECE]), samples, images)
        for at in range(0, len(embeddings), _PIECE)
    ]
    found, apart = (torch.cat(each).numpy() for each in zip(*pieces, strict=True))
    return found, apart


def _inverted(
    bottom: nn.Module, wanted: torch.Tensor, samples: torch.Tensor, images: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    nearest = torch.cdist(wanted, images).topk(_STARTS, largest=False).indices
    best, apart = _descended(bottom, wanted, samples[nearest[:, 0]])
    left = torch.nonzero(apart > _FITS * (1 + wanted.abs().amax(1)))[:, 0]
    if len(left):
        others = samples[nearest[left, 1:]].flatten(0, 1)
        found, deviations = _descended(bottom, wanted[left].repeat_interleave(_STARTS - 1, 0), others)
        least, which = deviations.view(len(left), -1).min(1)
        better = least < apart[left]
        best[left[better]] = found.view(len(left), _STARTS - 1, -1)[better, which[better]]
        apart[left[better]] = least[better]
    return best, apart


def _descended(bottom: nn.Module, wanted: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows after Levenberg-Marquardt, each with a damping of its own, and the deviations of their embeddings."""
    damping, identity = torch.full((len(x), 1, 1), 1e-3, dtype=x.dtype), torch.eye(x.shape[1], dtype=x.dtype)
    for _ in range(_STEPS):
        rows = x.detach().requires_grad_()
        out = bottom(rows)
        jacobian, rest = _jacobian(out, rows), (wanted - out).detach()
        normal = jacobian.transpose(1, 2) @ jacobian
        slope = jacobian.transpose(1, 2) @ rest[:, :, None]
        moved = x + torch.linalg.solve(normal + damping * identity, slope)[:, :, 0]
        with torch.no_grad():
            better = (wanted - bottom(moved)).square().sum(1) < rest.square().sum(1)
        x = torch.where(better[:, None], moved, x)
        damping = torch.where(better[:, None, None], damping / 5, damping * 4).clamp(1e-14, 1e6)
    with torch.no_grad():
        return x, (bottom(x) - wanted).abs().amax(1)


def _jacobian(out: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return [rows, numbers, columns], the derivatives of each row's embedding."""
    if out.numel() <= _TOGETHER:
        each = torch.eye(out.shape[1], dtype=out.dtype)[:, None].expand(-1, *out.shape)
        return torch.autograd.grad(out, rows, each, is_grads_batched=True)[0].transpose(0, 1)
    return torch.stack([torch.autograd.grad(each.sum(), rows, retain_graph=True)[0] for each in out.unbind(1)], 1)
