"""Residual networks for small images: a 3 x 3 stem without pooling, so that half an image of 32 x 16 keeps its detail.

Reference: He et al., Deep residual learning (2016): ResNet-20 (Section 4.2, shortcuts of type A), ResNet-18 (Table 1).
Difference: the stem of ResNet-18 is that of ResNet-20, as is usual for images of this size.
"""

from __future__ import annotations

from labelward.protocols.splitnn._torch import nn, torch

_META = torch.device("meta")


class _Padded(nn.Module):
    """A shortcut without weights: every second pixel, and zeros in the new channels (type A)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class _Block(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*_convolution(inputs, outputs, stride), nn.ReLU(), *_convolution(outputs, outputs, 1))
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet_20(channels: int, outputs: int) -> nn.Module:
    """Return three stages of three blocks, of 16, 32 and 64 channels: 269,722 weights for 3 channels, 10 outputs."""
    return _resnet(channels, outputs, (16, 32, 64), blocks=3, projected=False)


def resnet_18(channels: int, outputs: int) -> nn.Module:
    """Return four stages of two blocks, of 64 to 512 channels: 11,173,962 weights for 3 channels, 10 outputs."""
    return _resnet(channels, outputs, (64, 128, 256, 512), blocks=2, projected=True)


def _resnet(channels: int, outputs: int, sizes: tuple[int, ...], *, blocks: int, projected: bool) -> nn.Module:
    made: list[nn.Module] = [*_convolution(channels, sizes[0], 1), nn.ReLU()]
    inputs = sizes[0]
    for size in sizes:
        for _ in range(blocks):
            stride = 1 if inputs == size else 2
            shortcut: nn.Module = nn.Identity()
            if stride == 2:
                shortcut = nn.Sequential(*_convolution(inputs, size, 2, 1)) if projected else _Padded(inputs, size)
            made.append(_Block(inputs, size, stride, shortcut))
            inputs = size
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*made, *pooled, nn.Linear(inputs, outputs, device=_META))


def _convolution(inputs: int, outputs: int, stride: int, size: int = 3) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False, device=_META),
        nn.BatchNorm2d(outputs, device=_META),
    ]
