"""First layers of bottom models over tables: scaling, one-hot encoding and hashing of columns."""

from __future__ import annotations

from collections.abc import Mapping

from labelward.protocols.splitnn._torch import nn, torch

_META = torch.device("meta")


class ScaledColumns(nn.Module):
    """Centers and scales columns of numbers; a missing value (NaN) counts as the column's mean."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, columns: int, categories: Mapping[int, int]) -> None:
        super().__init__()
        self.columns, self.categories = columns, dict(sorted(categories.items()))
        self.numbers = [column for column in range(columns) if column not in categories]
        self.register_buffer("mean", torch.zeros(len(self.numbers), device=_META))
        self.register_buffer("scale", torch.ones(len(self.numbers), device=_META))

    def reset_parameters(self) -> None:
        """Do nothing: center and scale are not initialized randomly."""
        self.mean.zero_()
        self.scale.fill_(1.0)

    def fit(self, x: torch.Tensor) -> None:
        """Fit mean and standard deviation of x [rows, columns]; a constant column is centered only."""
        chosen = x[:, self.numbers].double()
        known = ~chosen.isnan()
        counts = known.sum(0).clamp(min=1)
        mean = chosen.nansum(0) / counts
        deviation = torch.where(known, (chosen - mean).square(), 0.0).sum(0).div(counts).sqrt()
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(deviation > 1e-12 * (1 + mean.abs()), deviation, 1.0))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return float [rows, columns of numbers]."""
        chosen = x[:, self.numbers] if self.categories else x
        return ((chosen - self.mean) / self.scale).nan_to_num(nan=0.0, posinf=None, neginf=None)


class TableEncoder(ScaledColumns):
    """Columns of numbers scaled, then for each categorical column one number a category (one-hot).

    Args:
        columns: of the table.
        categories: by position, number of categories of a column. Its values are codes; any other value (such as
            -1, a category that training never met) is none of them.
    """

    def __init__(self, columns: int, categories: Mapping[int, int]) -> None:
        super().__init__(columns, categories)
        self.outputs = len(self.numbers) + sum(self.categories.values())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float [rows, outputs] for x [rows, columns]."""
        blocks = [self.scaled(x)]
        for column, count in self.categories.items():
            codes = torch.arange(count, dtype=x.dtype, device=x.device)
            blocks.append((x[:, column, None] == codes).to(x.dtype))
        return torch.cat(blocks, 1) if len(blocks) > 1 else blocks[0]


class Hashed(ScaledColumns):
    """A linear layer over hashed features: each column, and each category of one, is hashed to one of few buckets.

    A column of numbers adds its scaled value times its bucket's weights; a category adds its bucket's weights. With
    2^12 buckets it is the first layer of the Criteo network (Appendix C of the label inference paper), without ever
    making the wide rows. Difference from the paper: a party hashes its own columns; there all columns are hashed
    together, and the buckets then cut in two.
    """

    def __init__(self, columns: int, categories: Mapping[int, int], buckets: int, outputs: int) -> None:
        super().__init__(columns, categories)
        self.buckets = buckets
        self.weight = nn.Parameter(torch.empty(buckets, outputs, device=_META))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float [rows, outputs] for x [rows, columns]."""
        columns = torch.tensor([*self.numbers, *self.categories], device=x.device)
        codes = x[:, columns].nan_to_num(nan=-1.0).long()
        codes[:, : len(self.numbers)] = 0
        values = torch.ones(codes.shape, dtype=x.dtype, device=x.device)
        values[:, : len(self.numbers)] = self.scaled(x)
        places = _mixed(columns * (1 << 32) + codes) % self.buckets
        return nn.functional.embedding_bag(places, self.weight, per_sample_weights=values, mode="sum")


def _mixed(keys: torch.Tensor) -> torch.Tensor:
    """Return well-mixed numbers (the finalizer of MurmurHash3, in wrapping 64-bit arithmetic)."""
    for factor in (-49064778989728563, -4265267296055464877):
        keys = keys ^ ((keys >> 33) & 0x7FFFFFFF)
        keys = keys * factor
    return keys ^ ((keys >> 33) & 0x7FFFFFFF)
