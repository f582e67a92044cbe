"""What the papers print, and the figures of an independent implementation with their tolerances: data, nothing else.

Reference figures are means of as many seeds as the study has, on the same rows and columns. They come from an
implementation that was written from the papers with their errors mended and shares no code with this one.
"""

from __future__ import annotations

from labelward.evaluate.studies.compared import Expected, Place, Printed
from labelward.evaluate.studies.plan import NONE, SUMS, UTILITY

__all__ = ["ICA_EXPECTED", "ICA_PRINTED", "ID2GRAPH_EXPECTED", "ID2GRAPH_PRINTED"]

_Pair = tuple[float, float]
_TABLE_2: dict[str, tuple[_Pair, ...]] = {
    # CL; forest: UNI, UNI+CL, ID2Graph; XGBoost: UNI, UNI+CL, ID2Graph
    "breast_cancer": ((0.554, 0.084), (0.0, 0.0), (0.554, 0.084), (0.751, 0.106), (0.0, 0.0), (0.554, 0.084),
                      (0.736, 0.133)),
    "parkinson_252": ((0.091, 0.011), (0.035, 0.079), (0.094, 0.011), (0.349, 0.100), (0.0, 0.0), (0.091, 0.011),
                      (0.224, 0.111)),
    "obesity": ((0.254, 0.029), (0.0, 0.0), (0.254, 0.029), (0.610, 0.079), (0.0, 0.0), (0.254, 0.029),
                (0.549, 0.114)),
    "phishing": ((0.001, 0.001), (0.196, 0.268), (0.202, 0.276), (0.352, 0.156), (0.196, 0.268), (0.202, 0.276),
                 (0.342, 0.183)),
    "avila": ((0.085, 0.057), (0.043, 0.095), (0.107, 0.054), (0.252, 0.050), (0.0, 0.0), (0.085, 0.057),
              (0.200, 0.053)),
    "sensorless_2200": ((0.283, 0.042), (0.181, 0.101), (0.302, 0.034), (0.729, 0.032), (0.0, 0.0), (0.283, 0.042),
                        (0.660, 0.045)),
    "fashion_mnist_train": ((0.431, 0.002), (0.133, 0.182), (0.432, 0.002), (0.525, 0.013), (0.0, 0.0), (0.431, 0.002),
                      (0.513, 0.025)),
    "fars": ((0.187, 0.081), (0.506, 0.287), (0.454, 0.131), (0.564, 0.056), (0.224, 0.311), (0.308, 0.158),
             (0.568, 0.060)),
    "pucrio": ((0.075, 0.025), (0.238, 0.217), (0.217, 0.105), (0.555, 0.035), (0.159, 0.217), (0.170, 0.114),
               (0.470, 0.073)),
}  # fmt: skip
_ORDER = (
    ("forest", "CL"), ("forest", "UNI"), ("forest", "UNI+CL"), ("forest", "ID2Graph"),
    ("secureboost", "UNI"), ("secureboost", "UNI+CL"), ("secureboost", "ID2Graph"),
)  # fmt: skip

_TABLE_3 = {
    ("forest", "ID-LMID 0.5"): 0.364,
    ("forest", "ID-LMID 2"): 0.820,
    ("forest", "LP-2ST 0.5"): 1.16,
    ("forest", "LP-2ST 2"): 1.14,
    ("secureboost", "ID-LMID 0.5"): 0.682,
    ("secureboost", "ID-LMID 2"): 1.17,
    ("secureboost", "LP-2ST 0.5"): 1.18,
    ("secureboost", "LP-2ST 2"): 1.17,
    ("secureboost", "Reduced-Leakage"): 0.798,
}


def _id2graph_printed() -> dict[tuple[str, Place], Printed]:
    found: dict[tuple[str, Place], Printed] = {}
    for table, pairs in _TABLE_2.items():
        for (model, column), (mean, std) in zip(_ORDER, pairs, strict=True):
            found["table 2", (table, model, NONE, column)] = Printed(mean=mean, std=std)
        found["table 2", (table, "secureboost", NONE, "CL")] = found["table 2", (table, "forest", NONE, "CL")]
    for (model, defense), rate in _TABLE_3.items():
        found["table 3", ("", model, defense, SUMS)] = Printed(mean=rate)
    return found


_UNDEFENDED: dict[tuple[str, str], tuple[_Pair, _Pair, _Pair, _Pair, _Pair]] = {
    # utility (AUC), CL, UNI, UNI+CL, ID2Graph
    ("breast_cancer", "forest"): ((0.986, 0.005), (0.554, 0.084), (0.0, 0.0), (0.554, 0.084), (0.786, 0.056)),
    ("breast_cancer", "secureboost"): ((0.988, 0.010), (0.554, 0.084), (0.0, 0.0), (0.554, 0.084), (0.700, 0.080)),
    ("obesity", "forest"): ((0.991, 0.002), (0.253, 0.030), (0.0, 0.0), (0.253, 0.030), (0.634, 0.039)),
    ("obesity", "secureboost"): ((0.998, 0.001), (0.253, 0.030), (0.0, 0.0), (0.253, 0.030), (0.629, 0.129)),
    ("phishing", "forest"): ((0.984, 0.002), (0.001, 0.002), (0.196, 0.268), (0.202, 0.276), (0.311, 0.125)),
    ("phishing", "secureboost"): ((0.987, 0.002), (0.001, 0.002), (0.196, 0.268), (0.202, 0.276), (0.393, 0.114)),
}
_WITHIN = {"breast_cancer": 0.10, "obesity": 0.15, "phishing": 0.20}

_LMID: dict[tuple[str, str, float], _Pair] = {
    # AUC, ID2Graph
    ("breast_cancer", "forest", 0.1): (0.989, 0.00),
    ("breast_cancer", "forest", 0.5): (0.988, 0.08),
    ("breast_cancer", "secureboost", 0.1): (0.988, 0.554),
    ("breast_cancer", "secureboost", 0.5): (0.990, 0.577),
    ("obesity", "forest", 0.1): (0.891, 0.085),
    ("obesity", "forest", 0.5): (0.932, 0.418),
    ("obesity", "forest", 1.0): (0.972, 0.544),
    ("obesity", "forest", 2.0): (0.990, 0.644),
    ("obesity", "secureboost", 0.1): (0.922, 0.231),
    ("obesity", "secureboost", 0.5): (0.962, 0.412),
    ("obesity", "secureboost", 1.0): (0.986, 0.542),
    ("obesity", "secureboost", 2.0): (0.997, 0.614),
}
_BIMODAL = ("breast_cancer", "forest", 0.5)
"""A seed gives next to nothing or what CL gives, so that means of five scatter by .13."""

_NOISE: dict[str, dict[float, tuple[float, float, float]]] = {
    # forest: AUC under LP-2ST, AUC grafted, ID2Graph
    "breast_cancer": {
        0.1: (0.527, 0.904, 0.123),
        0.5: (0.756, 0.979, 0.327),
        1.0: (0.881, 0.983, 0.440),
        2.0: (0.964, 0.985, 0.589),
    },
    "obesity": {
        0.1: (0.518, 0.748, 0.129),
        0.5: (0.625, 0.844, 0.203),
        1.0: (0.839, 0.965, 0.462),
        2.0: (0.961, 0.978, 0.526),
    },
}


def _id2graph_expected() -> dict[Place, Expected]:
    found: dict[Place, Expected] = {}
    for (table, model), pairs in _UNDEFENDED.items():
        within = (0.01, 0.01, None, None, _WITHIN[table])
        for column, (mean, std), most in zip((UTILITY, "CL", "UNI", "UNI+CL", "ID2Graph"), pairs, within, strict=True):
            found[table, model, NONE, column] = Expected(mean=mean, std=std, within=most)
    for (table, model, xi), (auc, leakage) in _LMID.items():
        defense, bimodal = f"ID-LMID {xi:g}", (table, model, xi) == _BIMODAL
        found[table, model, defense, UTILITY] = Expected(mean=auc, within=0.03)
        found[table, model, defense, "ID2Graph"] = Expected(mean=leakage, within=None if bimodal else 0.15)
    for table, auc, leakage in (("breast_cancer", 0.987, 0.717), ("obesity", 0.997, 0.584)):
        found[table, "secureboost", "Reduced-Leakage", UTILITY] = Expected(mean=auc, within=0.01)
        found[table, "secureboost", "Reduced-Leakage", "ID2Graph"] = Expected(mean=leakage, within=0.15)
    for table, noise in _NOISE.items():
        for epsilon, (auc, grafted, leakage) in noise.items():
            plain, repaired = f"LP-2ST {epsilon:g}", f"Grafting-LDP {epsilon:g}"
            found[table, "forest", plain, UTILITY] = Expected(mean=auc, within=0.05 if epsilon >= 1 else 0.15)
            found[table, "forest", repaired, UTILITY] = Expected(mean=grafted, within=0.04 if epsilon >= 1 else None)
            for defense in (plain, repaired):
                found[table, "forest", defense, "ID2Graph"] = Expected(mean=leakage, within=0.20)
    return found


ID2GRAPH_PRINTED = _id2graph_printed()
ID2GRAPH_EXPECTED = _id2graph_expected()

ICA_PRINTED: dict[tuple[str, Place], Printed] = {
    ("figure 5", ("synthetic1", "secureboost", NONE, "majority")): Printed(mean=0.84),
}
"""Section VII-B prints one figure, "up to 84%", which is typical only of the model's true leaves."""

_VIEW = {
    # one known row, majority, AUC; no tolerance is known but the spread over the seeds
    NONE: ((0.70, 0.08), (0.80, 0.09), 0.951),
    "local trees 10": ((0.62, 0.08), (0.72, 0.10), 0.965),
    "purity threshold 0.8": ((0.67, 0.08), (0.77, 0.10), 0.948),
    "purity threshold 0.6": ((0.64, 0.06), (0.75, 0.06), 0.942),
}


def _ica_expected() -> dict[Place, Expected]:
    found: dict[Place, Expected] = {}
    for defense, (one, most, auc) in _VIEW.items():
        place = ("synthetic1", "secureboost", defense)
        for column, (mean, std) in (("one known row", one), ("majority", most)):
            found[*place, column] = Expected(mean=mean, std=std, within=std)
        found[*place, UTILITY] = Expected(mean=auc)
    return found


ICA_EXPECTED = _ica_expected()
