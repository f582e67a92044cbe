"""What the label inference paper prints, and the figures of an independent implementation: data, nothing else.

The paper's figures are of other sets, or of many more rows; they stand beside sets of the same name and
beside substitutes.
"""

from __future__ import annotations

from labelward.evaluate.studies.compared import Expected, Place, Printed
from labelward.evaluate.studies.plan import NONE, UTILITY

__all__ = ["EXPECTED", "PRINTED"]

_TABLE_2 = {
    # passive and active on training rows, then on test rows
    "cifar10": (0.8024, 0.8484, 0.6299, 0.6342),
    "criteo": (0.6828, 0.6879, 0.6785, 0.6830),
    "credit_default": (0.7614, 0.7824, 0.7519, 0.7673),
    **dict.fromkeys(("ag_news", "dbpedia"), (0.6335, 0.6424, 0.6370, 0.6419)),
}
_ORDER = ("passive", "active", "passive, test rows", "active, test rows")
_TABLE_3 = {
    10: (0.6554, 0.1157),
    20: (0.7080, 0.1187),
    40: (0.8024, 0.1698),
    120: (0.8406, 0.1866),
    320: (0.8544, 0.3286),
}
_TABLE_4 = {"cifar10": (0.8280, 0.8139), "criteo": (0.7132, 0.7128), "credit_default": (0.8340, 0.8504)}
_TABLE_4 |= dict.fromkeys(("ag_news", "dbpedia"), (0.7167, 0.7120))
_SECOND = {"attribute, network": 0.6443, "attribute, network, inferred label": 0.7237}
_SECOND_EXPECTED = {
    "attribute, network": 0.756,
    "attribute, network, inferred label": 0.810,
    "attribute, logistic": 0.837,
    "attribute, logistic, inferred label": 0.839,
}
_TABLE_6 = {
    # accuracy of the model, of the attack
    "noise 0.0001": (0.8347, 0.8063),
    "noise 0.001": (0.8318, 0.4906),
    "noise 0.01": (0.7191, 0.2452),
    "noise 0.1": (0.1000, 0.1265),
    "compression 0.75": (0.8248, 0.9997),
    "compression 0.5": (0.8259, 0.9931),
    "compression 0.25": (0.8049, 0.9245),
    "compression 0.1": (0.1000, 0.0058),
    "PPDL, published 0.75": (0.8189, 0.3904),
    "PPDL, published 0.5": (0.8216, 0.3891),
    "PPDL, published 0.25": (0.1993, 0.0972),
    "PPDL, published 0.1": (0.1000, 0.0430),
    "DiscreteSGD, published 24": (0.8145, 0.9763),
    "DiscreteSGD, published 18": (0.7962, 0.9330),
    "DiscreteSGD, published 12": (0.7471, 0.9399),
    "DiscreteSGD, published 6": (0.6575, 0.9087),
}


def _printed() -> dict[tuple[str, Place], Printed]:
    found: dict[tuple[str, Place], Printed] = {}
    for table, figures in _TABLE_2.items():
        for column, value in zip(_ORDER, figures, strict=True):
            found["table 2", (table, "top", NONE, column)] = Printed(mean=value)
    for table, (honest, attacked) in _TABLE_4.items():
        found["table 4", (table, "top", NONE, UTILITY)] = Printed(mean=honest)
        found["table 4", (table, "top", NONE, "model under active attack")] = Printed(mean=attacked)
    for count, (passive, untrained) in _TABLE_3.items():
        found["table 3", ("cifar10", "top", NONE, f"passive, {count}")] = Printed(mean=passive)
        found["table 3", ("cifar10", "top", NONE, f"untrained, {count}")] = Printed(mean=untrained)
    for defense, (model, attack) in _TABLE_6.items():
        found["table 6", ("cifar10", "sum", defense, UTILITY)] = Printed(mean=model)
        found["table 6", ("cifar10", "sum", defense, "first negative")] = Printed(mean=attack)
    found["table 6", ("cifar10", "sum", NONE, "first negative")] = Printed(mean=1.0)
    for table in ("breast_cancer_paper", "breast_cancer_published"):
        found["appendix e", (table, "top", NONE, UTILITY)] = Printed(mean=0.9510)
        found["appendix e", (table, "top", NONE, "λ_U 50")] = Printed(mean=0.8632)
        for made, value in _SECOND.items():
            found["second step", (table, "top", NONE, made)] = Printed(mean=value)
    return found


_DIRECT = {
    # first negative, least number; two seeds of another network on the same images
    NONE: (0.995, 1.0),
    "noise 0.0001": (0.34, 0.79),
    "noise 0.001": (0.22, 0.57),
    "noise 0.01": (0.16, 0.37),
    "noise 0.1": (0.13, 0.14),
    "compression 0.75": (0.98, None),
    "compression 0.5": (0.94, None),
    "compression 0.25": (0.76, None),
    "compression 0.1": (0.47, None),
    "PPDL, published 0.75": (0.384, None),
    "PPDL, published 0.5": (0.383, None),
    "PPDL, published 0.25": (0.067, None),
    "PPDL, published 0.1": (0.039, None),
    "DiscreteSGD, published 24": (0.56, None),
    "DiscreteSGD, published 18": (0.54, None),
    "DiscreteSGD, published 12": (0.49, None),
    "DiscreteSGD, published 6": (0.41, None),
}


def _expected() -> dict[Place, Expected]:
    breast, digits = ("breast_cancer_published", "top", NONE), ("digits", "top", NONE)
    found: dict[Place, Expected] = {
        (*breast, UTILITY): Expected(mean=0.966),
        (*breast, "λ_U 1"): Expected(mean=0.864, std=0.074, within=0.08),
        (*breast, "λ_U 1, AUC"): Expected(mean=0.968),
        (*breast, "λ_U 1, untrained bottom"): Expected(mean=0.80),
        (*breast, "λ_U 1, untrained bottom, AUC"): Expected(mean=0.924),
        (*breast, "λ_U 50"): Expected(mean=0.69, std=0.12),
        (*breast, "λ_U 50, AUC"): Expected(mean=0.96),
        (*breast, "λ_U 50, head only"): Expected(mean=0.42),
        (*breast, "logistic"): Expected(mean=0.919),
        (*digits, UTILITY): Expected(mean=0.949, std=0.026),
        (*digits, "passive, head only"): Expected(mean=0.643, std=0.094),
        (*digits, "untrained bottom, head only"): Expected(mean=0.284, std=0.05),
        (*digits, "passive"): Expected(mean=0.677),
        (*digits, "untrained bottom"): Expected(mean=0.688),
    }
    for made, value in _SECOND_EXPECTED.items():
        found[*breast, made] = Expected(mean=value)
    for defense, (first, least) in _DIRECT.items():
        found["digits", "sum", defense, "first negative"] = Expected(mean=first)
        if least is not None:
            found["digits", "sum", defense, "least number"] = Expected(mean=least)
    return found


PRINTED, EXPECTED = _printed(), _expected()
