"""Grad-CAM over a joined model, against maps that are worked out by hand."""

from __future__ import annotations

import pytest

from refusals import refused

pytest.importorskip("torch")

import torch
from torch import nn

from labelward.errors import JobError
from labelward.protocols.splitnn.grad_cam import class_maps, image_shape
from labelward.protocols.splitnn.models.presets import ModelSpec, build


def bottom(weights: list[float], out: list[list[float]]) -> nn.Module:
    """Return 1 x 1 convolutions of one channel into two, pooled, with a linear map behind."""
    convolution, last = nn.Conv2d(1, 2, 1, bias=False), nn.Linear(2, len(out), bias=False)
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor(weights).reshape(2, 1, 1, 1))
        last.weight.copy_(torch.tensor(out))
    return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).double()


LEFT = torch.tensor([[[[1.0, 2.0], [3.0, -4.0]]], [[[0.0, 0.0], [8.0, 0.0]]]], dtype=torch.float64)
RIGHT = torch.tensor([[[[4.0], [-1.0]]], [[[2.0], [6.0]]]], dtype=torch.float64)


def test_without_a_top_model_maps_are_those_of_the_sum() -> None:
    """Of 4 cells each has a gradient of w/4 and so have channels: A = (x, 2x), α = (1, 3)/4 for output 0, map 7x/4."""
    left, right = bottom([1.0, 2.0], [[1.0, 3.0], [0.0, -1.0]]), bottom([1.0, -1.0], [[2.0, 1.0], [1.0, 4.0]])
    one, two = class_maps([left, right], None, [LEFT, RIGHT], torch.tensor([0, 1]))
    expected = torch.stack([torch.relu(LEFT[0, 0] * 7 / 4), torch.relu(-LEFT[1, 0] * 2 / 4)])
    torch.testing.assert_close(one, expected)
    # two cells: A = (x, -x), α = (2, 1)/2 for output 0, (1, 4)/2 for output 1
    torch.testing.assert_close(two, torch.stack([torch.relu(RIGHT[0, 0] / 2), torch.relu(-RIGHT[1, 0] * 3 / 2)]))


def test_a_top_model_weighs_the_parties() -> None:
    left, right = bottom([1.0, 0.0], [[1.0, 0.0]]), bottom([1.0, 0.0], [[1.0, 0.0]])
    top = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        top.weight.copy_(torch.tensor([[4.0, 2.0], [-1.0, 5.0]]))
    one, two = class_maps([left, right], top, [LEFT, RIGHT], torch.tensor([0, 0]))
    torch.testing.assert_close(one, torch.relu(LEFT[:, 0]) * 4 / 4)
    torch.testing.assert_close(two, torch.relu(RIGHT[:, 0]) * 2 / 2)
    one, _ = class_maps([left, right], top, [LEFT, RIGHT], torch.tensor([1, 1]))
    torch.testing.assert_close(one, torch.relu(-LEFT[:, 0]) / 4)


def test_a_row_has_the_same_map_alone_and_nothing_is_trained() -> None:
    """Batches do not touch each other, and no weight, gradient or hook is left behind."""
    spec = ModelSpec(preset="resnet-20", inputs=(24,), outputs=3, image=(1, 6))
    parts = [build(spec, torch.Generator().manual_seed(each), torch.float64) for each in (1, 2)]
    before = [{name: value.clone() for name, value in each.state_dict().items()} for each in parts]
    rows = torch.randn(5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    outputs = torch.tensor([0, 1, 2, 0, 1])
    together = class_maps(parts, None, [rows, rows.flip(0)], outputs)
    alone = class_maps(parts, None, [rows[2:3], rows.flip(0)[2:3]], outputs[2:3])
    for all_rows, one in zip(together, alone, strict=True):
        assert all_rows.shape == (5, 2, 1)  # two strides of 2 on 6 x 4
        torch.testing.assert_close(all_rows[2:3], one)
    for part, kept in zip(parts, before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in part.state_dict().items())
        assert all(weight.grad is None for weight in part.parameters())
        assert not any(each._forward_pre_hooks for each in part.modules())
    assert image_shape(parts[0], (24,)) == (1, 6, 4)


def test_a_model_without_feature_maps_is_refused() -> None:
    with refused(JobError, "unsupported", value="Linear"):
        class_maps([nn.Linear(2, 2)], None, [torch.zeros(1, 2)], torch.tensor([0]))
    assert image_shape(nn.Linear(2, 2), (3, 4, 5)) == (3, 4, 5)
