"""Recommender networks as bottom models: DeepFM, Wide & Deep, NFM and EDCN over fields of categories and numbers.

All have a linear part over all columns and, for each category, a vector of :data:`FIELD_SIZE` numbers. A missing
category is one of its own, and so is one that training never met, whose vector stays at its start. Numbers enter the
linear part and the dense layers, and not the factorization: on the Criteo sample this raises the AUC of DeepFM from .66
to .70.

References: Guo et al. 2017 (DeepFM), Cheng et al. 2016 (Wide & Deep), He and Chua 2017 (NFM), Chen et al. 2021 (EDCN);
sizes of Appendix F of the LPSC paper. Differences: an embedding may have several numbers; the factorization of
DeepFM, a single number, is then added to each. The dense layers start as all layers of this package do, and not at
1e-4. Set ``weight_decay`` for an L2 penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.models.tabular import ScaledColumns

_META = torch.device("meta")

FIELD_SIZE = 4
"""Numbers in the vector of a category."""


class FieldTable(nn.Embedding):
    """A weight or a vector for each number and each category, drawn with a small standard deviation."""

    deviation: ClassVar[float] = 1e-4


class Recommender(ScaledColumns):
    """Base: the linear part, and the vectors of the fields.

    Args:
        columns: of the table.
        categories: by position, number of categories of a column.
        outputs: numbers a row.
        hidden: sizes of the dense layers.
        dense: numbers a row that the dense layers take.
    """

    hidden: ClassVar[tuple[int, ...]] = (256, 128)

    def __init__(self, columns: int, categories: Mapping[int, int], outputs: int) -> None:
        super().__init__(columns, categories)
        self.starts = [len(self.numbers)]  # rows of the tables: numbers, then for each column its categories and 2 more
        for count in self.categories.values():
            self.starts.append(self.starts[-1] + count + 2)
        self.weights = FieldTable(self.starts[-1], outputs, device=_META)
        self.vectors = FieldTable(self.starts[-1], FIELD_SIZE, device=_META)
        self.build(outputs)

    def build(self, outputs: int) -> None:
        """Add the layers of the model beside the linear part."""
        raise NotImplementedError

    def interact(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return float [rows, outputs] for vectors [rows, fields, FIELD_SIZE] and scaled numbers [rows, numbers]."""
        raise NotImplementedError

    @property
    def factorized(self) -> int:
        """Number of fields that have a vector."""
        return len(self.categories)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float [rows, outputs] for x [rows, columns]."""
        numbers, places = self.scaled(x), self._places(x)
        values = torch.cat([numbers, torch.ones_like(x[:, : len(self.categories)])], 1)
        linear = nn.functional.embedding_bag(places, self.weights.weight, per_sample_weights=values, mode="sum")
        first = places.shape[1] - self.factorized
        fields = self.vectors(places[:, first:]) * values[:, first:, None]
        return linear + self.interact(fields, numbers)

    def _places(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of the tables: [rows, numbers and categorical columns]."""
        known = torch.arange(len(self.numbers), device=x.device).expand(len(x), -1)
        codes = x[:, list(self.categories)]
        counts = torch.tensor(list(self.categories.values()), dtype=x.dtype, device=x.device)
        codes = torch.where(codes.isnan(), counts, torch.where((codes < 0) | (codes >= counts), counts + 1, codes))
        starts = torch.tensor(self.starts[:-1], dtype=torch.long, device=x.device)
        return torch.cat([known, codes.long() + starts], 1)

    def _dense(self, inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, after in pairwise((inputs, *self.hidden)):
            layers += [nn.Linear(before, after, device=_META), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(self.hidden[-1], outputs, device=_META))


def pairwise_products(fields: torch.Tensor) -> torch.Tensor:
    """Return the sum of the element-wise products of all pairs of fields: [rows, size] for [rows, fields, size]."""
    return (fields.sum(1).square() - fields.square().sum(1)) / 2


class WideAndDeep(Recommender):
    """Wide & Deep: dense layers over the vectors of all fields and the numbers."""

    def build(self, outputs: int) -> None:
        """See :meth:`Recommender.build`."""
        self.deep = self._dense(FIELD_SIZE * len(self.categories) + len(self.numbers), outputs)

    def interact(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See :meth:`Recommender.interact`."""
        deep: torch.Tensor = self.deep(torch.cat([fields.flatten(1), numbers], 1))
        return deep


class DeepFM(WideAndDeep):
    """DeepFM: Wide & Deep, and the inner products of all pairs of fields."""

    def interact(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See :meth:`Recommender.interact`."""
        return super().interact(fields, numbers) + pairwise_products(fields).sum(1, keepdim=True)


class NFM(Recommender):
    """Neural factorization machine: dense layers over the sum of all pairs' products, and the numbers."""

    hidden = (128, 128)

    def build(self, outputs: int) -> None:
        """See :meth:`Recommender.build`."""
        self.deep = self._dense(FIELD_SIZE + len(self.numbers), outputs)

    def interact(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See :meth:`Recommender.interact`."""
        deep: torch.Tensor = self.deep(torch.cat([pairwise_products(fields), numbers], 1))
        return deep


class FieldGate(nn.Module):
    """Weights of the fields of one branch of EDCN: softmax of trained numbers, at temperature 1."""

    def __init__(self, fields: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.ones(fields, device=_META))

    def reset_parameters(self) -> None:
        """Weigh all fields alike."""
        nn.init.ones_(self.gate)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """Return [rows, fields × size] for [rows, fields, size]."""
        return (fields * self.gate.softmax(0)[:, None]).flatten(1)


class CrossLayer(nn.Module):
    """x (x · w) + b + x (Wang et al. 2017)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.direction = nn.Linear(size, 1, bias=False, device=_META)
        self.bias = nn.Parameter(torch.zeros(size, device=_META))

    def reset_parameters(self) -> None:
        """Start without an offset."""
        nn.init.zeros_(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [rows, size]."""
        crossed: torch.Tensor = x * self.direction(x) + self.bias + x
        return crossed


class EDCN(Recommender):
    """Enhanced deep and cross network: cross layers beside dense ones, joined by products after each layer.

    Numbers enter the linear part only. A party without categories has a vector for each number instead.
    """

    layers: ClassVar[int] = 2

    @property
    def factorized(self) -> int:
        """See :attr:`Recommender.factorized`."""
        return len(self.categories) or len(self.numbers)

    def build(self, outputs: int) -> None:
        """See :meth:`Recommender.build`."""
        size = FIELD_SIZE * self.factorized
        self.gates = nn.ModuleList(FieldGate(self.factorized) for _ in range(2 * self.layers))
        self.crosses = nn.ModuleList(CrossLayer(size) for _ in range(self.layers))
        self.deeps = nn.ModuleList(nn.Linear(size, size, device=_META) for _ in range(self.layers))
        self.last = nn.Linear(3 * size, outputs, device=_META)

    def interact(self, fields: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See :meth:`Recommender.interact`."""
        joined = fields
        for layer, (cross, deep) in enumerate(zip(self.crosses, self.deeps, strict=True)):
            crossed = cross(self.gates[2 * layer](joined))
            dense = deep(self.gates[2 * layer + 1](joined)).relu()
            joined = (crossed * dense).view_as(fields)
        found: torch.Tensor = self.last(torch.cat([crossed, dense, joined.flatten(1)], 1))
        return found


RECOMMENDERS: dict[str, type[Recommender]] = {"deepfm": DeepFM, "wdl": WideAndDeep, "nfm": NFM, "edcn": EDCN}
