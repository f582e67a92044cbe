"""Datasets of the label inference study, and the networks that are trained on them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from labelward.studies.datasets import (
    CIFAR_WIDTH,
    DIGITS_WIDTH,
    FASHION_WIDTH,
    TOKENS,
    VOCABULARY,
    cifar10,
    credit_default,
    criteo,
    fashion_mnist,
    texts,
)
from labelward.studies.spec import ATTACKER, StudyDataset

_SIZE = ("radius", "perimeter", "area")
_FEATURES = ("texture", "smoothness", "compactness", "concavity", "concave points", "symmetry", "fractal dimension")
_ERRORS = tuple(f"{name} error" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_WORST = tuple(f"worst {name}" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_SHAPE = tuple(f"mean {name}" for name in _FEATURES)

_PUBLISHED = {"active": (*_ERRORS[7:], *_WORST, "mean radius", "mean perimeter"), ATTACKER: (*_SHAPE, *_ERRORS[:7])}
_PAPER = {
    "active": (*_ERRORS[6:], *_WORST),
    ATTACKER: ("mean texture", "mean perimeter", "mean area", *_SHAPE[1:], *_ERRORS[:6]),
}

_WIDTH = 16
_MLP: Mapping[str, Any] = {"bottom": "fcnn-3", "batch_size": 32, "learning_rate": 0.05, "epochs": 20}
_BREAST: Mapping[str, Any] = {**_MLP, "top_model": "fcnn-3", "embedding": 2, "epochs": 60}
_PIXELS: Mapping[str, Any] = {**_MLP, "width": 128, "epochs": 10}
_BERT: Mapping[str, Any] = {
    "bottom": "bert-small",
    "vocabulary": VOCABULARY,
    "batch_size": 32,
    "optimizer": "adam",
    "learning_rate": 5e-4,
    "epochs": 4,
}
_CLICKS: Mapping[str, Any] = {**_MLP, "top_model": "fcnn-3", "standardize": False, "batch_size": 64, "epochs": 2}
_SMALL_RESNET: Mapping[str, Any] = {
    "bottom": "resnet-20",
    "height": _WIDTH,
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
"""Fine-tuning of a BERT: at the default rate of 2e-3 it stays at chance. Half the steps, since each is slow."""
_UNBALANCED: Mapping[str, Any] = {"unlabeled_weight": 1.0}
"""For two unbalanced classes: with a weight of 50 all rows are assigned to one class."""
_HALVES = {
    "active": tuple(f"first{place}" for place in range(TOKENS)),
    ATTACKER: tuple(f"second{place}" for place in range(TOKENS)),
}

_CIFAR_ROWS = "8,000 training and 2,000 test images of 50,000 and 10,000"
_CREDIT = "the credit default table, no images; columns are dealt out by share"
_SMALL_BERT = "a BERT of two layers without pre-training; tokens by checksum"

_accuracy = partial(StudyDataset, utility_metric="accuracy", on_request=True)
_yahoo_answers = partial(
    _accuracy, title="Yahoo Answers", party_columns=_HALVES, fine_tuning=_GENTLY, upper_bound=False
)
_breast_cancer = partial(_accuracy, catalogue_name="breast_cancer", test_size=0.25, model=_BREAST)

DATASETS = (
    _breast_cancer(
        name="breast_cancer_published",
        title="BCW, split of the published code, 40 labels",
        party_columns=_PUBLISHED,
        hidden_attribute="mean area",
        on_request=False,
    ),
    _breast_cancer(
        name="breast_cancer_published_20",
        title="BCW, split of the published code, 20 labels",
        party_columns=_PUBLISHED,
        completion={"auxiliary": 20},
        hidden_attribute="mean area",
    ),
    _breast_cancer(
        name="breast_cancer_paper",
        title="BCW, split of the paper, 40 labels",
        party_columns=_PAPER,
        hidden_attribute="mean radius",
    ),
    _accuracy(name="digits", title="digits (not in the paper)", image_width=DIGITS_WIDTH, model=_MLP, on_request=False),
    _accuracy(
        name="fashion_mnist",
        title="Fashion-MNIST (not in the paper)",
        catalogue_name="fashion_mnist_train",
        generate=partial(fashion_mnist, rows=10_000),
        image_width=FASHION_WIDTH,
        model=_PIXELS,
    ),
    _accuracy(
        name="cifar10",
        title="CIFAR-10",
        substitute=f"{_CIFAR_ROWS}, shrunk to 16 x 16 pixels; ResNet-20, 8 epochs of 100",
        catalogue_name="cifar10_10k",
        generate=partial(cifar10, width=_WIDTH),
        image_width=_WIDTH,
        model=_SMALL_RESNET,
        upper_bound=False,
    ),
    _accuracy(
        name="criteo",
        title="Criteo",
        substitute="8,000 of 100,000 rows, hashed to 1,024 columns instead of 8,192",
        catalogue_name="criteo_8k",
        generate=partial(criteo, buckets=1_024),
        model=_CLICKS,
        completion={"auxiliary": 100, **_UNBALANCED},
        extra_metrics=("auc", "f1"),
    ),
    _yahoo_answers(
        name="ag_news",
        substitute=f"AG News, 4 classes and 7,600 texts; {_SMALL_BERT}",
        catalogue_name="ag_news_7600",
        generate=partial(texts, name="ag_news_7600"),
        model=_BERT,
    ),
    _yahoo_answers(
        name="dbpedia",
        substitute=f"DBpedia, 14 classes and 5,000 texts; {_SMALL_BERT}",
        catalogue_name="dbpedia_14k",
        generate=partial(texts, name="dbpedia_14k", rows=5_000),
        model={**_BERT, "epochs": 5},
        completion={"auxiliary": 140},
    ),
    _accuracy(
        name="credit_default",
        title="BHI",
        substitute=f"6,000 clients of {_CREDIT}",
        catalogue_name="credit_default",
        generate=partial(credit_default, rows=6_000),
        utility_metric="f1",
        leakage_metric="f1",
        model={**_MLP, "epochs": 10},
        completion={"auxiliary": 70, **_UNBALANCED},
        extra_metrics=("auc",),
    ),
)
"""At a size for two cores."""

_FULL_CHANGES: dict[str, dict[str, Any]] = {
    "fashion_mnist": {"generate": fashion_mnist, "model": {**_RESNET, "height": FASHION_WIDTH}},
    "cifar10": {
        "substitute": _CIFAR_ROWS,
        "generate": cifar10,
        "image_width": CIFAR_WIDTH,
        "model": {**_RESNET, "bottom": "resnet-18", "height": CIFAR_WIDTH, "channels": 3},
    },
    "criteo": {"substitute": "8,000 of 100,000 rows", "generate": partial(criteo, buckets=8_192)},
    "ag_news": {"model": _BERT_BASE},
    "dbpedia": {
        "substitute": "DBpedia, 14 classes and 14,000 texts; a BERT without pre-training; tokens by checksum",
        "generate": partial(texts, name="dbpedia_14k"),
        "model": _BERT_BASE,
    },
    "credit_default": {"substitute": _CREDIT, "generate": credit_default, "model": {**_MLP, "epochs": 30}},
}

_PAPER_COMPLETION = {"steps": 1024 * 25, "unlabeled_weight": 50.0}
FULL_DATASETS = tuple(
    replace(
        each,
        upper_bound=each.name not in ("fashion_mnist", "cifar10", "ag_news", "dbpedia"),
        **_FULL_CHANGES.get(each.name, {}),
        fine_tuning={name: value for name, value in each.fine_tuning.items() if name != "steps"},
        completion={**each.completion, **_PAPER_COMPLETION}
        if each.catalogue_name != "breast_cancer"
        else each.completion,
    )
    for each in DATASETS
)
"""With the paper's networks and epochs; images and texts need an accelerator."""
