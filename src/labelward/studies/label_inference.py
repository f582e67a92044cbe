"""Label inference on split networks: Tables 2, 3, 4 and 6, Figures 2, 3 and 5, and Appendix E.

Its networks and data fill four graphics cards. Here the same tables come from what two cores can do: small datasets,
networks of linear layers and few epochs. :attr:`Study.full` has the paper's sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labelward.job import ComponentSpec
from labelward.studies.label_inference_datasets import DATASETS, FULL_DATASETS
from labelward.studies.references import NO_DEFENSE, UTILITY, Claim, FigureKey, load_figures
from labelward.studies.spec import (
    ATTRIBUTE,
    DefenseSpec,
    MetricColumn,
    Study,
    StudyModel,
    StudyPart,
    StudySetting,
    defense_sweep,
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
        *((f"passive, {count}", attack, "*", "") for count, attack in _KNOWN.items()),
        *((f"untrained, {count}", attack, "*", "without view") for count, attack in _KNOWN.items()),
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
_TABLE_3 = tuple(f"{name}, {count}" for count in _COUNTS for name in ("passive", "untrained"))
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
_BREAST = tuple(each.name for each in DATASETS if each.catalogue_name == "breast_cancer")
_REST = tuple(each.name for each in DATASETS if each.name not in _BREAST)
_IMAGES = ("digits", "fashion_mnist", "cifar10")
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
    StudySetting(name="defended", columns=_FIGURE_5, defenses={TOP: _DEFENDED}),
)

_PARTS = (
    StudyPart(
        name="table 2",
        title="Passive and active label inference",
        form="grid",
        settings=("default",),
        columns=_TABLE_2,
        models=(TOP,),
        datasets=_REST,
        rankings=(_FINE_TUNED, _HEAD_ONLY, (*_FINE_TUNED, *_HEAD_ONLY, "logistic regression", "boosted trees")),
        about="The first number is the federated model's, on test rows. Untrained bottom is the paper's direct "
        "semi-supervised learning. Head only: the bottom model is frozen, as in the published code; otherwise it is "
        "fine-tuned, as the paper says. Logistic regression and boosted trees learn from the same known labels and the "
        "attacker's raw columns; all labels is the cross-fitted upper bound. Metrics are the paper's: accuracy, or F1 "
        "for the substitute of BHI.",
        reason=_SMALLER,
    ),
    StudyPart(
        name="table 3",
        title="Number of known labels",
        form="grid",
        settings=("known",),
        columns=_TABLE_3,
        models=(TOP,),
        datasets=_IMAGES,
        about="Passive completion of the trained and of an untrained bottom model, on training rows. Only the head is "
        "trained, as in the published code; Table 2 shows the effect of fine-tuning.",
        reason=_SMALLER,
        on_request=True,
    ),
    StudyPart(
        name="table 4",
        title="Cost of the active attack for the federated model",
        form="grid",
        settings=("default",),
        columns=_TABLE_4,
        models=(TOP,),
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
    ),
    StudyPart(
        name="appendix e",
        title="Breast cancer",
        form="grid",
        settings=("appendix-e",),
        columns=_APPENDIX,
        models=(TOP,),
        datasets=_BREAST,
        about="Three layers at each party and at the top. The published code's attacker has 14 columns, without mean "
        "radius, perimeter and area; the paper's has 15, with perimeter and area. If the loss of unlabeled rows has "
        "weight 50, the threshold collapses, and the AUC is more informative than the accuracy. Logistic regression on "
        "the same few labels is better than the attack: no bottom model is needed here.",
        appendix=True,
        reason="another split of columns, and the weight of unlabeled rows",
    ),
    StudyPart(
        name="second step",
        title="A further attribute from inferred labels (Appendix E)",
        form="grid",
        settings=("appendix-e",),
        columns=_SECOND_STEP,
        models=(TOP,),
        datasets=_BREAST,
        about="Whether a row's mean area (in the paper's split: mean radius) is above the median. No party has this "
        "column in the training; the attacker knows it for 40 rows. Accuracy on the others: from its own columns, and "
        "from these with the labels that it inferred (λ_U 1), or with the true ones. The paper does not name the "
        "model; here it is a network of three layers, and logistic regression. In the paper's split the attacker has "
        "perimeter and area, which determine the radius.",
        appendix=True,
        reason="another network",
    ),
    StudyPart(
        name="figure 2",
        title="Number of the attacker's columns",
        form="curves",
        settings=tuple(f"share-{each:g}" for each in _SHARES),
        columns=_FIGURE_2,
        axis="columns of the attacker, %",
        models=(TOP,),
        datasets=("criteo",),
        about="Hashed columns are dealt out by share, as in the paper.",
        on_request=True,
    ),
    StudyPart(
        name="figure 3",
        title="Several parties",
        form="curves",
        settings=tuple(f"parties-{each}" for each in _PARTIES),
        columns=_FIGURE_3,
        axis="parties",
        models=(TOP,),
        datasets=("credit_default",),
        about="All parties have equally many columns; one passive party is scored.",
        on_request=True,
    ),
    StudyPart(
        name="figure 5",
        title="Defenses against the active attack",
        form="trade-off",
        settings=("defended",),
        columns=_FIGURE_5,
        models=(TOP,),
        datasets=("digits", "cifar10", "criteo"),
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
    "comparison. With --full the networks and epochs are the paper's, which needs an accelerator.",
)

LABEL_INFERENCE = replace(
    _AT_HAND,
    full=replace(
        _AT_HAND,
        name="label-inference-full",
        datasets=FULL_DATASETS,
        settings=tuple(replace(each, model={}) for each in _SETTINGS),
        parts=tuple(
            replace(
                each,
                about=each.about.replace(_LINEAR, ""),
                reason="smaller datasets than the paper's" if each.reason == _SMALLER else each.reason,
            )
            for each in _PARTS
        ),
        reference={},
        claims=(),
        remarks="The paper's networks and epochs, on the datasets that are available.",
    ),
)
