"""A defense of embeddings as somebody else would add it: one module, and one line in the list of defenses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pytest

from labelward.defenses import DEFENSES
from labelward.policy.base import Policy
from labelward.policy.net_points import OutgoingEmbedding, Values


@dataclass(frozen=True, kw_only=True)
class EmbeddingNoise(Policy):
    """Gaussian noise on each number of an embedding that leaves.

    Drawn from the learning draws, so that tests can compare runs; a real defense draws from ``protection``.

    Attributes:
        scale: its standard deviation.
    """

    kind: ClassVar[str] = "embedding-noise"

    scale: float

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Values:
        noise = outgoing.draw(f"noise {outgoing.purpose} {outgoing.piece}").normal(size=outgoing.values.shape)
        return (outgoing.values + self.scale * noise).astype(outgoing.values.dtype)

    def parameters(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def listed() -> Iterator[None]:
    """Add the module to the package and its line to the list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "labelward.defenses.embedding_noise", sys.modules[__name__])
        patch.setattr(DEFENSES, "_entries", (*DEFENSES._entries, "embedding_noise:EmbeddingNoise"))
        yield
