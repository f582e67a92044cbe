"""Bottom and top models by name, built and initialized from their description alone; nothing is downloaded.

A description (:class:`ModelSpec`) is stored with the weights, so that a share opens in a new process. Weights are drawn
from a generator that is handed in: the process's own generator of torch is neither seeded nor moved on. It is one of
numpy, of which 128 bits of a key matter: torch's has 2^32 streams on the CPU, so that whoever receives embeddings or
gradients could try all of them. It is accepted for weights of version 0.1.0.

Reference: Table 1 of the label inference paper. Differences: hidden sizes are free where the paper gives none;
convolutions start as He et al. (2015) have it, as in the paper, linear layers as torch starts them (uniform within
1/√inputs).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import msgspec
import numpy as np

from labelward.errors import JobError
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.models.bert import bert
from labelward.protocols.splitnn.models.bottleneck import Bottleneck
from labelward.protocols.splitnn.models.recommenders import (
    RECOMMENDERS,
    CrossLayer,
    FieldGate,
    FieldTable,
)
from labelward.protocols.splitnn.models.resnet import resnet_18, resnet_20
from labelward.protocols.splitnn.models.tabular import Hashed, ScaledColumns, TableEncoder

_META = torch.device("meta")

Draws = np.random.Generator | torch.Generator


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Description from which a preset is built.

    Attributes:
        preset: its name; ``"module"`` for a model that was handed in, which no description can build.
        inputs: shape of one row: (columns,), (channels, height, width) or (tokens,); of ``"bottleneck"`` the numbers a
            row of each party.
        outputs: numbers a row.
        width: of hidden layers.
        buckets: of ``"hashed"``.
        vocabulary: of a BERT.
        image: channels and height of the images that rows of columns are; empty where rows are no images, or are them.
        categories: for a table, by position, number of categories of a column; their codes are one-hot encoded.
    """

    preset: str
    inputs: tuple[int, ...]
    outputs: int
    width: int = 64
    buckets: int = 4096
    vocabulary: int = 30522
    image: tuple[int, ...] = ()
    categories: dict[int, int] = {}


def build(spec: ModelSpec, draws: Draws, dtype: torch.dtype) -> nn.Module:
    """Return the module on the CPU, in this dtype, with drawn weights.

    Raises:
        JobError: rows of this shape do not fit the preset.
    """
    make, axes = _PRESETS[spec.preset]
    pixels = spec.image and axes == 3 and len(spec.inputs) == 1
    if pixels:
        spec = msgspec.structs.replace(spec, inputs=_image(spec.inputs[0], spec.image))
    if (axes and len(spec.inputs) != axes) or 0 in spec.inputs:
        shape = " x ".join(map(str, spec.inputs)) or "nothing"
        raise JobError(
            f"{spec.preset!r} takes rows of {_AXES[axes]}, not of {shape}", code="unsupported", value=spec.inputs
        ).under("[model]")
    module = make(spec).to(dtype)
    if pixels:
        module = nn.Sequential(nn.Unflatten(1, spec.inputs), module)
    module = module.to_empty(device="cpu")
    initialize(module, draws)
    return module


def initialize(module: nn.Module, draws: Draws) -> None:
    """Initialize all weights, in the order of the module's parts."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, ScaledColumns):
                part.reset_parameters()
            if isinstance(part, nn.Linear):
                bound = 1 / math.sqrt(part.in_features)
                for weight in part.parameters(recurse=False):
                    _uniform(weight, bound, draws)
            elif isinstance(part, nn.Conv2d):
                _normal(part.weight, math.sqrt(2 / part.weight[0].numel()), draws)
            elif isinstance(part, nn.Embedding):
                _normal(part.weight, FieldTable.deviation if isinstance(part, FieldTable) else 0.02, draws)
            elif isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | FieldGate | CrossLayer):
                part.reset_parameters()
            elif isinstance(part, Hashed):
                _normal(part.weight, 1 / math.sqrt(part.columns), draws)


def _uniform(weight: torch.Tensor, bound: float, draws: Draws) -> None:
    if isinstance(draws, torch.Generator):
        weight.uniform_(-bound, bound, generator=draws)
    else:
        weight.copy_(torch.from_numpy(draws.uniform(-bound, bound, tuple(weight.shape))))


def _normal(weight: torch.Tensor, deviation: float, draws: Draws) -> None:
    if isinstance(draws, torch.Generator):
        weight.normal_(0.0, deviation, generator=draws)
    else:
        weight.copy_(torch.from_numpy(draws.normal(0.0, deviation, tuple(weight.shape))))


def _image(columns: int, image: tuple[int, ...]) -> tuple[int, ...]:
    """Return channels, height and width of an image whose pixels are columns."""
    channels, height = image
    width, left = divmod(columns, channels * height)
    if left or not width:
        raise JobError(
            f"{columns} columns are no image of {channels} channel(s) and a height of {height} pixels",
            code="conflict",
            field="[model] height",
            value=columns,
        )
    return channels, height, width


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, device=_META)


def _norm(size: int) -> nn.BatchNorm1d:
    return nn.BatchNorm1d(size, device=_META)


def _make_linear(spec: ModelSpec) -> nn.Module:
    table = TableEncoder(spec.inputs[0], spec.categories)
    return nn.Sequential(table, _linear(table.outputs, spec.outputs))


def _make_mlp(spec: ModelSpec) -> nn.Module:
    table = TableEncoder(spec.inputs[0], spec.categories)
    return nn.Sequential(table, _linear(table.outputs, spec.width), nn.ReLU(), _linear(spec.width, spec.outputs))


def _make_fcnn_3(spec: ModelSpec) -> nn.Module:
    table = TableEncoder(spec.inputs[0], spec.categories)
    return nn.Sequential(table, *_fcnn_3(table.outputs, spec))


def _make_hashed(spec: ModelSpec) -> nn.Module:
    hashed = Hashed(spec.inputs[0], spec.categories, spec.buckets, spec.width)
    rest = [_norm(spec.width), nn.ReLU(), _linear(spec.width, spec.width), _norm(spec.width), nn.ReLU()]
    return nn.Sequential(hashed, *rest, _linear(spec.width, spec.outputs))


def _fcnn_3(inputs: int, spec: ModelSpec) -> list[nn.Module]:
    width = spec.width
    first = [_linear(inputs, width), _norm(width), nn.ReLU()]
    return [*first, _linear(width, width), _norm(width), nn.ReLU(), _linear(width, spec.outputs)]


def _bert(spec: ModelSpec, *, layers: int, width: int, heads: int) -> nn.Module:
    return bert(spec.vocabulary, spec.inputs[0], spec.outputs, layers=layers, width=width, heads=heads)


def _top_layers(spec: ModelSpec, layers: int) -> nn.Module:
    """Return layers of normalization, ReLU and a linear map, as the published code has them for CIFAR-10."""
    narrow = max(10, spec.outputs)
    sizes = [spec.inputs[0], spec.inputs[0], *[narrow] * (layers - 2), spec.outputs]
    made: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        made += [_norm(inputs), nn.ReLU(), _linear(inputs, outputs)]
    return nn.Sequential(*made)


_PRESETS: dict[str, tuple[Callable[[ModelSpec], nn.Module], int]] = {
    "linear": (_make_linear, 1),
    "mlp": (_make_mlp, 1),
    "fcnn-3": (_make_fcnn_3, 1),
    "hashed": (_make_hashed, 1),
    **dict.fromkeys(
        RECOMMENDERS, (lambda spec: RECOMMENDERS[spec.preset](spec.inputs[0], spec.categories, spec.outputs), 1)
    ),
    "resnet-20": (lambda spec: resnet_20(spec.inputs[0], spec.outputs), 3),
    "resnet-18": (lambda spec: resnet_18(spec.inputs[0], spec.outputs), 3),
    "bert-small": (lambda spec: _bert(spec, layers=2, width=128, heads=2), 1),
    "bert-base": (lambda spec: _bert(spec, layers=12, width=768, heads=12), 1),
    "bottleneck": (lambda spec: Bottleneck(spec.inputs), 0),
    "top linear": (lambda spec: _linear(spec.inputs[0], spec.outputs), 1),
    "top fcnn-3": (lambda spec: _top_layers(spec, 3), 1),
    "top fcnn-4": (lambda spec: _top_layers(spec, 4), 1),
}
_AXES = {1: "numbers in one dimension", 3: "channels x height x width"}
