"""Bottom models of several parties as one: each takes its own columns, and the embeddings stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

from labelward.attacks.nets._torch import nn, torch


class SideBySide(nn.Module):
    """Several models over adjacent columns.

    Args:
        models: one for each party.
        widths: numbers of columns that each takes.
    """

    def __init__(self, models: Sequence[nn.Module], widths: Sequence[int]) -> None:
        super().__init__()
        self.models, self.widths = nn.ModuleList(models), list(widths)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the embeddings, [rows, outputs of all]."""
        parts = torch.split(x, self.widths, dim=1)
        return torch.cat([model(part) for model, part in zip(self.models, parts, strict=True)], 1)
