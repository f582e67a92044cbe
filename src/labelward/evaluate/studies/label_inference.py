"""The study of the label inference paper: Tables 2, 3, 4 and 6, Figures 2, 3 and 5, and Appendix E.

Its networks and data fill four graphics cards. Here the same tables are made with what two cores do: small sets,
networks of linear layers and few epochs; the paper's sizes are those of :data:`LABEL_INFERENCE_FULL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelward.evaluate.studies.compared import Claim, Place
from labelward.evaluate.studies.label_inference_printed import EXPECTED, PRINTED
from labelward.evaluate.studies.label_inference_sets import CONFIGURED, FULL, SETS
from labelward.evaluate.studies.plan import NONE, SECOND, UTILITY, Column, Defended, Part, Setting, Study
from labelward.job import ComponentSpec

__all__ = ["LABEL_INFERENCE", "LABEL_INFERENCE_FULL"]

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


def _known(count: int) -> ComponentSpec:
    return ComponentSpec("passive-completion", {"auxiliary": count})


_COLUMNS = (
    Column(title="passive", attack=_PASSIVE, metric="*"),
    Column(title="active", attack=_ACTIVE, metric="*"),
    Column(title="passive, test rows", attack=_PASSIVE, metric="outside_*"),
    Column(title="active, test rows", attack=_ACTIVE, metric="outside_*"),
    Column(title="untrained bottom", attack=_PASSIVE, metric="*", of="without view"),
    Column(title="passive, head only", attack=_PASSIVE_HEAD, metric="*"),
    Column(title="active, head only", attack=_ACTIVE_HEAD, metric="*"),
    Column(title="untrained bottom, head only", attack=_PASSIVE_HEAD, metric="*", of="without view"),
    Column(title="logistic regression", attack=_PASSIVE, metric="*", of="logistic"),
    Column(title="boosted trees", attack=_PASSIVE, metric="*", of="boosted"),
    Column(title="all labels", attack=_PASSIVE, metric="*", of="all labels"),
    Column(title="model under active attack", attack=_ACTIVE, metric="*", of="model"),
    *(Column(title=f"passive, {count}", attack=_known(count), metric="*") for count in _COUNTS),
    *(Column(title=f"untrained, {count}", attack=_known(count), metric="*", of="without view") for count in _COUNTS),
    Column(title="first negative", attack=_FIRST, metric="accuracy"),
    Column(title="least number", attack=_LEAST, metric="accuracy"),
    Column(title="λ_U 1", attack=_LIGHT, metric="accuracy"),
    Column(title="λ_U 1, AUC", attack=_LIGHT, metric="auc"),
    Column(title="λ_U 1, untrained bottom", attack=_LIGHT, metric="accuracy", of="without view"),
    Column(title="λ_U 1, untrained bottom, AUC", attack=_LIGHT, metric="auc", of="without view"),
    Column(title="λ_U 50", attack=_PASSIVE, metric="accuracy"),
    Column(title="λ_U 50, AUC", attack=_PASSIVE, metric="auc"),
    Column(title="λ_U 50, head only", attack=_PASSIVE_HEAD, metric="accuracy"),
    Column(title="logistic", attack=_LIGHT, metric="accuracy", of="logistic"),
    Column(title="trees", attack=_LIGHT, metric="accuracy", of="boosted"),
    Column(title="every label", attack=_LIGHT, metric="accuracy", of="all labels"),
    *(Column(title=f"attribute, {each}", attack=_LIGHT, metric=each, of=SECOND) for each in _INFERRED_BY),
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


def _one(family: str, symbol: str, strength: float, kind: str, params: Mapping[str, Any]) -> Defended:
    return Defended(family=family, strength=strength, symbol=symbol, chain=(ComponentSpec(kind, params),))


_NOISE = tuple(_one("noise", "scale", each, "noisy-gradients", {"scale": each}) for each in (1e-4, 1e-3, 1e-2, 1e-1))
_KEEP = tuple(
    _one("compression", "keep", each, "gradient-compression", {"keep": each}) for each in (0.75, 0.5, 0.25, 0.1)
)
_PPDL = tuple(
    _one("PPDL, published", "θ", each, "ppdl", {"theta": each, "epsilon": 1.8, "sensitivity": 1.0, "form": "published"})
    for each in (0.75, 0.5, 0.25, 0.1)
)
_LEVELS = tuple(
    _one("DiscreteSGD, published", "N", each, "discrete-sgd", {"levels": each, "form": "published"})
    for each in (24, 18, 12, 6)
)
_OURS = (
    _one("PPDL", "θ", 0.75, "ppdl", {"theta": 0.75, "epsilon": 1.8}),
    _one("DiscreteSGD", "N", 24, "discrete-sgd", {"levels": 24}),
    _one("signSGD", "magnitude", 0.003, "sign-sgd", {"magnitude": 0.003}),
)
_DEFENDED = (*_NOISE[1:], *_KEEP[1:], *_PPDL[1:3], *_LEVELS[::3])
_SHARES = (0.125, 0.25, 0.5, 0.75)
_PARTIES = (2, 4, 6, 8, 10)
_BREAST = tuple(each.name for each in SETS if each.table == "breast_cancer")
_REST = tuple(each.name for each in SETS if each.name not in _BREAST)
_IMAGES = ("digits", "fashion_mnist", "cifar10")
_SMALLER = "smaller sets and networks than the paper's"
_LINEAR = "; one linear layer for each party"

_SETTINGS = (
    Setting(name="default", columns=(*_TABLE_2, *_TABLE_4), reference=True),
    Setting(name="appendix-e", columns=(*_APPENDIX, *_SECOND_STEP), reference=True),
    Setting(name="known", columns=_TABLE_3),
    Setting(
        name="direct",
        model={"bottom": "linear", "standardize": False, "learning_rate": 0.002, "epochs": 10},
        columns=_TABLE_6,
        defenses={SUM: (*_NOISE, *_KEEP, *_PPDL, *_LEVELS, *_OURS)},
        reference=True,
    ),
    *(Setting(name=f"share-{each:g}", value=100 * each, attacker=each, columns=_FIGURE_2) for each in _SHARES),
    *(Setting(name=f"parties-{each}", value=each, parties=each, columns=_FIGURE_3) for each in _PARTIES),
    Setting(name="defended", columns=_FIGURE_5, defenses={TOP: _DEFENDED}),
)

_PARTS = (
    Part(
        name="table 2",
        title="Passive and active label inference",
        form="grid",
        settings=("default",),
        columns=_TABLE_2,
        models=(TOP,),
        tables=_REST,
        contests=(_FINE_TUNED, _HEAD_ONLY, (*_FINE_TUNED, *_HEAD_ONLY, "logistic regression", "boosted trees")),
        about="The first number is the federated model's, on test rows. Untrained bottom is the paper's direct "
        "semi-supervised learning. Head only: the bottom model stays as it was trained, as in the published code; "
        "else it is fine-tuned, as the paper says. Logistic regression and boosted trees learn from the same known "
        "labels and the attacker's raw columns; all labels is the upper bound, cross-fitted. Metrics are the paper's: "
        "accuracy, or F1 where it stands for BHI.",
        reason=_SMALLER,
    ),
    Part(
        name="table 3",
        title="How many labels the attacker knows",
        form="grid",
        settings=("known",),
        columns=_TABLE_3,
        models=(TOP,),
        tables=_IMAGES,
        about="Passive completion beside the same on the untrained bottom model, on training rows. The head alone is "
        "learned, as in the published code: Table 2 shows what fine-tuning does.",
        reason=_SMALLER,
        asked=True,
    ),
    Part(
        name="table 4",
        title="What the active attack costs the federated model",
        form="grid",
        settings=("default",),
        columns=_TABLE_4,
        models=(TOP,),
        tables=_REST,
        about="The first number is the honest run's. It is from the same trainings as Table 2.",
        reason=_SMALLER,
    ),
    Part(
        name="table 6",
        title="Defenses against the direct attack",
        form="trade-off",
        settings=("direct",),
        columns=_TABLE_6,
        models=(SUM,),
        tables=_IMAGES,
        about=f"No top model{_LINEAR}. The first epoch is attacked, by the first negative number as in the paper, and "
        "by the least. PPDL without “published” gathers all numbers that θ asks for, DiscreteSGD without it takes its "
        "interval from the gradients so far; neither these nor signSGD stand in the paper's table. Of compression the "
        "kept share is named.",
    ),
    Part(
        name="appendix e",
        title="Breast cancer",
        form="grid",
        settings=("appendix-e",),
        columns=_APPENDIX,
        models=(TOP,),
        tables=_BREAST,
        about="Three layers at each party and at the top. The published code's attacker holds 14 columns without the "
        "radius, perimeter and area of the mean; the paper's holds 15, perimeter and area among them. With a weight of "
        "the unlabeled rows' loss of 50 the threshold collapses, so that the AUC tells more than the accuracy. "
        "Logistic regression on the same few labels does better than the attack: no bottom model is needed here.",
        reason="another split of columns, and the unlabeled rows' weight",
    ),
    Part(
        name="second step",
        title="A further attribute from inferred labels (Appendix E)",
        form="grid",
        settings=("appendix-e",),
        columns=_SECOND_STEP,
        models=(TOP,),
        tables=_BREAST,
        about="Whether a row's mean area (in the paper's split: mean radius) is above the median. No party brought it "
        "to the training; the attacker knows it of 40 rows. Accuracy on the others, from its own columns, and from "
        "these and the labels that it inferred (λ_U 1), or the true ones. The paper does not say by which model; here "
        "it is a network of three layers, and logistic regression. In the paper's split the attacker holds perimeter "
        "and area, which give the radius away.",
        reason="another network",
    ),
    Part(
        name="figure 2",
        title="How many columns the attacker holds",
        form="curves",
        settings=tuple(f"share-{each:g}" for each in _SHARES),
        columns=_FIGURE_2,
        axis="columns of the attacker, %",
        models=(TOP,),
        tables=("criteo",),
        about="Hashed columns are shared out, as in the paper.",
        asked=True,
    ),
    Part(
        name="figure 3",
        title="Several parties",
        form="curves",
        settings=tuple(f"parties-{each}" for each in _PARTIES),
        columns=_FIGURE_3,
        axis="parties",
        models=(TOP,),
        tables=("credit_default",),
        about="All parties hold as many columns; one passive party is scored.",
        asked=True,
    ),
    Part(
        name="figure 5",
        title="Defenses against the active attack",
        form="trade-off",
        settings=("defended",),
        columns=_FIGURE_5,
        models=(TOP,),
        tables=("digits", "cifar10", "criteo"),
        about="The paper shows it as a plot only. Some of its settings. The first number is the honest run's under the "
        "same defense; plots take the last one, of the model that was attacked, as the paper does.",
        asked=True,
    ),
)


def _all_defended(defenses: tuple[Defended, ...], column: str) -> tuple[Place, ...]:
    return tuple(("digits", SUM, each.name, column) for each in defenses)


def _falling(what: str, defenses: tuple[Defended, ...], column: str) -> Claim:
    groups = tuple((place,) for place in _all_defended(defenses, column))
    return Claim(part="table 6", words=f"digits, {column}: accuracy falls with {what}", groups=groups)


_PUBLISHED = ("breast_cancer_published", TOP, NONE)
_CLAIMS = (
    Claim(
        part="appendix e",
        words="published split: federated accuracy, mean, at least .93",
        groups=(((*_PUBLISHED, UTILITY),),),
        least=0.93,
    ),
    Claim(
        part="appendix e",
        words="published split: passive AUC (λ_U 1) above the untrained bottom's",
        groups=(((*_PUBLISHED, "λ_U 1, AUC"),), ((*_PUBLISHED, "λ_U 1, untrained bottom, AUC"),)),
        every=True,
    ),
    Claim(
        part="table 2",
        words="digits: passive, head only, at least .15 above the untrained bottom, head only",
        groups=(
            (("digits", TOP, NONE, "passive, head only"),),
            (("digits", TOP, NONE, "untrained bottom, head only"),),
        ),
        least=0.15,
        every=True,
    ),
    *(_falling("noise", _NOISE, column) for column in _TABLE_6),
    *(_falling("compression", _KEEP, column) for column in _TABLE_6),
    Claim(
        part="table 6",
        words="digits, first negative: published DiscreteSGD above every noise and every published PPDL",
        groups=(_all_defended(_LEVELS, "first negative"), _all_defended((*_NOISE, *_PPDL), "first negative")),
    ),
)

LABEL_INFERENCE = Study(
    name="label-inference",
    title="Label inference: what a bottom model and a returned gradient give away",
    tables=SETS,
    absent={"cifar100": "CIFAR-100", "cinic10": "CINIC-10", "yahoo_answers": "Yahoo Answers", "bhi": "BHI"},
    models={TOP: ComponentSpec("splitnn"), SUM: ComponentSpec("splitnn", CONFIGURED)},
    columns=_COLUMNS,
    settings=_SETTINGS,
    parts=_PARTS,
    printed=PRINTED,
    expected=EXPECTED,
    metric="leakage",
    claims=_CLAIMS,
    remarks="Sizes, networks and epochs fit two cores: figures of the paper's sets stand beside them for orientation, "
    "not for comparison. With --full the networks and epochs are the paper's, which needs an accelerator.",
)

LABEL_INFERENCE_FULL = replace(
    LABEL_INFERENCE,
    name="label-inference-full",
    tables=FULL,
    settings=tuple(replace(each, model={}) for each in _SETTINGS),
    parts=tuple(
        replace(
            each,
            about=each.about.replace(_LINEAR, ""),
            reason="smaller sets than the paper's" if each.reason == _SMALLER else each.reason,
        )
        for each in _PARTS
    ),
    expected={},
    claims=(),
    remarks="The paper's networks and epochs; sets are those at hand.",
)
