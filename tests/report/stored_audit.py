"""An audit as it would lie on disk: breast cancer, two passive parties, figures near the reference ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from labelward.runs.schema import (
    AttackAccount,
    Cost,
    EngineInfo,
    KeyInfo,
    ResultRow,
    RunDetails,
    VisibilityCounts,
    WireFlow,
    append_row,
    write_run,
)

JOB = """\
[data]
table = "breast_cancer"
test_size = 0.2

[parties]
active = 0.5
telco = 0.3
bank = 0.2

[model]
kind = "secureboost"
trees = 5
depth = 6

[encryption]
engine = "paillier"
bits = 2048

[[defense]]
kind = "id-lmid"
xi = [0.1, 0.5, 1.0, 2.0]

[[defense]]
kind = "local-trees"
count = 2
mode = "add"

[[attack]]
kind = "clustering"

[[attack]]
kind = "id2graph"

[run]
seeds = [1, 2, 3, 4, 5]
"""

LOCAL = ({"kind": "local-trees", "count": 2, "mode": "add"},)


def lmid(xi: float) -> tuple[dict[str, Any], ...]:
    return ({"kind": "id-lmid", "xi": xi},)


# (chain, ID2Graph's V-measure with telco, AUC, seconds, hidden splits)
VARIANTS: list[tuple[tuple[dict[str, Any], ...], float, float, float, int]] = [
    ((), 0.700, 0.988, 11.8, 0),
    (lmid(0.1), 0.554, 0.988, 3.1, 31),
    (lmid(0.5), 0.577, 0.990, 8.9, 12),
    (lmid(1.0), 0.700, 0.988, 14.2, 0),
    (lmid(2.0), 0.700, 0.988, 14.1, 0),
    (LOCAL, 0.717, 0.987, 9.7, 0),
]
CLUSTERING = {"telco": 0.554, "bank": 0.310}
VERSIONS = {"labelward": "0.1.0", "python": "3.11.2", "numpy": "2.4.6", "gmpy2": "2.2.1"}


def make_row(**changes: Any) -> ResultRow:
    values: dict[str, Any] = {
        "dataset": "breast_cancer",
        "model": {"kind": "secureboost", "trees": 5, "depth": 6},
        "engine": EngineInfo(name="paillier", bits=2048, insecure=False, security_level=112),
        "seed": 1,
        "defense": (),
        "party": "telco",
        "attack": {"kind": "id2graph", "alpha": 2.0},
        "leakage": make_leakage(0.7, 0.55),
        "utility": {
            "auc": 0.988,
            "accuracy": 0.951,
            "f1": 0.962,
            "alone": {"auc": 0.974, "accuracy": 0.925, "f1": 0.94},
            "joined": {"auc": 0.991, "accuracy": 0.956, "f1": 0.965},
            "primary": "auc",
        },
        "cost": Cost(
            seconds=11.8,
            bytes=3_214_556,
            messages=130,
            encryptions=2275,
            additions=412_340,
            decryptions=2310,
            ciphertexts=4585,
            logical_sums=46_080,
        ),
        "versions": VERSIONS,
    }
    return ResultRow(**values | changes)


def make_leakage(value: float, own: float, chance: float = 0.002) -> dict[str, Any]:
    return {
        "v_measure": value,
        "ari": min(1.0, value + 0.09),
        "chance": {"v_measure": chance, "ari": 0.0},
        "without_view": {"v_measure": own, "ari": min(1.0, own + 0.09)},
        "primary": "v_measure",
    }


def regression_rows(
    values: list[float], *, rmse: float = 80.0, alone: float = 90.0, defense: tuple[dict[str, Any], ...] = ()
) -> list[ResultRow]:
    """Return rows of a regression whose attacker has 0.05 and explains 2% from its own columns."""
    found = []
    for seed, value in enumerate(values, start=1):
        leakage = {
            "v_measure": value,
            "ari": value,
            "r2": 0.4,
            "chance": {"v_measure": 0.001, "ari": 0.0, "r2": 0.004},
            "without_view": {"v_measure": 0.05, "ari": 0.05, "r2": 0.02},
            "primary": "v_measure",
        }
        utility = {
            "rmse": rmse + 0.5 * (seed % 2),
            "mae": rmse / 2,
            "r2": 0.3,
            "alone": {"rmse": alone, "mae": alone / 2, "r2": 0.2},
            "joined": {"rmse": rmse, "mae": rmse / 2, "r2": 0.3},
            "primary": "rmse",
        }
        found.append(make_row(dataset="energy", seed=seed, defense=defense, leakage=leakage, utility=utility))
    return found


def make_run(**changes: Any) -> RunDetails:
    flows = []
    for party in ("telco", "bank"):
        flows += [
            ("active", party, "Hello", 1, 410, True),
            ("active", party, "KeyOffer", 1, 330, "the public key"),
            ("active", party, "TreeRows", 5, 1_175_000, "gradients, as ciphertexts"),
            ("active", party, "Level", 30, 4_120, "rows of splits that others own, nodes to sum"),
            (party, "active", "LevelSums", 25, 398_400, "sums, after decryption"),
            ("active", party, "ChosenSplits", 24, 1_530, True),
            (party, "active", "SplitRows", 21, 2_210, True),
            ("active", party, "TrainingEnd", 1, 40, True),
        ]
    names = ("sender", "receiver", "type", "messages", "bytes", "readable")
    values: dict[str, Any] = {
        "seed": 1,
        "defense": (),
        "wire": tuple(WireFlow(**dict(zip(names, flow, strict=True))) for flow in flows),
        "phases": {
            "active": {"keys": 0.41, "encrypt": 2.9, "decrypt": 3.3, "grow": 0.35, "wait": 4.8},
            "telco": {"sums": 4.1, "seal": 0.6, "wait": 6.9},
            "bank": {"sums": 2.9, "seal": 0.4, "wait": 8.2},
        },
        "key": KeyInfo(
            engine="paillier",
            bits=2048,
            security_level=112,
            insecure=(),
            fingerprint="9f3a61c04be2d7581122aabbccddeeff",
            kernel="gmpy2 2.2.1 (GMP 6.3.0)",
        ),
        "seen": {
            "active": VisibilityCounts(
                role="active", rows=455, columns=15, trees=5, nodes=131, leaves=68, own_splits=37, decrypted_sums=23_040
            ),
            "telco": _passive(9, 17, 0.412),
            "bank": _passive(6, 9, 0.398),
        },
        "applied": (),
        "processor": "AMD EPYC 9V74, 2 cores",
        "duration": 11.8,
        "test_rows": 114,
        "attacks": tuple(
            AttackAccount(party=party, attack={"kind": kind}, auxiliary={"classes": 2}, seconds=0.2)
            for party in ("telco", "bank")
            for kind in ("clustering", "id2graph")
        ),
    }
    return RunDetails(**values | changes)


def _passive(columns: int, own: int, information: float) -> VisibilityCounts:
    return VisibilityCounts(
        role="passive",
        rows=455,
        columns=columns,
        trees=5,
        nodes=109,
        leaves=57,
        own_splits=own,
        told_splits=52 - own,
        max_node_information=information,
        max_node_bound=1.21,
        joint_information=0.631,
        joint_bound=0.66,
        label_entropy=0.660,
    )


def write_audit(folder: Path, *, seeds: int = 5, dataset: str = "breast_cancer") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(JOB.replace("[1, 2, 3, 4, 5]", str(list(range(1, seeds + 1)))))
    rng = np.random.default_rng(0)
    own = {party: np.clip(value + rng.normal(0, 0.08, seeds), 0, 1) for party, value in CLUSTERING.items()}
    for chain, leak, auc, seconds, hidden in VARIANTS:
        aucs = auc + rng.normal(0, 0.006, seeds)
        for seed in range(1, seeds + 1):
            base = make_row().utility
            utility = base | {"auc": min(1.0, float(aucs[seed - 1]))}
            cost = {"seconds": seconds * rng.uniform(0.97, 1.03), "bytes": int(3.2e6 * rng.uniform(0.9, 1.1))}
            for party in CLUSTERING:
                alone = float(own[party][seed - 1])
                step = leak - 0.554 if party == "telco" else 0.6 * (leak - 0.554)
                seen = float(np.clip(alone + step + rng.normal(0, 0.02), 0, 1))
                for kind, value in (("clustering", alone), ("id2graph", seen)):
                    append_row(
                        folder,
                        make_row(
                            dataset=dataset,
                            seed=seed,
                            defense=chain,
                            party=party,
                            utility=utility,
                            attack={"kind": kind, "alpha": 2.0} if kind == "id2graph" else {"kind": kind},
                            leakage=make_leakage(value, alone),
                            cost=Cost(
                                **cost,
                                messages=254,
                                encryptions=2275,
                                additions=412_340,
                                decryptions=2310,
                                ciphertexts=4585,
                                logical_sums=46_080,
                            ),
                        ),
                    )
            account = {"kind": "id-lmid", "xi": 0.5, "refused_candidates": 812 + seed, "hidden_splits": hidden}
            account["given_up_splits"] = 0
            write_run(
                folder, make_run(seed=seed, defense=chain, duration=seconds, applied=(account,) if hidden else ())
            )
    return folder
