"""Grad-CAM of the joint image model: class activation maps of each party's part of an image.

Setting: all parties' models in one place, as in a rehearsal. It is no protocol: nothing is sent.

Reference: Selvaraju et al., Grad-CAM (2017), Equations 1 and 2, as Section 5.3 of the label inference paper uses it.
Difference: each bottom model has feature maps of its own, so that each party has a map of its own; all are of the same
output of the joined model, and so of one scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from labelward.errors import JobError
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.active import combine_outputs

Tensor = torch.Tensor


def class_maps(
    bottoms: Sequence[nn.Module], top: nn.Module | None, parts: Sequence[Tensor], outputs: Tensor
) -> list[Tensor]:
    """Return for each party the class activation map of each row, [rows, h, w], at least 0.

    With the feature maps A that a bottom model pools, and the selected output y of the joint model, a map is
    ReLU(Σ α A) over the channels, where α is the mean of ∂y/∂A over a channel's cells.

    Args:
        bottoms: of all parties with columns, the active one first; each pools its feature maps once.
        top: over what they give; None: their outputs are added up.
        parts: each party's rows.
        outputs: int64 [rows], selected output of each row.

    Raises:
        JobError: a bottom model pools no feature maps.
    """
    features: list[Tensor] = []

    def cut(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        features.append(inputs[0].detach().requires_grad_())
        return (features[-1],)

    embeddings = []
    for bottom, rows in zip(bottoms, parts, strict=True):
        bottom.eval()
        hook = _pooling(bottom).register_forward_pre_hook(cut)
        try:
            embeddings.append(bottom(rows))
        finally:
            hook.remove()
    if top is not None:
        top.eval()
    selected = combine_outputs(embeddings, top).gather(1, outputs[:, None]).sum()  # rows do not touch each other
    gradients = torch.autograd.grad(selected, features)
    return [
        torch.relu((gradient.mean((2, 3), keepdim=True) * maps).sum(1)).detach()
        for gradient, maps in zip(gradients, features, strict=True)
    ]


def image_shape(bottom: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return channels, height and width of the images that a bottom model makes of rows of this shape."""
    first = next(iter(bottom.children()), None)
    return tuple(first.unflattened_size) if isinstance(first, nn.Unflatten) else shape


def _pooling(bottom: nn.Module) -> nn.Module:
    for part in bottom.modules():
        if isinstance(part, nn.AdaptiveAvgPool2d):
            return part
    raise JobError(
        f"the bottom model {type(bottom).__name__} pools no feature maps: Grad-CAM is for residual networks",
        code="unsupported",
        value=type(bottom).__name__,
    )
