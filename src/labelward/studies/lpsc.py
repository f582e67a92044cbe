"""LPSC and VFGBoost: Tables 2, 3, 9 and 10 and Figures 4 to 9 of the paper, on the tables at hand.

Criteo is a sample of 8,000 rows. Avazu, MIMIC-III and Cardio, of which no copy may be passed on, are read from the
user's files; credit and bank stand for them.
Leakage is the mean over all passive parties, as in the paper. Half of the training rows are aligned, as there; the
active party learns its own columns' model from all of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from labelward.job import ComponentSpec
from labelward.studies.datasets import without_columns
from labelward.studies.references import load_figures
from labelward.studies.spec import (
    ATTACKER,
    DefenseSpec,
    MetricColumn,
    Study,
    StudyDataset,
    StudyModel,
    StudyPart,
    StudySetting,
    defense_sweep,
)

_PASSIVE = ("party2", "party3", "party4", "party5", "party6", ATTACKER)
_NET: dict[str, Any] = {
    "top": False,
    "loss": "logistic",
    "width": 32,
    "optimizer": "adam",
    "learning_rate": 0.005,
    "batch_size": 1024,
    "epochs": 10,
}
_CODED = {**_NET, "active_bottom": False}
_INVERTED = {**_NET, "top": True, "top_model": "linear", "loss": "auto", "epochs": 5}
_PMC = ComponentSpec("passive-completion", {"auxiliary": 200, "steps": 256, "unlabeled_weight": 50.0})
_SPECTRAL, _NORM, _DIRECT = ComponentSpec("spectral"), ComponentSpec("norm"), ComponentSpec("direct")
_INVERSION = ComponentSpec("inversion", {"column": "party2.housing", "auxiliary": 1000})
_EPOCHS = (1, 2, 5, 10)


def _lpsc(coding: str, name: str) -> DefenseSpec:
    return DefenseSpec(family=f"LPSC {name}", chain=(ComponentSpec("lpsc", {"coding": coding}),))


def _behind_lpsc(family: str, kind: str, parameter: str, *values: float) -> tuple[DefenseSpec, ...]:
    """Return a sweep of a defense behind LogitBoost's code."""
    return tuple(
        DefenseSpec(
            family=family, strength=value, chain=(ComponentSpec("lpsc"), ComponentSpec(kind, {parameter: value}))
        )
        for value in values
    )


_LOGITBOOST = _lpsc("logitboost", "LogitBoost")
_JOINED = DefenseSpec(family="Label, joined", chain=(ComponentSpec("lpsc", {"coding": "labels"}),))
_CODINGS = (_LOGITBOOST, _lpsc("adaboost", "AdaBoost"), _lpsc("l2", "L2"), _lpsc("offset", "offset"))
_VFGBOOST = _behind_lpsc("VFGBoost", "adversarial", "beta", 0.05, 0.5, 2.0)
_LABEL_DP = defense_sweep("LabelDP", "randomized-response", "epsilon", (1.0, 2.0, 4.0))
_CODED_DP = tuple(
    DefenseSpec(family="LPSC + LabelDP", strength=each.strength, chain=(*each.chain, ComponentSpec("lpsc")))
    for each in _LABEL_DP
)
_TRADED = {
    "label": (
        *_LABEL_DP,
        *defense_sweep("Marvell", "marvell", "s", (1.0, 4.0)),
        *defense_sweep("MID", "mid", "weight", (0.01, 0.1)),
        *defense_sweep("FE-VFL", "distance-correlation", "weight", (0.1, 1.0)),
    ),
    "coded": (_LOGITBOOST, *_VFGBOOST, *_behind_lpsc("LPSC + Marvell", "marvell", "s", 1.0, 4.0)),
}
_EMBEDDINGS = ("norm", "spectral", "PMC", "PMC, test rows", "own columns", "direct")

_CREDIT_ACTIVE = (
    *("SEX", "MARRIAGE", "PAY_0", "PAY_3", "PAY_5", "BILL_AMT1", "BILL_AMT3", "BILL_AMT5"),
    *("PAY_AMT1", "PAY_AMT3", "PAY_AMT5"),
)
_CREDIT_OTHERS = (
    *("LIMIT_BAL", "EDUCATION", "AGE", "PAY_2", "PAY_4", "PAY_6", "BILL_AMT2", "BILL_AMT4", "BILL_AMT6"),
    *("PAY_AMT2", "PAY_AMT4", "PAY_AMT6"),
)
_CREDIT = {
    "active": _CREDIT_ACTIVE,
    **{name: _CREDIT_OTHERS[2 * at : 2 * at + 2] for at, name in enumerate(_PASSIVE)},
}
_CRITEO_COLUMNS = (*(f"I{at}" for at in range(1, 14)), *(f"C{at}" for at in range(1, 27)))
_CRITEO = {name: _CRITEO_COLUMNS[at::7] for at, name in enumerate(("active", *_PASSIVE))}
_BANK = {
    "active": ("age", "job", "poutcome", "pdays"),
    "party2": ("housing", "marital", "education", "default"),
    "party3": ("balance", "loan", "contact", "day"),
    ATTACKER: ("month", "duration", "campaign", "previous"),
}


def _own(name: str, title: str, parties: int, **others: Any) -> StudyDataset:
    return StudyDataset(
        name=name,
        title=title,
        shape=(0, 0, 2),
        convert=partial(without_columns, names=("id",)),
        parties=parties,
        leakage_metric="auc",
        **others,
    )


_OWN = (
    _own(
        *("avazu", "Avazu", 5),
        categories="hashed",
        model={"bottom": "deepfm", "learning_rate": 5e-4, "weight_decay": 1e-5, "batch_size": 4096, "epochs": 5},
    ),
    _own("mimic", "MIMIC-III", 7, model={"learning_rate": 5e-4, "batch_size": 4096, "epochs": 200}),
    _own("cardio", "Cardio", 7, model={"learning_rate": 5e-4, "batch_size": 1024, "epochs": 200}),
)
"""Of these no copy may be passed on; columns are dealt out evenly, as in the paper. It trains the last two in full
batches."""


def _recommender(preset: str) -> StudyModel:
    """Return the model whose passive parties have another bottom model than the active party."""
    bottoms = dict.fromkeys(_PASSIVE, preset)
    return StudyModel(title=preset.upper(), spec=ComponentSpec("splitnn", {**_CODED, "bottoms": bottoms}))


def _features(count: int) -> StudySetting:
    """Return the setting in which the active party has so many columns."""
    return StudySetting(
        name=f"features-{count}",
        axis_value=count,
        active_columns=count,
        defenses={"coded": (_LOGITBOOST, _CODINGS[-1])} if count else {},
        columns=("spectral",),
        aligned=0.5,
    )


_FEATURES = tuple(_features(count) for count in (0, 1, 3, 6, 11))
_WIDTHS = tuple(
    StudySetting(
        name=f"embedding-{width}",
        axis_value=width,
        model={"embedding": width},
        columns=("inversion", "inversion, own columns"),
    )
    for width in (1, 4, 32)
)

_OUTPUTS = tuple(
    StudyPart(
        name=name,
        title=f"Outputs of {title} by class, with and without LPSC",
        form="distributions",
        settings=("outputs",),
        parties=parties,
        models=("coded",),
        datasets=("criteo_8k", "credit_default"),
        about="Training rows after the last epoch; images are of the first seed. With LPSC the outputs of both "
        "classes almost overlap in the paper.",
        on_request=True,
    )
    for name, title, parties in (
        ("figure 4", "four passive parties", _PASSIVE[:4]),
        ("figure 6", "all passive parties", _PASSIVE),
    )
)

LPSC = Study(
    name="lpsc",
    title="LPSC and VFGBoost: label privacy source coding in split networks",
    datasets=(
        StudyDataset(
            name="criteo_8k",
            title="Criteo",
            substitute="a sample of 8,000 of 45.8 million rows",
            reason="3,200 aligned rows are too few, and the networks overfit",
            party_columns=_CRITEO,
            categories="hashed",
            model={
                "bottom": "deepfm",
                "learning_rate": 1e-3,
                "weight_decay": 1e-5,
                "batch_size": 256,
                "epochs": 5,
            },
            leakage_metric="auc",
        ),
        StudyDataset(name="credit_default", title="Credit card", party_columns=_CREDIT, leakage_metric="auc"),
        StudyDataset(
            name="bank_marketing",
            title="Bank marketing",
            party_columns=_BANK,
            categories="native",
            leakage_metric="auc",
        ),
    ),
    unavailable={each.name: each.title for each in _OWN},
    own=_OWN,
    models={
        "label": StudyModel(title="Label, all parties in the network", spec=ComponentSpec("splitnn", _NET)),
        "coded": StudyModel(title="Passive parties in the network", spec=ComponentSpec("splitnn", _CODED)),
        **{preset: _recommender(preset) for preset in ("edcn", "nfm", "wdl")},
        "inverted": StudyModel(title="Linear top model", spec=ComponentSpec("splitnn", _INVERTED)),
    },
    columns=(
        MetricColumn(title="norm", attack=_NORM, metric="auc_either", of="passive"),
        MetricColumn(title="spectral", attack=_SPECTRAL, metric="auc_either", of="passive"),
        MetricColumn(title="PMC", attack=_PMC, metric="auc", of="passive"),
        MetricColumn(title="PMC, test rows", attack=_PMC, metric="outside_auc", of="passive"),
        MetricColumn(title="own columns", attack=_PMC, metric="auc", source="boosted", of="passive"),
        MetricColumn(title="direct", attack=_DIRECT, metric="auc", of="passive"),
        *(
            MetricColumn(
                title=f"epoch {epoch}",
                attack=ComponentSpec("spectral", {"epoch": epoch}),
                metric="auc_either",
                of="passive",
            )
            for epoch in _EPOCHS
        ),
        MetricColumn(title="inversion", attack=_INVERSION, metric="auc", of="active"),
        MetricColumn(
            title="inversion, own columns", attack=_INVERSION, metric="auc", source="own columns", of="active"
        ),
    ),
    settings=(
        StudySetting(
            name="codings",
            defenses={"coded": (_JOINED, *_CODINGS)},
            columns=_EMBEDDINGS,
            aligned=0.5,
        ),
        StudySetting(name="trade-off", defenses=_TRADED, columns=("spectral", "PMC", "direct"), aligned=0.5),
        # aligned rows only: nothing puts noise on the labels of others
        StudySetting(name="coded-noise", defenses={"coded": _CODED_DP}, columns=("spectral", "PMC", "direct")),
        StudySetting(
            name="architectures",
            defenses=dict.fromkeys(("edcn", "nfm", "wdl"), _VFGBOOST[:1]),
            columns=("spectral", "PMC"),
            aligned=0.5,
        ),
        StudySetting(
            name="training",
            defenses={"coded": _VFGBOOST[:1]},
            columns=tuple(f"epoch {epoch}" for epoch in _EPOCHS),
            aligned=0.5,
            record="epochs",
        ),
        StudySetting(name="outputs", defenses={"coded": (_LOGITBOOST,)}, attacked=False, aligned=0.5, record="epochs"),
        *_FEATURES,
        *_WIDTHS,
    ),
    parts=(
        StudyPart(
            name="table 2",
            title="Leakage and utility with and without LPSC",
            form="trade-off",
            settings=("codings",),
            columns=_EMBEDDINGS,
            models=("label", "coded"),
            datasets=("criteo_8k", "credit_default", "avazu", "mimic", "cardio"),
            about="The target Label stands here twice: with a bottom model of the active party (first table of each "
            "data set), and without, joined with the own columns by logistic regression. PMC knows 200 labels; "
            "beside it boosted trees of the own columns with the same labels. 'direct' reads gradients of the first "
            "epoch, at which the paper does not look.",
        ),
        StudyPart(
            name="table 3",
            title="Codings",
            form="trade-off",
            settings=("codings",),
            columns=("spectral", "PMC"),
            models=("coded",),
            datasets=("criteo_8k", "credit_default", "avazu"),
        ),
        *_OUTPUTS,
        StudyPart(
            name="figure 5",
            title="Trade-off of defenses",
            form="trade-off",
            settings=("trade-off",),
            columns=("spectral", "PMC", "direct"),
            models=("label", "coded"),
            datasets=("credit_default",),
            on_request=True,
        ),
        StudyPart(
            name="figure 5, noisy labels",
            title="LPSC behind LabelDP",
            form="trade-off",
            settings=("coded-noise",),
            columns=("spectral", "PMC", "direct"),
            models=("coded",),
            datasets=("credit_default",),
            about="All rows are aligned, since nothing would put noise on the labels of others.",
            on_request=True,
        ),
        StudyPart(
            name="table 9",
            title="Bottom models of the passive parties",
            form="trade-off",
            settings=("architectures",),
            columns=("spectral", "PMC"),
            models=("edcn", "nfm", "wdl"),
            datasets=("criteo_8k",),
            on_request=True,
        ),
        StudyPart(
            name="figure 7",
            title="Leakage during training",
            form="trade-off",
            settings=("training",),
            columns=tuple(f"epoch {epoch}" for epoch in _EPOCHS),
            models=("coded",),
            datasets=("credit_default",),
            on_request=True,
        ),
        StudyPart(
            name="table 10",
            title="Columns of the active party, and Figure 9",
            form="curves",
            settings=tuple(each.name for each in _FEATURES),
            columns=("utility", "spectral"),
            axis="columns",
            models=("coded",),
            datasets=("credit_default",),
            about="Without columns there is no code: the network is fitted to the labels.",
        ),
        StudyPart(
            name="figure 8",
            title="A column of another party, from embeddings",
            form="curves",
            settings=tuple(each.name for each in _WIDTHS),
            columns=("inversion", "inversion, own columns"),
            axis="embedding",
            models=("inverted",),
            datasets=("bank_marketing",),
            about="The paper infers banner_pos of Avazu, with AUC .534 at one number and .928 at 32.",
        ),
    ),
    validation_size=0.1,
    **load_figures("lpsc")._asdict(),
    metric="AUC",
    remarks="Leakage is the mean over all passive parties. LPSC is no differential privacy, and nothing here a bound.",
)
