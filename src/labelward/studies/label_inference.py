"""Label inference on split networks: Tables 2, 3, 4 and 6, Figures 2, 3 and 5, and Appendix E.

Its networks and data fill four graphics cards. Here the same tables come from what two cores can do: small datasets,
networks of linear layers and few epochs. :attr:`Study.full` has the paper's sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from labelward.job import ComponentSpec
from labelward.studies import datasets as tables
from labelward.studies.references import NO_DEFENSE, UTILITY, Claim, FigureKey, load_figures
from labelward.studies.spec import (
    ATTACKER,
    ATTRIBUTE,
    DefenseSpec,
    MetricColumn,
    Study,
    StudyDataset,
    StudyModel,
    StudyPart,
    StudySetting,
    defense_sweep,
)

_FEATURES = ("texture", "smoothness", "compactness", "concavity", "concave points", "symmetry", "fractal dimension")
_ERRORS = tuple(f"{name} error" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_WORST = tuple(f"worst {name}" for name in ("radius", "texture", "perimeter", "area", *_FEATURES[1:]))
_SHAPE = tuple(f"mean {name}" for name in _FEATURES)

_PUBLISHED = {"active": (*_ERRORS[7:], *_WORST, "mean radius", "mean perimeter"), ATTACKER: (*_SHAPE, *_ERRORS[:7])}
_PAPER = {
    "active": (*_ERRORS[6:], *_WORST),
    ATTACKER: ("mean texture", "mean perimeter", "mean area", *_SHAPE[1:], *_ERRORS[:6]),
}

_WIDTH, _PATCH_WIDTH = 16, 10
_MLP: Mapping[str, Any] = {"bottom": "fcnn-3", "batch_size": 32, "learning_rate": 0.05, "epochs": 20}
_BREAST_MODEL: Mapping[str, Any] = {**_MLP, "top_model": "fcnn-3", "embedding": 2, "epochs": 60}
_PIXELS: Mapping[str, Any] = {**_MLP, "width": 128, "epochs": 10}
_BERT: Mapping[str, Any] = {
    "bottom": "bert-small",
    "vocabulary": tables.VOCABULARY,
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
_PUBLISHED_WEIGHT: Mapping[str, Any] = {"unlabeled_weight": 50.0}
_HALVES = {
    "active": tuple(f"first{place}" for place in range(tables.TOKENS)),
    ATTACKER: tuple(f"second{place}" for place in range(tables.TOKENS)),
}

_BHI_WEIGHTS: Mapping[str, Any] = {"loss": "weighted", "class_weights": (0.3, 1.0)}
"""Those of the published code."""

_CIFAR_ROWS = "8,000 training and 2,000 test images of 50,000 and 10,000"
_CREDIT = "the credit default table, no images; columns are dealt out by share"
_SMALL_BERT = "a BERT of two layers without pre-training; tokens by checksum"

_accuracy = partial(StudyDataset, utility_metric="accuracy", on_request=True)
_yahoo_answers = partial(
    _accuracy, title="Yahoo Answers", party_columns=_HALVES, fine_tuning=_GENTLY, upper_bound=False
)
_bhi = partial(
    _accuracy,
    title="BHI",
    patches=True,
    image_width=_PATCH_WIDTH,
    utility_metric="f1",
    leakage_metric="f1",
    completion={"auxiliary": 70, **_UNBALANCED},
    extra_metrics=("auc",),
)
_breast_cancer = partial(_accuracy, catalog_name="breast_cancer", test_size=0.25, model=_BREAST_MODEL)

_TABLES = (
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
    _accuracy(
        name="digits", title="digits (not in the paper)", image_width=tables.DIGITS_WIDTH, model=_MLP, on_request=False
    ),
    _accuracy(
        name="fashion_mnist",
        title="Fashion-MNIST (not in the paper)",
        catalog_name="fashion_mnist_train",
        generate=partial(tables.fashion_mnist, rows=10_000),
        image_width=tables.FASHION_WIDTH,
        model=_PIXELS,
    ),
    _accuracy(
        name="cifar10",
        title="CIFAR-10",
        shape=(60_000, 3_072, 10),
        convert=partial(tables.shrunk, width=_WIDTH),
        substitute=f"{_CIFAR_ROWS}, shrunk to 16 x 16 pixels; ResNet-20, 8 epochs of 100",
        catalog_name="cifar10_10k",
        generate=partial(tables.cifar10, width=_WIDTH),
        image_width=_WIDTH,
        model=_SMALL_RESNET,
        upper_bound=False,
    ),
    _accuracy(
        name="criteo",
        title="Criteo",
        shape=(0, 39, 2),
        convert=partial(tables.hashed, buckets=1_024),
        substitute="8,000 of 100,000 rows, hashed to 1,024 columns instead of 8,192",
        catalog_name="criteo_8k",
        generate=partial(tables.criteo, buckets=1_024),
        model=_CLICKS,
        completion={"auxiliary": 100, **_UNBALANCED},
        extra_metrics=("auc", "f1"),
    ),
    _yahoo_answers(
        name="ag_news",
        substitute=f"AG News, 4 classes and 7,600 texts; {_SMALL_BERT}",
        catalog_name="ag_news_7600",
        generate=partial(tables.texts, name="ag_news_7600"),
        model=_BERT,
    ),
    _yahoo_answers(
        name="dbpedia",
        substitute=f"DBpedia, 14 classes and 5,000 texts; {_SMALL_BERT}",
        catalog_name="dbpedia_14k",
        generate=partial(tables.texts, name="dbpedia_14k", rows=5_000),
        model={**_BERT, "epochs": 5},
        completion={"auxiliary": 140},
    ),
    _accuracy(
        name="credit_default",
        title="BHI",
        substitute=f"6,000 clients of {_CREDIT}",
        catalog_name="credit_default",
        generate=partial(tables.credit_default, rows=6_000),
        utility_metric="f1",
        leakage_metric="f1",
        model={**_MLP, "epochs": 10},
        completion={"auxiliary": 70, **_UNBALANCED},
        extra_metrics=("auc",),
    ),
    _bhi(
        name="bhi_made_up",
        substitute="made-up images: 12,000 patches of 10 x 10 pixels, 100 of each patient; three layers, 10 epochs",
        generate=partial(tables.made_up_patches, patients=120, each=100, width=_PATCH_WIDTH),
        model={**_MLP, **_BHI_WEIGHTS, "epochs": 10},
    ),
)
DATASETS = tuple(replace(each, completion={**_PUBLISHED_WEIGHT, **each.completion}) for each in _TABLES)
"""At a size for two cores."""

OWN = tuple(
    replace(each, completion={**_PUBLISHED_WEIGHT, **each.completion})
    for each in (
        *(
            _accuracy(
                name=name,
                title=title,
                shape=(rows, 3_072, classes),
                like="cifar10",
                convert=partial(tables.shrunk, width=_WIDTH),
                image_width=_WIDTH,
                model=_SMALL_RESNET,
                upper_bound=False,
                completion={"auxiliary": known},
                leakage_metric=metric,
            )
            for name, title, rows, classes, known, metric in (
                ("cifar100", "CIFAR-100", 60_000, 100, 400, "top5"),
                ("cinic10", "CINIC-10", 270_000, 10, 40, "accuracy"),
            )
        ),
        _yahoo_answers(
            name="yahoo_answers",
            shape=(0, 0, 10),
            like="ag_news",
            convert=tables.tokenized,
            model=_BERT,
            completion={"auxiliary": 100},
        ),
        _bhi(
            name="bhi",
            shape=(277_524, 3 * tables.BHI_WIDTH**2 + 1, 2),
            like="bhi_made_up",
            convert=partial(tables.patches, width=_PATCH_WIDTH),
            model={**_SMALL_RESNET, **_BHI_WEIGHTS, "height": _PATCH_WIDTH},
            upper_bound=False,
        ),
    )
)
"""Read from files of the user's (``--table NAME=FILE``); networks are those of the sets at hand."""

_FULL_IMAGES: Mapping[str, Any] = {
    "image_width": tables.CIFAR_WIDTH,
    "model": {**_RESNET, "bottom": "resnet-18", "height": tables.CIFAR_WIDTH, "channels": 3},
    "convert": tables.pixels,
}
_FULL_PATCHES: Mapping[str, Any] = {
    "image_width": tables.BHI_WIDTH,
    "model": {**_FULL_IMAGES["model"], **_BHI_WEIGHTS, "height": tables.BHI_WIDTH},
    "convert": partial(tables.patches, width=tables.BHI_WIDTH),
}
_FULL_CHANGES: dict[str, dict[str, Any]] = {
    "fashion_mnist": {"generate": tables.fashion_mnist, "model": {**_RESNET, "height": tables.FASHION_WIDTH}},
    "cifar10": {
        "substitute": _CIFAR_ROWS,
        "generate": tables.cifar10,
        **_FULL_IMAGES,
    },
    "criteo": {
        "substitute": "8,000 of 100,000 rows",
        "generate": partial(tables.criteo, buckets=8_192),
        "convert": partial(tables.hashed, buckets=8_192),
    },
    "ag_news": {"model": _BERT_BASE},
    "dbpedia": {
        "substitute": "DBpedia, 14 classes and 14,000 texts; a BERT without pre-training; tokens by checksum",
        "generate": partial(tables.texts, name="dbpedia_14k"),
        "model": _BERT_BASE,
    },
    "credit_default": {"substitute": _CREDIT, "generate": tables.credit_default, "model": {**_MLP, "epochs": 30}},
}

_PAPER_COMPLETION = {"steps": 1024 * 25, "unlabeled_weight": 50.0}
FULL_DATASETS = tuple(
    replace(
        each,
        upper_bound=each.name not in ("fashion_mnist", "cifar10", "ag_news", "dbpedia"),
        **_FULL_CHANGES.get(each.name, {}),
        fine_tuning={name: value for name, value in each.fine_tuning.items() if name != "steps"},
        completion={**each.completion, **_PAPER_COMPLETION}
        if each.catalog_name != "breast_cancer"
        else each.completion,
    )
    for each in DATASETS
)
"""With the paper's networks and epochs; images and texts need an accelerator."""
FULL_OWN = tuple(
    replace(
        each,
        fine_tuning={name: value for name, value in each.fine_tuning.items() if name != "steps"},
        completion={**each.completion, **_PAPER_COMPLETION},
        **(_FULL_PATCHES if each.patches else _FULL_IMAGES if each.image_width else {"model": _BERT_BASE}),
    )
    for each in OWN
)


TOP, SUM = "top", "sum"

_TUNED: Mapping[str, Any] = {"fine_tune": True}
_PASSIVE = ComponentSpec("passive-completion", _TUNED)
_ACTIVE = ComponentSpec("active-completion", _TUNED)
_PASSIVE_HEAD = ComponentSpec("passive-completion")
_ACTIVE_HEAD = ComponentSpec("active-completion")
_LIGHT = ComponentSpec("passive-completion", {**_TUNED, "unlabeled_weight": 1.0})
_FIRST, _LEAST = ComponentSpec("direct", {"rule": "first-negative"}), ComponentSpec("direct")
_INFERRED_BY = tuple(
    f"{model}{more}" for model in ("network", "logistic") for more in ("", ", inferred label", ", true label")
)
_COUNTS = (10, 20, 40, 120, 320)
_KNOWN = {count: ComponentSpec("passive-completion", {"auxiliary": count}) for count in _COUNTS}

_COLUMNS = tuple(
    MetricColumn(title=title, attack=attack, metric=metric, source=source)
    for title, attack, metric, source in (
        ("passive", _PASSIVE, "*", ""),
        ("active", _ACTIVE, "*", ""),
        ("passive, test rows", _PASSIVE, "outside_*", ""),
        ("active, test rows", _ACTIVE, "outside_*", ""),
        ("untrained bottom", _PASSIVE, "*", "without view"),
        ("passive, head only", _PASSIVE_HEAD, "*", ""),
        ("active, head only", _ACTIVE_HEAD, "*", ""),
        ("untrained bottom, head only", _PASSIVE_HEAD, "*", "without view"),
        ("logistic regression", _PASSIVE, "*", "logistic"),
        ("boosted trees", _PASSIVE, "*", "boosted"),
        ("all labels", _PASSIVE, "*", "all labels"),
        ("model under active attack", _ACTIVE, "*", "model"),
        *(
            (f"{name}, {count}{where}", attack, f"{rows}*", source)
            for where, rows in (("", ""), (", test rows", "outside_"))
            for name, source in (("passive", ""), ("untrained", "without view"))
            for count, attack in _KNOWN.items()
        ),
        ("first negative", _FIRST, "accuracy", ""),
        ("least number", _LEAST, "accuracy", ""),
        ("λ_U 1", _LIGHT, "accuracy", ""),
        ("λ_U 1, AUC", _LIGHT, "auc", ""),
        ("λ_U 1, untrained bottom", _LIGHT, "accuracy", "without view"),
        ("λ_U 1, untrained bottom, AUC", _LIGHT, "auc", "without view"),
        ("λ_U 50", _PASSIVE, "accuracy", ""),
        ("λ_U 50, AUC", _PASSIVE, "auc", ""),
        ("λ_U 50, head only", _PASSIVE_HEAD, "accuracy", ""),
        ("logistic", _LIGHT, "accuracy", "logistic"),
        ("trees", _LIGHT, "accuracy", "boosted"),
        ("every label", _LIGHT, "accuracy", "all labels"),
        *((f"attribute, {each}", _LIGHT, each, ATTRIBUTE) for each in _INFERRED_BY),
    )
)
_TABLE_2 = tuple(each.title for each in _COLUMNS[:11])
_FINE_TUNED = ("passive", "active", "untrained bottom")
_HEAD_ONLY = tuple(f"{name}, head only" for name in _FINE_TUNED)
_TABLE_3 = tuple(
    f"{name}, {count}{where}" for where in ("", ", test rows") for count in _COUNTS for name in ("passive", "untrained")
)
_TABLE_4 = ("model under active attack",)
_FIGURE_2 = (*_HEAD_ONLY[:2], "passive", "active", "all labels")
_FIGURE_3 = ("active, head only", "active", "logistic regression")
_FIGURE_5 = ("active, head only", "active", *_TABLE_4)
_TABLE_6 = ("first negative", "least number")
_APPENDIX = tuple(each.title for each in _COLUMNS[-16:-6])
_SECOND_STEP = tuple(each.title for each in _COLUMNS[-6:])


_NOISE = defense_sweep("noise", "noisy-gradients", "scale", (1e-4, 1e-3, 1e-2, 1e-1))
_KEEP = defense_sweep("compression", "gradient-compression", "keep", (0.75, 0.5, 0.25, 0.1))
_PPDL = defense_sweep(
    "PPDL, published", "ppdl", "theta", (0.75, 0.5, 0.25, 0.1), epsilon=1.8, sensitivity=1.0, form="published"
)
_LEVELS = defense_sweep("DiscreteSGD, published", "discrete-sgd", "levels", (24, 18, 12, 6), form="published")
_OURS = (
    *defense_sweep("PPDL", "ppdl", "theta", (0.75,), epsilon=1.8),
    *defense_sweep("DiscreteSGD", "discrete-sgd", "levels", (24,)),
    *defense_sweep("signSGD", "sign-sgd", "magnitude", (0.003,)),
)
_DEFENDED = (*_NOISE[1:], *_KEEP[1:], *_PPDL[1:3], *_LEVELS[::3])
_SHARES = (0.125, 0.25, 0.5, 0.75)
_PARTIES = (2, 4, 6, 8, 10)
_BREAST = tuple(each.name for each in DATASETS if each.catalog_name == "breast_cancer")
_REST = tuple(each.name for each in DATASETS if each.name not in _BREAST)
_IMAGES = ("digits", "fashion_mnist", "cifar10")
_SHARED = ("credit_default", "bhi_made_up")
_SMALLER = "smaller datasets and networks than the paper's"
_LINEAR = "; one linear layer for each party"

_SETTINGS = (
    StudySetting(name="default", columns=(*_TABLE_2, *_TABLE_4), has_references=True),
    StudySetting(name="appendix-e", columns=(*_APPENDIX, *_SECOND_STEP), has_references=True),
    StudySetting(name="known", columns=_TABLE_3),
    StudySetting(
        name="direct",
        model={"bottom": "linear", "standardize": False, "learning_rate": 0.002, "epochs": 10},
        columns=_TABLE_6,
        defenses={SUM: (*_NOISE, *_KEEP, *_PPDL, *_LEVELS, *_OURS)},
        has_references=True,
    ),
    *(
        StudySetting(name=f"share-{each:g}", axis_value=100 * each, attacker_share=each, columns=_FIGURE_2)
        for each in _SHARES
    ),
    *(StudySetting(name=f"parties-{each}", axis_value=each, parties=each, columns=_FIGURE_3) for each in _PARTIES),
    StudySetting(name="overlap", parties=10, overlap=2, columns=_FIGURE_3),
    StudySetting(name="defended", columns=_FIGURE_5, defenses={TOP: _DEFENDED}),
)

_top_part = partial(StudyPart, models=(TOP,))
_PARTS = (
    _top_part(
        name="table 2",
        title="Passive and active label inference",
        form="grid",
        settings=("default",),
        columns=_TABLE_2,
        datasets=_REST,
        rankings=(_FINE_TUNED, _HEAD_ONLY, (*_FINE_TUNED, *_HEAD_ONLY, "logistic regression", "boosted trees")),
        about="The first number is the federated model's, on test rows. Untrained bottom is the paper's direct "
        "semi-supervised learning. Head only: the bottom model is frozen, as in the published code; otherwise it is "
        "fine-tuned, as the paper says. Logistic regression and boosted trees learn from the same known labels and the "
        "attacker's raw columns; all labels is the cross-fitted upper bound, left out for color images and texts, of "
        "which it would train five networks. Metrics are the paper's: accuracy, or F1 for the substitute of BHI.",
        reason=_SMALLER,
    ),
    _top_part(
        name="table 3",
        title="Number of known labels",
        form="grid",
        settings=("known",),
        columns=_TABLE_3,
        datasets=_IMAGES,
        about="Passive completion of the trained and of an untrained bottom model, on training and test rows. Only the "
        "head is trained, as in the published code; Table 2 shows the effect of fine-tuning.",
        reason=_SMALLER,
        on_request=True,
    ),
    _top_part(
        name="table 4",
        title="Cost of the active attack for the federated model",
        form="grid",
        settings=("default",),
        columns=_TABLE_4,
        datasets=_REST,
        about="The first number is that of the honest run, from the same trainings as Table 2.",
        reason=_SMALLER,
    ),
    StudyPart(
        name="table 6",
        title="Defenses against the direct attack",
        form="trade-off",
        settings=("direct",),
        columns=_TABLE_6,
        models=(SUM,),
        datasets=_IMAGES,
        about=f"No top model{_LINEAR}. The first epoch is attacked: by the first negative number, as in the paper, and "
        "by the smallest one. PPDL without “published” selects all numbers that θ asks for, and DiscreteSGD without it "
        "takes its interval from the gradients so far; these and signSGD are not in the paper's table. The parameter "
        "of compression is the share that is kept.",
        reason=f"{_SMALLER}{_LINEAR}",
    ),
    _top_part(
        name="appendix e",
        title="Breast cancer",
        form="grid",
        settings=("appendix-e",),
        columns=_APPENDIX,
        datasets=_BREAST,
        about="Three layers at each party and at the top. The published code's attacker has 14 columns, without mean "
        "radius, perimeter and area; the paper's has 15, with perimeter and area. If the loss of unlabeled rows has "
        "weight 50, the threshold collapses, and the AUC is more informative than the accuracy. Logistic regression on "
        "the same few labels is better than the attack: no bottom model is needed here.",
        appendix=True,
        reason="another split of columns, and the weight of unlabeled rows",
    ),
    _top_part(
        name="second step",
        title="A further attribute from inferred labels (Appendix E)",
        form="grid",
        settings=("appendix-e",),
        columns=_SECOND_STEP,
        datasets=_BREAST,
        about="Whether a row's mean area (in the paper's split: mean radius) is above the median. No party has this "
        "column in the training; the attacker knows it for 40 rows. Accuracy on the others: from its own columns, and "
        "from these with the labels that it inferred (λ_U 1), or with the true ones. The paper does not name the "
        "model; here it is a network of three layers, and logistic regression. In the paper's split the attacker has "
        "perimeter and area, which determine the radius.",
        appendix=True,
        reason="another network",
    ),
    _top_part(
        name="figure 2",
        title="Number of the attacker's columns",
        form="curves",
        settings=tuple(f"share-{each:g}" for each in _SHARES),
        columns=_FIGURE_2,
        axis="columns of the attacker, %",
        datasets=("criteo",),
        about="Hashed columns are dealt out by share, as in the paper.",
        on_request=True,
    ),
    _top_part(
        name="figure 3",
        title="Several parties",
        form="curves",
        settings=tuple(f"parties-{each}" for each in _PARTIES),
        columns=_FIGURE_3,
        axis="parties",
        datasets=_SHARED,
        about="All parties have equally many columns; one passive party is scored.",
        on_request=True,
    ),
    _top_part(
        name="ten parties",
        title="Ten parties without a common column (text of Figure 3)",
        form="grid",
        settings=("parties-10",),
        columns=_FIGURE_3,
        datasets=_SHARED,
        about="The trainings of Figure 3 with ten parties, beside the figure of the paper's text. The first number is "
        "the federated model's, on test rows.",
        reason=_SMALLER,
        on_request=True,
    ),
    _top_part(
        name="overlap",
        title="Ten parties, and two columns that the attacker has in common with others (text of Figure 3)",
        form="grid",
        settings=("overlap",),
        columns=_FIGURE_3,
        datasets=_SHARED,
        about="Columns are dealt as in the part before. The attacker adds a column of each of two other parties, or "
        "their patches beside its own; all parties keep theirs.",
        reason=_SMALLER,
        on_request=True,
    ),
    _top_part(
        name="figure 5",
        title="Defenses against the active attack",
        form="trade-off",
        settings=("defended",),
        columns=_FIGURE_5,
        datasets=("digits", "cifar10", "criteo", "bhi_made_up"),
        about="The paper prints a plot only. A selection of its settings. The first number is that of the honest run "
        "under the same defense; plots use the last one, of the attacked model, as the paper does.",
        on_request=True,
    ),
)


def _keys(defenses: Sequence[DefenseSpec], column: str) -> tuple[FigureKey, ...]:
    return tuple(FigureKey("digits", SUM, each.name, column) for each in defenses)


def _decreasing(cause: str, defenses: Sequence[DefenseSpec], column: str) -> Claim:
    groups = tuple((key,) for key in _keys(defenses, column))
    return Claim(part="table 6", text=f"digits, {column}: accuracy falls with {cause}", groups=groups)


def _undefended(dataset: str, *columns: str) -> tuple[tuple[FigureKey, ...], ...]:
    """Return one group for each column."""
    return tuple((FigureKey(dataset, TOP, NO_DEFENSE, column),) for column in columns)


_CLAIMS = (
    Claim(
        part="appendix e",
        text="published split: mean federated accuracy at least 0.93",
        groups=_undefended("breast_cancer_published", UTILITY),
        margin=0.93,
    ),
    Claim(
        part="appendix e",
        text="published split: passive AUC (λ_U 1) above the untrained bottom's",
        groups=_undefended("breast_cancer_published", "λ_U 1, AUC", "λ_U 1, untrained bottom, AUC"),
        every_seed=True,
    ),
    Claim(
        part="table 2",
        text="digits: passive, head only, at least 0.15 above the untrained bottom, head only",
        groups=_undefended("digits", "passive, head only", "untrained bottom, head only"),
        margin=0.15,
        every_seed=True,
    ),
    *(_decreasing("noise", _NOISE, column) for column in _TABLE_6),
    *(_decreasing("compression", _KEEP, column) for column in _TABLE_6),
    Claim(
        part="table 6",
        text="digits, first negative: published DiscreteSGD above every noise and every published PPDL",
        groups=(_keys(_LEVELS, "first negative"), _keys((*_NOISE, *_PPDL), "first negative")),
    ),
)

_AT_HAND = Study(
    name="label-inference",
    title="Label inference: leakage from bottom models and returned gradients",
    datasets=DATASETS,
    own=OWN,
    unavailable={"cifar100": "CIFAR-100", "cinic10": "CINIC-10", "yahoo_answers": "Yahoo Answers", "bhi": "BHI"},
    models={
        TOP: StudyModel(title="top model", spec=ComponentSpec("splitnn")),
        SUM: StudyModel(title="no top model", spec=ComponentSpec("splitnn", {"top": False})),
    },
    columns=_COLUMNS,
    settings=_SETTINGS,
    parts=_PARTS,
    **load_figures("label_inference")._asdict(),
    metric="leakage",
    claims=_CLAIMS,
    remarks="Sizes, networks and epochs fit two cores; the paper's figures are given for orientation, not for "
    "comparison. With --budget paper the networks and epochs are the paper's, which needs an accelerator.",
)

LABEL_INFERENCE = replace(
    _AT_HAND,
    full=replace(
        _AT_HAND,
        name="label-inference-full",
        datasets=FULL_DATASETS,
        own=FULL_OWN,
        settings=tuple(replace(each, model={}) for each in _SETTINGS),
        parts=tuple(
            replace(
                each,
                about=each.about.replace(_LINEAR, ""),
                reason="smaller datasets than the paper's" if each.reason.startswith(_SMALLER) else each.reason,
            )
            for each in _PARTS
        ),
        reference={},
        claims=(),
        remarks="The paper's networks and epochs, on the datasets that are available.",
    ),
)
