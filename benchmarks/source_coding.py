"""What label privacy source coding hides, and what it costs: writes docs/ref-source-coding.md.

Credit default (codings, noise, columns of the active party), the Criteo sample, and inversion on bank marketing. Seeds
come one after another, and what is stored is not measured again, so that a run that was stopped goes on. Rows, columns
and starts follow from the seeds; noise that protects is drawn by the system.

    LABELWARD_DATA=DIR python benchmarks/source_coding.py [--seeds 5] [--part credit] \\
        --json benchmarks/results/source-coding.json --page docs/ref-source-coding.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from _source_coding_page import page_of
from sklearn.metrics import roc_auc_score

from labelward.attacks.base import AuxiliaryKnowledge
from labelward.auditing.measure import FinishedTraining, attackers_of, directed_parties, run_training
from labelward.data import load_dataset
from labelward.federation.components import make_attack, make_engine, with_defaults
from labelward.job import parse_job
from labelward.leakage.run_attack import attack_and_score, run_attack
from labelward.rng import PrivateSeed

PASSIVE = ("p2", "p3", "p4", "p5", "p6", "p7")
_ACTIVE = (
    *("SEX", "MARRIAGE", "PAY_0", "PAY_3", "PAY_5", "BILL_AMT1", "BILL_AMT3", "BILL_AMT5"),
    *("PAY_AMT1", "PAY_AMT3", "PAY_AMT5"),
)
_OTHERS = (
    *("LIMIT_BAL", "EDUCATION", "AGE", "PAY_2", "PAY_4", "PAY_6", "BILL_AMT2", "BILL_AMT4", "BILL_AMT6"),
    *("PAY_AMT2", "PAY_AMT4", "PAY_AMT6"),
)
_CRITEO = (*(f"I{at}" for at in range(1, 14)), *(f"C{at}" for at in range(1, 27)))
_NET: dict[str, Any] = {
    "kind": "splitnn",
    "bottom": "mlp",
    "width": 32,
    "top": False,
    "loss": "logistic",
    "optimizer": "adam",
    "learning_rate": 0.005,
    "batch_size": 1024,
    "epochs": 10,
}
_CODED = {**_NET, "active_bottom": False}
_DEEPFM = {
    **{name: value for name, value in _CODED.items() if name != "width"},
    "bottom": "deepfm",
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "batch_size": 256,
    "epochs": 5,
}
_EMBEDDINGS = ({"kind": "spectral"}, {"kind": "norm"})
_GRADIENTS = (
    {"kind": "direct"},
    {"kind": "direct", "epochs": 5},
    {"kind": "norm", "of": "gradients"},
    {"kind": "spectral", "of": "gradients"},
)

PARTS = ("credit", "bank", "columns", "criteo", "gradients", "utility", "heads", "fewer")

Chain = list[dict[str, Any]]


def _lpsc(coding: str, **others: Any) -> Chain:
    return [{"kind": "lpsc", "coding": coding, **others}]


_CHAINS: dict[str, Chain] = {
    "labels, joined": _lpsc("labels"),
    "logitboost": _lpsc("logitboost"),
    "logitboost, validation": _lpsc("logitboost", scale="validation"),
    "offset": _lpsc("offset"),
    "offset, validation": _lpsc("offset", scale="validation"),
    "l2": _lpsc("l2"),
    "adaboost": _lpsc("adaboost"),
    "beta 0.05": [*_lpsc("logitboost"), {"kind": "adversarial", "beta": 0.05}],
    "beta 0.5": [*_lpsc("logitboost"), {"kind": "adversarial", "beta": 0.5}],
    "beta 2": [*_lpsc("logitboost"), {"kind": "adversarial", "beta": 2.0}],
    "marvell 4": [{"kind": "marvell", "s": 4.0}],
}
"""Defenses of the credit default jobs, by the name that stands on the page."""
_UTILITY = ("labels, joined", "logitboost", "logitboost, validation", "offset", "offset, validation")
_SLOWER = "rate .003"
_HEADS: dict[str, dict[str, Any]] = {
    "rate .001": {"learning_rate": 0.001},
    _SLOWER: {"learning_rate": 0.003},
    "rate .03": {"learning_rate": 0.03},
    "width 8": {"width": 8},
    "width 256": {"width": 256},
}
"""Other heads of ``adversarial``, whose learning rate is .01 and whose width is 64."""
for _title, _head in _HEADS.items():
    for _beta in (0.05, 0.5, 2.0) if _title == _SLOWER else (0.5, 2.0):
        _CHAINS[f"{_title}, beta {_beta:g}"] = [
            *_lpsc("logitboost"),
            {"kind": "adversarial", "beta": _beta, **_head},
        ]
_CODINGS = tuple(name for name in _CHAINS if "rate" not in name and "width" not in name)


def _job(data: dict[str, Any], parties: Any, model: Mapping[str, Any], seed: int, **others: Any) -> dict[str, Any]:
    return {
        "data": {"test_size": 0.2, "validation_size": 0.1, **data},
        "parties": parties,
        "model": dict(model),
        "leakage": {"privacy": False, "upper_bound": False},
        "run": {"seeds": [seed]},
        **others,
    }


def credit(seed: int, columns: int, model: Mapping[str, Any], chains: Sequence[Chain], attacks: Any) -> dict[str, Any]:
    """Return the job on credit default: 13,500 training rows are aligned, 8,100 are the active party's alone."""
    parties = {
        "active": list(_ACTIVE[:columns]),
        **{name: list(_OTHERS[2 * at : 2 * at + 2]) for at, name in enumerate(PASSIVE)},
    }
    data = {"table": "credit_default", "aligned": 0.625}
    defenses = [{"chain": chain} for chain in chains]
    return _job(data, parties, model, seed, defense=defenses, attack=[{**each, "party": "passive"} for each in attacks])


def noisy(seed: int) -> dict[str, Any]:
    """Return the job with differentially private labels, which leave no use for unaligned rows."""
    made = credit(seed, 11, _CODED, [[{"kind": "randomized-response", "epsilon": 1.0}]], ({"kind": "direct"},))
    made["data"]["aligned"] = 1.0
    return made


def gradients(seed: int) -> dict[str, Any]:
    """Return the job of three epochs whose returned gradients are attacked in more ways, also by all together."""
    chains: list[Chain] = [
        *(_CHAINS[name] for name in ("logitboost", "beta 2", "marvell 4")),
        [{"kind": "distance-correlation", "weight": 1.0}],
    ]
    made = credit(seed, 11, {**_CODED, "epochs": 3}, chains, ({"kind": "direct"}, {"kind": "gradient-modes"}))
    made["attack"].append({"kind": "direct", "collude": list(PASSIVE)})
    return made


def criteo(seed: int) -> dict[str, Any]:
    """Return the job on the Criteo sample: seven parties, DeepFM, half of the training rows aligned."""
    parties = {name: list(_CRITEO[at::7]) for at, name in enumerate(("active", *PASSIVE))}
    data = {"table": "criteo_8k", "aligned": 0.5, "categories": "hashed"}
    chains = [_lpsc(coding) for coding in ("labels", "logitboost", "offset", "l2")]
    attacks = [{**each, "party": "passive"} for each in _EMBEDDINGS]
    return _job(data, parties, _DEEPFM, seed, defense=[{"chain": each} for each in chains], attack=attacks)


def bank(seed: int, width: int) -> dict[str, Any]:
    """Return the job in which the active party infers a column of another one from embeddings of some width."""
    parties = {
        "active": ["age", "job", "poutcome", "pdays"],
        "p2": ["housing", "marital", "education", "default"],
        "p3": ["balance", "loan", "contact", "day"],
        "p4": ["month", "duration", "campaign", "previous"],
    }
    model = {**_NET, "top": True, "top_model": "linear", "loss": "auto", "epochs": 5, "embedding": width}
    attack = {"kind": "inversion", "column": "p2.housing", "auxiliary": 1000, "party": "active"}
    return _job({"table": "bank_marketing"}, parties, model, seed, attack=[attack])


def jobs(seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield part, name and content of each job of a seed."""
    yield "credit", "active bottom", credit(seed, 11, _NET, (), _EMBEDDINGS)
    yield "credit", "codings", credit(seed, 11, _CODED, [_CHAINS[name] for name in _CODINGS], _EMBEDDINGS + _GRADIENTS)
    yield "credit", "noisy labels", noisy(seed)
    for width in (1, 4, 32):
        yield "bank", f"width {width}", bank(seed, width)
    for count in (0, 1, 3, 6):
        chains = [_lpsc("offset")] if count else []
        yield "columns", f"columns {count}", credit(seed, count, _CODED, chains, _EMBEDDINGS[:1])
    yield "criteo", "criteo", criteo(seed)
    yield "gradients", "gradients", gradients(seed)
    yield "utility", "utility, active bottom", credit(seed, 11, _NET, (), ())
    yield "utility", "utility", credit(seed, 11, _CODED, [_CHAINS[name] for name in _UTILITY], ())
    heads = [_CHAINS[name] for name in _CHAINS if name not in _CODINGS]
    yield "heads", "heads", credit(seed, 11, _CODED, heads, _EMBEDDINGS[:1])
    steps = ("beta 0.05", "beta 0.5", "beta 2")
    betas = [_CHAINS[name] for name in ("logitboost", *steps, *(f"{_SLOWER}, {step}" for step in steps))]
    fewer = credit(seed, 11, _CODED, betas, _EMBEDDINGS[:1])
    fewer["data"]["aligned"] = 0.28
    yield "fewer", "heads, fewer rows", fewer


def named(chain: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of a chain on the page."""
    fitting = [
        name
        for name, parts in _CHAINS.items()
        if len(parts) == len(chain)
        and all(part.items() <= dict(found).items() for part, found in zip(parts, chain, strict=True))
    ]
    if fitting:
        return max(fitting, key=lambda name: sum(map(len, _CHAINS[name])))
    return "+".join(str(each["kind"]) for each in chain) or "none"


def attack_name(attack: Mapping[str, Any]) -> str:
    """Return an attack in a few words."""
    words = [str(attack["kind"])]
    if attack.get("of") == "gradients":
        words.append("gradients")
    if attack.get("epochs", 1) != 1:
        words.append(f"{attack['epochs']} epochs")
    return " ".join(words)


Figures = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Job, defense, figure and seed: a number."""


def scored(training: FinishedTraining, seed: int) -> dict[str, float]:
    """Return the figures of one training; leakage is the mean over the attackers."""
    truth, outside = training.data.train_values, training.data.test_values
    found: dict[str, list[float]] = {"AUC": [float(roc_auc_score(outside, training.ended.margins[:, -1]))]}
    for party, given in attackers_of(training.job, training.job.attacks, directed=directed_parties(training.data)):
        attack, view = make_attack(given), training.view(party)
        name, own = attack_name(given.as_dict()), training.attacker(party, attack)
        if len(view.members) > 1:
            name = f"{name}, together"
        if attack.target == "columns":
            result = attack_and_score(attack, view, training.data, seed=seed, own=own)
            found.setdefault(f"{name}, auc", []).append(float(str(result.leakage["auc"])))
            continue
        guess = run_attack(attack, view, own, AuxiliaryKnowledge(classes=2), seed=seed)
        area = float(roc_auc_score(truth, guess.scores[:, 1]))
        found.setdefault(f"{name}, auc", []).append(area)
        found.setdefault(f"{name}, either", []).append(max(area, 1 - area))
        found.setdefault(f"{name}, accuracy", []).append(float(np.mean(guess.values == truth)))
        if guess.outside is not None:
            area = float(roc_auc_score(outside, guess.outside.scores[:, 1]))
            found.setdefault(f"{name}, test rows", []).append(max(area, 1 - area))
    return {figure: float(np.mean(values)) for figure, values in found.items()}


def measured(seed: int, parts: Sequence[str], found: Figures, done: Callable[[], None]) -> None:
    """Measure what is not there of one seed; ``done`` is called after each training."""
    for part, name, made in jobs(seed):
        if parts and part not in parts:
            continue
        job = with_defaults(parse_job(made))
        private = {party.name: PrivateSeed(sha256(f"{party.name} {seed}".encode()).digest()) for party in job.parties}
        data = load_dataset(job, seed, private=private)
        for variant in job.variants():
            figures = found.setdefault(name, {}).setdefault(named(variant.as_list()), {})
            if str(seed) in figures.get("AUC", {}):
                continue
            engine = make_engine(job.encryption)
            for figure, value in scored(run_training(job, data, variant, engine, None, seed=seed), seed).items():
                figures.setdefault(figure, {})[str(seed)] = round(value, 4)
            engine.close()
            done()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="0: write the page of --json alone")
    parser.add_argument("--part", action="append", default=[], choices=PARTS)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    found: Figures = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
    for seed in range(1, chosen.seeds + 1):
        measured(seed, chosen.part, found, lambda: chosen.json.write_text(json.dumps(found, indent=1) + "\n") and None)
    if chosen.page:
        chosen.page.write_text(page_of(found))


if __name__ == "__main__":
    main()
