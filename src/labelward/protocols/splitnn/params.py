"""Parameters of split networks; checked without torch, so that a job can be read where it is not installed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from labelward.errors import JobError, number_code, unknown_name

__all__ = ["BOTTOMS", "MODULE", "TOPS", "SplitNet"]

MODULE = "module"
"""The name of a model that the caller hands in."""

BOTTOMS = (
    "linear",
    "mlp",
    "fcnn-3",
    "hashed",
    "resnet-20",
    "resnet-18",
    "bert-small",
    "bert-base",
    MODULE,
)
TOPS = ("linear", "fcnn-3", "fcnn-4", MODULE)


@dataclass(frozen=True, kw_only=True)
class SplitNet:
    """A split network and how it is trained.

    ``bottom="linear", top=False`` is vertical logistic regression (and linear regression, for quantities).

    Attributes:
        top: whether the active party has a top model over the joined embeddings (Algorithm 2); without it the parties'
            outputs are added up to the logits (Algorithm 3).
        bottom: preset of every party's bottom model, ``"module"`` where each party hands in its own.
        top_model: preset of the top model, or ``"module"``.
        embedding: numbers a row that a bottom preset gives; without a value 10, or one for each class if these are
            more. Without a top model it must be left out: there are as many as outputs.
        width: of the hidden layers of ``"mlp"``, ``"fcnn-3"`` and ``"hashed"``.
        buckets: how many columns ``"hashed"`` folds a party's columns to.
        vocabulary: how many tokens a BERT knows.
        height: of images whose pixels are columns, channel by channel and row by row, for a ResNet; 0: rows are images.
        channels: of such images.
        standardize: whether columns of tables are centered and scaled by the training rows of their party.
        epochs: times that all training rows are gone through.
        batch_size: rows a batch; a last batch of one row joins the batch before it.
        optimizer: ``"sgd"`` or ``"adam"``, of every party.
        learning_rate: of every party.
        momentum: of ``"sgd"``.
        weight_decay: L2 penalty of all weights, as torch's optimizers take it.
        schedule: ``"constant"``; ``"step"``: times ``step_factor`` after every ``step_epochs`` epochs; ``"cosine"``:
            down to 0 along half a cosine over all epochs.
        step_epochs: after how many epochs a ``"step"`` is taken; for that schedule only.
        step_factor: what a ``"step"`` multiplies the rate by; for that schedule only.
        loss: ``"cross_entropy"``; ``"weighted"``: cross-entropy with a weight for each class; ``"nll"``: negative log
            likelihood of log-probabilities (with the log-softmax after the logits the same as cross-entropy);
            ``"mse"``, for quantities. ``"auto"`` is cross-entropy or mean squared error, whichever fits the labels.
        class_weights: for ``"weighted"``; without values rows / (classes × rows of the class).
        dtype: of weights, embeddings and gradients.
        wire_dtype: in which embeddings and gradients travel; ``"same"`` as ``dtype``, or ``"float16"``.
        patience: how many epochs the loss of the validation rows may fail to improve; 0: no stop. The weights of the
            best epoch are kept.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; where there is none, a run is refused.
    """

    kind: ClassVar[Literal["splitnn"]] = "splitnn"

    top: bool = True
    bottom: str = "mlp"
    top_model: str = "fcnn-4"
    embedding: int | None = None
    width: int = 64
    buckets: int = 4096
    vocabulary: int = 30522
    height: int = 0
    channels: int = 1
    standardize: bool = True
    epochs: int = 30
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "step", "cosine"] = "constant"
    step_epochs: int = 10
    step_factor: float = 0.1
    loss: Literal["auto", "cross_entropy", "weighted", "nll", "mse"] = "auto"
    class_weights: tuple[float, ...] = ()
    dtype: Literal["float32", "float64"] = "float32"
    wire_dtype: Literal["same", "float16"] = "same"
    patience: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("top", "standardize"):
            if not isinstance(getattr(self, name), bool):
                raise JobError(
                    f"must be true or false but got {getattr(self, name)!r}",
                    code="type",
                    field=f"[model] {name}",
                    value=getattr(self, name),
                )
        for name, low in _WHOLE:
            _whole(name, getattr(self, name), low)
        if self.embedding is not None:
            _whole("embedding", self.embedding, 1)
        for name, high, above in _NUMBERS:
            _number(name, getattr(self, name), high, above=above)
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                told = ", ".join(map(repr, choices))
                raise JobError(
                    f"must be one of {told} but got {getattr(self, name)!r}",
                    code="choice",
                    field=f"[model] {name}",
                    value=getattr(self, name),
                )
        for name, known in (("bottom", BOTTOMS), ("top_model", TOPS)):
            if getattr(self, name) not in known:
                raise JobError(
                    f"{unknown_name('model', str(getattr(self, name)), known)}",
                    code="unknown",
                    field=f"[model] {name}",
                    value=getattr(self, name),
                )
        object.__setattr__(self, "class_weights", tuple(self.class_weights))
        for weight in self.class_weights:
            _number("class_weights", weight, None, above=True)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse values that contradict each other."""
        if not self.top and self.embedding is not None:
            raise JobError(
                "without a top model it is the number of outputs, so it must be left out",
                code="conflict",
                field="[model] embedding",
                value=self.embedding,
            )
        if not self.top and self.top_model != "fcnn-4":
            raise JobError(
                "means nothing with top = false, so it must be left out",
                code="conflict",
                field="[model] top_model",
                value=self.top_model,
            )
        if not self.height and self.channels != 1:
            raise JobError(
                "is for images whose pixels are columns, with a height, only",
                code="conflict",
                field="[model] channels",
                value=self.channels,
            )
        if self.optimizer != "sgd" and self.momentum != 0.9:
            raise JobError(
                "is for optimizer 'sgd' only", code="conflict", field="[model] momentum", value=self.momentum
            )
        if self.schedule != "step" and (self.step_epochs, self.step_factor) != (10, 0.1):
            raise JobError(
                "and step_factor are for schedule 'step' only",
                code="conflict",
                field="[model] step_epochs",
                value=self.step_epochs,
            )
        if self.loss != "weighted" and self.class_weights:
            raise JobError(
                "is for loss 'weighted' only", code="conflict", field="[model] class_weights", value=self.class_weights
            )
        if self.device != "cpu" and not _is_cuda(self.device):
            raise JobError(
                f"must be 'cpu', 'cuda' or 'cuda:N' but got {self.device!r}",
                code="choice",
                field="[model] device",
                value=self.device,
            )

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.schedule == "step":
            return float(self.learning_rate * self.step_factor ** (epoch // self.step_epochs))
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.learning_rate

    def bottom_outputs(self, outputs: int) -> int:
        """Return how many numbers a row each bottom model must give for a model of ``outputs`` outputs; 0: any."""
        if not self.top:
            return outputs
        if self.bottom == MODULE:
            return self.embedding or 0
        return self.embedding or max(10, outputs)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as they are stored."""
        return asdict(self) | {"class_weights": list(self.class_weights)}


_WHOLE = (
    ("width", 1),
    ("buckets", 1),
    ("height", 0),
    ("channels", 1),
    ("vocabulary", 1),
    ("epochs", 1),
    ("batch_size", 2),
    ("step_epochs", 1),
    ("patience", 0),
)
_NUMBERS: tuple[tuple[str, float | None, bool], ...] = (
    ("learning_rate", None, True),
    ("momentum", 1.0, False),
    ("weight_decay", None, False),
    ("step_factor", 1.0, True),
)
_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("optimizer", ("sgd", "adam")),
    ("schedule", ("constant", "step", "cosine")),
    ("loss", ("auto", "cross_entropy", "weighted", "nll", "mse")),
    ("dtype", ("float32", "float64")),
    ("wire_dtype", ("same", "float16")),
)


def _whole(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise JobError(
            f"must be a whole number, at least {low}, but got {value!r}",
            code=number_code(value, whole=True),
            field=f"[model] {name}",
            value=value,
        )


def _number(name: str, value: Any, high: float | None, *, above: bool) -> None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value < 0 or (above and value == 0) or (high is not None and value > high):
        bounds = f"{'above' if above else 'at least'} 0" + ("" if high is None else f" and at most {high:g}")
        raise JobError(
            f"must be a number {bounds} but got {value!r}",
            code=number_code(value),
            field=f"[model] {name}",
            value=value,
        )


def _is_cuda(device: object) -> bool:
    if not isinstance(device, str):
        return False
    name, colon, number = device.partition(":")
    return name == "cuda" and (not colon or number.isdigit())
