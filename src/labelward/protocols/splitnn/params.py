"""Hyper-parameters of split networks; checked without torch, so that a job can be read where it is not installed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from labelward.errors import JobError, unknown_name
from labelward.job.components import FrozenDict
from labelward.parameters import Fraction, NonNegativeFloat, NonNegativeInt, Parameters, PositiveFloat, PositiveInt

MODULE = "module"
"""Name of a model that the caller provides."""

BOTTOMS = (
    "linear",
    "mlp",
    "fcnn-3",
    "hashed",
    "deepfm",
    "wdl",
    "nfm",
    "edcn",
    "resnet-20",
    "resnet-18",
    "bert-small",
    "bert-base",
    MODULE,
)
TOPS = ("linear", "fcnn-3", "fcnn-4", MODULE)


@dataclass(frozen=True, kw_only=True)
class SplitNet(Parameters):
    """Split network: a bottom model at each party and, optionally, a top model at the active party.

    ``bottom="linear", top=False`` is vertical logistic regression (linear regression for ``task = "regression"``).
    """

    section: ClassVar[str] = "[model]"
    kind: ClassVar[Literal["splitnn"]] = "splitnn"

    top: Annotated[
        bool,
        Meta(
            description="Whether the active party has a top model over the concatenated embeddings (Algorithm 2); "
            "otherwise the parties' outputs are summed to the logits (Algorithm 3)."
        ),
    ] = True
    bottom: Annotated[
        str,
        Meta(
            description="Preset of every party's bottom model, over columns ('linear', 'mlp', 'fcnn-3', 'hashed', the "
            "recommenders 'deepfm', 'wdl', 'nfm' and 'edcn'), images ('resnet-20', 'resnet-18') or tokens "
            "('bert-small', 'bert-base'); 'module': each party provides its own."
        ),
    ] = "mlp"
    bottoms: Annotated[
        Mapping[str, str],
        Meta(description="Presets of single parties' bottom models by party, where they differ from that of all."),
    ] = FrozenDict[str]({})
    top_model: Annotated[
        str, Meta(description="Preset of the top model; 'module': the active party provides its own.")
    ] = "fcnn-4"
    active_bottom: Annotated[
        bool,
        Meta(
            description="Whether the active party's columns enter the network, by a bottom model of its own; otherwise "
            "only policies learn from them (LPSC paper, Equation 5)."
        ),
    ] = True
    embedding: Annotated[
        PositiveInt | None,
        Meta(
            description="Embedding dimension of a bottom preset. Default: 10, or the number of classes if larger; "
            "without a top model always the number of outputs."
        ),
    ] = None
    width: Annotated[PositiveInt, Meta(description="Width of the hidden layers of 'mlp', 'fcnn-3', 'hashed'.")] = 64
    buckets: Annotated[PositiveInt, Meta(description="Number of hash buckets of 'hashed'.")] = 4096
    vocabulary: Annotated[PositiveInt, Meta(description="Vocabulary size of BERT presets, in tokens.")] = 30522
    height: Annotated[
        NonNegativeInt,
        Meta(
            description="ResNet presets: image height in pixels, where columns are pixels (by channel, then by row); "
            "0: rows are images already."
        ),
    ] = 0
    channels: Annotated[PositiveInt, Meta(description="ResNet presets: channels of such images.")] = 1
    standardize: Annotated[
        bool, Meta(description="Standardize table columns by mean and deviation of the party's training rows.")
    ] = True
    epochs: Annotated[PositiveInt, Meta(description="Number of passes over the training rows.")] = 30
    batch_size: Annotated[
        int, Meta(ge=2, description="Rows per batch; a last batch of one row joins the batch before it.")
    ] = 128
    optimizer: Annotated[Literal["sgd", "adam"], Meta(description="Optimizer of every party: 'sgd' or 'adam'.")] = "sgd"
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate of every party.")] = 0.05
    momentum: Annotated[float, Meta(ge=0, le=1, description="Momentum of 'sgd'.")] = 0.9
    weight_decay: Annotated[
        NonNegativeFloat, Meta(description="L2 penalty of all weights, as in torch's optimizers.")
    ] = 0.0
    schedule: Annotated[
        Literal["constant", "step", "cosine"],
        Meta(
            description="Learning rate schedule: 'constant', 'step' (times step_factor every step_epochs epochs) or "
            "'cosine' (annealed to 0 over all epochs)."
        ),
    ] = "constant"
    step_epochs: Annotated[PositiveInt, Meta(description="'step' schedule: epochs between two steps.")] = 10
    step_factor: Annotated[Fraction, Meta(description="'step' schedule: factor of the learning rate.")] = 0.1
    loss: Annotated[
        Literal["auto", "cross_entropy", "weighted", "nll", "logistic", "mse"],
        Meta(
            description="Training loss: 'cross_entropy', 'weighted' (class-weighted cross-entropy), 'nll' (negative "
            "log likelihood), 'logistic' (two classes, one output), 'mse' (regression); 'auto': cross-entropy or mean "
            "squared error, by the labels."
        ),
    ] = "auto"
    class_weights: Annotated[
        tuple[PositiveFloat, ...],
        Meta(description="Class weights of loss 'weighted'. Default: rows / (classes × rows of the class)."),
    ] = ()
    dtype: Annotated[
        Literal["float32", "float64"],
        Meta(description="Data type of weights, embeddings and gradients: 'float32' or 'float64'."),
    ] = "float32"
    wire_dtype: Annotated[
        Literal["same", "float16"],
        Meta(description="Data type in which embeddings and gradients are sent: 'same' (dtype) or 'float16'."),
    ] = "same"
    patience: Annotated[
        NonNegativeInt,
        Meta(
            description="Stop after this many epochs without improvement of the validation loss, and restore the best "
            "epoch; 0: never."
        ),
    ] = 0
    device: Annotated[
        str, Meta(description="'cpu', 'cuda' or 'cuda:N'; a run is refused where the device is missing.")
    ] = "cpu"

    def check_parameters(self) -> None:
        """Refuse unknown presets and devices, and parameters that the others do not support."""
        for name, known in (("bottom", BOTTOMS), ("top_model", TOPS)):
            if getattr(self, name) not in known:
                raise self.error(name, unknown_name("model", getattr(self, name), known), code="unknown")
        self._check_bottoms()
        if not self.top and self.embedding is not None:
            raise self.error("embedding", "is the number of outputs without a top model; remove it")
        if not self.top and self.top_model != "fcnn-4":
            raise self.error("top_model", "is not supported with top = false; remove it")
        if not self.height and self.channels != 1:
            raise self.error("channels", "is for images whose pixels are columns only; set height, or remove it")
        if self.optimizer != "sgd" and self.momentum != 0.9:
            raise self.error("momentum", "is for optimizer 'sgd' only")
        if self.schedule != "step" and (self.step_epochs, self.step_factor) != (10, 0.1):
            raise self.error("step_epochs", "and step_factor are for schedule 'step' only")
        if self.loss != "weighted" and self.class_weights:
            raise self.error("class_weights", "is for loss 'weighted' only")
        if self.device != "cpu" and not _is_cuda(self.device):
            raise self.error("device", f"must be 'cpu', 'cuda' or 'cuda:N', not {self.device!r}", code="choice")

    def _check_bottoms(self) -> None:
        """Refuse what names no preset of a party."""
        given: Any = self.bottoms
        if not isinstance(given, Mapping):
            raise self.error("bottoms", f"must be a table of presets by party, not {given!r}", code="type")
        for party, preset in given.items():
            if preset not in BOTTOMS or preset == MODULE or self.bottom == MODULE:
                known = [name for name in BOTTOMS if name != MODULE]
                raise JobError(
                    "is not for modules that the parties provide"
                    if MODULE in (preset, self.bottom)
                    else unknown_name("model", str(preset), known),
                    code="conflict" if MODULE in (preset, self.bottom) else "unknown",
                    field=f"[model] bottoms.{party}",
                    value=preset,
                )
        object.__setattr__(self, "bottoms", FrozenDict[str](given))

    def preset(self, party: str) -> str:
        """Return the name of a party's bottom model."""
        return self.bottoms.get(party, self.bottom)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.schedule == "step":
            return float(self.learning_rate * self.step_factor ** (epoch // self.step_epochs))
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.learning_rate

    def bottom_outputs(self, outputs: int) -> int:
        """Return the required embedding size for a model of ``outputs`` outputs; 0: any."""
        if not self.top:
            return outputs
        if self.bottom == MODULE:
            return self.embedding or 0
        return self.embedding or max(10, outputs)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as they are stored; what came later is left out where it has its default."""
        found = super().parameters() | {"class_weights": list(self.class_weights)}
        found["bottoms"] = dict(self.bottoms)
        for name, default in (("active_bottom", True), ("bottoms", {})):
            if found[name] == default:
                del found[name]
        return found


def _is_cuda(device: str) -> bool:
    name, colon, number = device.partition(":")
    return name == "cuda" and (not colon or number.isdigit())
