"""Model completion: an inference head over the attacker's bottom model, learned from a few labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.attacks.nets._torch import nn, torch
from labelward.attacks.nets.mixmatch import MixMatchConfig, train_mixmatch
from labelward.errors import DataError

Floats = NDArray[np.float64]
Known = tuple[NDArray[np.int64], NDArray[np.int64]]
What = Literal["inputs", "hidden", "embeddings"]

_PIECE = 1024


@dataclass(frozen=True, kw_only=True)
class CompletedModel:
    """A trained completed model.

    Attributes:
        loss: mean of the last steps; not a number if they diverged.
    """

    encode: nn.Module
    rest: nn.Module
    loss: float

    @property
    def notes(self) -> dict[str, float]:
        """Its loss, or that it diverged, as notes of an attack."""
        return {"loss": self.loss} if np.isfinite(self.loss) else {"diverged": 1.0}

    def probabilities(self, x: NDArray[Any]) -> Floats:
        """Return float64 [rows, classes] for rows of the attacker, equal ones where the model has overflowed."""
        weight = next(self.rest.parameters())
        with torch.no_grad():
            pieces = [self.rest(self.encode(piece)).softmax(1).cpu().numpy() for piece in _pieces(x, weight)]
        found = np.concatenate(pieces).astype(np.float64)
        found[~np.isfinite(found).all(axis=1)] = 1 / found.shape[1]
        return found


def fit_completion(
    bottom: nn.Module,
    x: NDArray[Any],
    known: Known,
    classes: int,
    recipe: MixMatchConfig,
    *,
    fine_tune: bool,
    mix: What,
    rng: np.random.Generator,
) -> CompletedModel:
    """Train a head over a bottom model, optionally fine-tuning the bottom model.

    A bottom model that is not is used as in prediction: none of its weights or statistics moves.

    Args:
        bottom: the attacker's copy; it is changed.
        x: its rows, [rows, ...].
        known: positions of rows whose labels are known, and these labels.
        classes: number of classes.
        recipe: how to learn.
        fine_tune: whether the bottom model learns, too.
        mix: what MixUp mixes: rows (behind what encodes them, where the bottom model begins with that), hidden states
            of a model that can be cut there, or what the bottom model gives for them.
        rng: gives all draws.

    Raises:
        DataError: the bottom model does not take such rows, or is not one that can be cut; tokens are to be dropped of
            rows that have none.
    """
    if recipe.dropped and not np.issubdtype(x.dtype, np.integer):
        raise DataError(
            "tokens are dropped of texts, and the rows hold none", code="values", field="dropped", value=recipe.dropped
        )
    encode, body = _cut(bottom, mix)
    for weight in bottom.parameters():
        weight.requires_grad_(fine_tune)
    start = next(bottom.parameters())
    try:
        with torch.no_grad():
            outputs = bottom.eval()(next(_pieces(x[:2], start))).shape[1]
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise DataError(
            f"the bottom model does not take rows of shape {x.shape[1:]}: {error}", code="columns", value=x.shape[1:]
        ) from error
    rest = _Headed(body, inference_head(outputs, classes).to(start.device, start.dtype), frozen=not fine_tune)
    learns = any(weight.requires_grad for weight in encode.parameters())
    anew = learns or recipe.dropped > 0
    with torch.no_grad():
        rows = torch.cat(list(_pieces(x, start)) if anew else [encode(piece) for piece in _pieces(x, start)])
    encode.train(learns)
    rest.train()
    loss = train_mixmatch(rest, encode if anew else None, rows, known, classes, recipe, rng)
    return CompletedModel(encode=encode.eval(), rest=rest.eval(), loss=loss)


def embedded(bottom: nn.Module, x: NDArray[Any]) -> Floats:
    """Return what a bottom model gives for rows of the attacker, float64 [rows, numbers]."""
    start = next(bottom.parameters())
    with torch.no_grad():
        return np.concatenate([bottom.eval()(piece).cpu().numpy() for piece in _pieces(x, start)]).astype(np.float64)


def inference_head(inputs: int, classes: int) -> nn.Module:
    """Return an inference head as the published code has it: normalization, ReLU and a linear layer of weights 1.

    With equal weights and no bias it begins with equal probabilities, whatever it is shown.
    """
    linear = nn.Linear(inputs, classes, device="meta").to_empty(device="cpu")  # nothing is drawn
    nn.init.ones_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.BatchNorm1d(inputs), nn.ReLU(), linear)


class _Headed(nn.Module):
    """A body with a head; a frozen body stays in evaluation mode."""

    def __init__(self, body: nn.Module, top: nn.Module, *, frozen: bool) -> None:
        super().__init__()
        self.body, self.top, self.frozen = body, top, frozen

    def train(self, mode: bool = True) -> _Headed:
        super().train(mode)
        if self.frozen:
            self.body.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.top(self.body(x))
        return out


def identity_model(width: int) -> nn.Module:
    """Return the identity as a linear model, which has a weight and so a dtype and a device."""
    module = nn.Linear(width, width, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.eye(width))
    return module


def mixup_level(bottom: nn.Module, own: AttackerData) -> What:
    """Return "inputs" where rows are numbers or become numbers in the bottom model's first part; else "embeddings"."""
    codes = np.issubdtype(own.features.dtype, np.integer) or (bool(own.categories) and not _encodes(bottom))
    return "embeddings" if codes else "inputs"


def _cut(bottom: nn.Module, mix: What) -> tuple[nn.Module, nn.Module]:
    """Split a model at the level of MixUp: the part before it and the part after it."""
    if mix == "embeddings":
        return bottom, nn.Identity()
    if mix == "hidden":
        if not hasattr(bottom, "cut"):
            reason = (
                "the bottom model has no hidden layer at which rows can be mixed; only 'bert-small' and 'bert-base' do"
            )
            raise DataError(reason, code="unsupported", field="mix", value=mix)
        model: Any = bottom
        lower, upper = model.cut()
        return lower, upper
    if isinstance(bottom, nn.Sequential) and _encodes(bottom):
        return bottom[0], bottom[1:]
    return nn.Identity(), bottom


def _encodes(bottom: nn.Module) -> bool:
    """Return whether the first part of a bottom model encodes table columns."""
    return isinstance(bottom, nn.Sequential) and isinstance(getattr(bottom[0], "categories", None), Mapping)


def _pieces(x: NDArray[Any], like: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield copies of rows in batches, on the device and in the dtype of a model's weight."""
    dtype = like.dtype if np.issubdtype(x.dtype, np.floating) else torch.int64
    for at in range(0, len(x), _PIECE):
        yield torch.from_numpy(np.array(x[at : at + _PIECE])).to(like.device, dtype)
