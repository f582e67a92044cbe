"""Gaussian bottlenecks between received embeddings and what the active party makes of them (MID)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelward.protocols.splitnn._torch import nn, torch

_META = torch.device("meta")


class Bottleneck(nn.Module):
    """One bottleneck for each party: a normal distribution that follows from its embeddings, and a draw of it.

    Mean and deviation are linear in the embeddings, the deviation behind a softplus of its value less .5.

    Args:
        sizes: numbers a row of each party.

    Attributes:
        noise: of the next draws, a generator; None: means pass.
        penalty: of the last batch, the mean over its rows of the Kullback-Leibler divergence from standard normal
            numbers, summed over parties.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.means = nn.ModuleList(nn.Linear(size, size, device=_META) for size in sizes)
        self.spreads = nn.ModuleList(nn.Linear(size, size, device=_META) for size in sizes)
        self.noise: np.random.Generator | None = None
        self.penalty = torch.zeros(())

    def forward(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return what passes of each party's embeddings."""
        mean = torch.cat([to_mean(part) for part, to_mean in zip(parts, self.means, strict=True)], 1)
        spread = torch.cat([to_spread(part) for part, to_spread in zip(parts, self.spreads, strict=True)], 1)
        deviation = nn.functional.softplus(spread - 0.5)
        self.penalty = normal_divergence(mean, deviation)
        if self.noise is not None:
            drawn = torch.from_numpy(np.hstack([self.noise.normal(size=tuple(part.shape)) for part in parts]))
            mean = mean + deviation * drawn.to(mean.device, mean.dtype)
        return list(torch.split(mean, [part.shape[1] for part in parts], 1))


def normal_divergence(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """Return the mean over rows of KL(N(mean, deviation²) || N(0, 1)), summed over the numbers of a row."""
    return (mean.square() + deviation.square() - 2 * deviation.log() - 1).sum(1).mean() / 2
