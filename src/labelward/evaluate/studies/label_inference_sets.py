"""The data sets of the label inference study, and the networks that are trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from labelward.evaluate.studies.made import (
    CIFAR,
    DIGITS,
    FASHION,
    TOKENS,
    VOCABULARY,
    cifar,
    clicks,
    credit,
    fashion,
    texts,
)
from labelward.evaluate.studies.plan import ATTACKER, DataSet

__all__ = ["CONFIGURED", "FULL", "SETS"]

_SIZE = ("radius", "perimeter", "area")
_FEATURES = ("texture", "smoothness", "compactness", "concavity", "concave points", "symmetry", "fractal dimension")
_ERRORS = tuple(f"{name} error" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_WORST = tuple(f"worst {name}" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_SHAPE = tuple(f"mean {name}" for name in _FEATURES)

_PUBLISHED = {
    "active": (*_ERRORS[7:], *_WORST, "mean radius", "mean perimeter"),
    ATTACKER: (*_SHAPE, *_ERRORS[:7]),
}
_PAPER = {
    "active": (*_ERRORS[6:], *_WORST),
    ATTACKER: ("mean texture", "mean perimeter", "mean area", *_SHAPE[1:], *_ERRORS[:6]),
}

CONFIGURED: Mapping[str, Any] = {"top": False}
"""Of the model without a top model; its bottom models give one number for each class."""

_SIDE = 16
_THREE: Mapping[str, Any] = {"bottom": "fcnn-3", "batch_size": 32, "learning_rate": 0.05, "epochs": 20}
_BREAST: Mapping[str, Any] = {**_THREE, "top_model": "fcnn-3", "embedding": 2, "epochs": 60}
_PIXELS: Mapping[str, Any] = {**_THREE, "width": 128, "epochs": 10}
_BERT: Mapping[str, Any] = {
    "bottom": "bert-small",
    "vocabulary": VOCABULARY,
    "batch_size": 32,
    "optimizer": "adam",
    "learning_rate": 5e-4,
    "epochs": 4,
}
_CLICKS: Mapping[str, Any] = {**_THREE, "top_model": "fcnn-3", "standardize": False, "batch_size": 64, "epochs": 2}
_COLORS: Mapping[str, Any] = {
    "bottom": "resnet-20",
    "height": _SIDE,
    "channels": 3,
    "batch_size": 32,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "epochs": 8,
}
_RESNET: Mapping[str, Any] = {
    "bottom": "resnet-20",
    "batch_size": 32,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "schedule": "step",
    "step_epochs": 40,
    "epochs": 100,
    "device": "cuda",
}
_BERT_BASE: Mapping[str, Any] = {**_BERT, "bottom": "bert-base", "learning_rate": 5e-5, "device": "cuda"}
_GENTLY: Mapping[str, Any] = {"learning_rate": 2e-4, "steps": 512}
"""Of a BERT: at the usual rate of 2e-3 fine-tuning leaves it at chance. Half the steps, since each takes long."""
_TWO: Mapping[str, Any] = {"unlabeled_weight": 1.0}
"""Of two classes of unlike size: under a weight of 50 all rows are said to be of one class."""
_HALVES = {
    "active": tuple(f"first{place}" for place in range(TOKENS)),
    ATTACKER: tuple(f"second{place}" for place in range(TOKENS)),
}

SETS = (
    DataSet(
        name="breast_cancer_published",
        title="BCW, split of the published code, 40 labels",
        table="breast_cancer",
        utility="accuracy",
        columns=_PUBLISHED,
        test_size=0.25,
        model=_BREAST,
        secret="mean area",
    ),
    DataSet(
        name="breast_cancer_published_20",
        title="BCW, split of the published code, 20 labels",
        table="breast_cancer",
        utility="accuracy",
        columns=_PUBLISHED,
        test_size=0.25,
        model=_BREAST,
        completion={"auxiliary": 20},
        asked=True,
        secret="mean area",
    ),
    DataSet(
        name="breast_cancer_paper",
        title="BCW, split of the paper, 40 labels",
        table="breast_cancer",
        utility="accuracy",
        columns=_PAPER,
        test_size=0.25,
        model=_BREAST,
        asked=True,
        secret="mean radius",
    ),
    DataSet(name="digits", title="digits (not in the paper)", image=DIGITS, utility="accuracy", model=_THREE),
    DataSet(
        name="fashion_mnist",
        title="Fashion-MNIST (not in the paper)",
        table="fashion_mnist_train",
        generate=partial(fashion, rows=10_000),
        image=FASHION,
        utility="accuracy",
        model=_PIXELS,
        asked=True,
    ),
    DataSet(
        name="cifar10",
        title="CIFAR-10",
        substitute="8,000 training and 2,000 test images of 50,000 and 10,000, shrunk to 16 x 16 pixels; ResNet-20, 8 "
        "epochs of 100",
        table="cifar10_10k",
        generate=partial(cifar, side=_SIDE),
        image=_SIDE,
        utility="accuracy",
        model=_COLORS,
        bounded=False,
        asked=True,
    ),
    DataSet(
        name="criteo",
        title="Criteo",
        substitute="8,000 of 100,000 rows, hashed to 1,024 columns in place of 8,192",
        table="criteo_8k",
        generate=partial(clicks, buckets=1_024),
        utility="accuracy",
        model=_CLICKS,
        completion={"auxiliary": 100, **_TWO},
        also=("auc", "f1"),
        asked=True,
    ),
    DataSet(
        name="ag_news",
        title="Yahoo Answers",
        substitute="AG News, 4 classes and 7,600 texts; a BERT of two layers that has read nothing before; words by "
        "their checksums",
        table="ag_news_7600",
        generate=partial(texts, name="ag_news_7600"),
        columns=_HALVES,
        utility="accuracy",
        model=_BERT,
        tuning=_GENTLY,
        bounded=False,
        asked=True,
    ),
    DataSet(
        name="dbpedia",
        title="Yahoo Answers",
        substitute="DBpedia, 14 classes and 5,000 texts; a BERT of two layers that has read nothing before; words by "
        "their checksums",
        table="dbpedia_14k",
        generate=partial(texts, name="dbpedia_14k", rows=5_000),
        columns=_HALVES,
        utility="accuracy",
        model={**_BERT, "epochs": 5},
        tuning=_GENTLY,
        bounded=False,
        completion={"auxiliary": 140},
        asked=True,
    ),
    DataSet(
        name="credit_default",
        title="BHI",
        substitute="6,000 clients of the credit default table, no images; columns are shared out between the parties",
        table="credit_default",
        generate=partial(credit, rows=6_000),
        utility="f1",
        leakage="f1",
        model={**_THREE, "epochs": 10},
        completion={"auxiliary": 70, **_TWO},
        also=("auc",),
        asked=True,
    ),
)
"""What two cores do."""

_LARGE: dict[str, dict[str, Any]] = {
    "fashion_mnist": {
        "generate": fashion,
        "model": {**_RESNET, "height": FASHION},
    },
    "cifar10": {
        "substitute": "8,000 training and 2,000 test images of 50,000 and 10,000",
        "generate": cifar,
        "image": CIFAR,
        "model": {**_RESNET, "bottom": "resnet-18", "height": CIFAR, "channels": 3},
    },
    "criteo": {"substitute": "8,000 of 100,000 rows", "generate": partial(clicks, buckets=8_192)},
    "ag_news": {"model": _BERT_BASE},
    "dbpedia": {
        "substitute": "DBpedia, 14 classes and 14,000 texts; a BERT that has read nothing before; words by their "
        "checksums",
        "generate": partial(texts, name="dbpedia_14k"),
        "model": _BERT_BASE,
    },
    "credit_default": {
        "substitute": "the credit default table, no images; columns are shared out between the parties",
        "generate": credit,
        "model": {**_THREE, "epochs": 30},
    },
}

_OWN = {"steps": 1024 * 25, "unlabeled_weight": 50.0}
FULL = tuple(
    replace(
        each,
        bounded=each.name not in ("fashion_mnist", "cifar10", "ag_news", "dbpedia"),
        **_LARGE.get(each.name, {}),
        tuning={name: value for name, value in each.tuning.items() if name != "steps"},
        completion={**each.completion, **_OWN} if each.table != "breast_cancer" else each.completion,
    )
    for each in SETS
)
"""The paper's networks and epochs; images and texts need an accelerator."""
