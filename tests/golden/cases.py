"""The jobs of the golden record: what is run, and which values of it are kept.

Of an audit: the rows of ``results.jsonl`` without times and versions; of ``run.json`` what was sent by type, what each
party could see, what defenses and attacks tell of themselves, and the readings of the leakage meter; the digest of each
view. Of a training: utility, the watched figures, and predictions of some rows. Of a run whose protection is seeded,
which audits and trainings refuse: margins of the test rows, counts of operations, digests and traffic.

What is exact and what is not. Trees grow on sums of whole numbers (gradients are rounded to fixed point), so that
views, models and margins of trees are equal on all machines, unless a gradient lies within a rounding error of the
middle between two of these numbers. Logarithms and exponentials of numpy and of the C library have one implementation
for each kind of processor, which differ in the last digit: metrics and probabilities have a tolerance of 1e-12. Matrix
products of torch add up in an order that depends on the processor: what networks give has a tolerance of 1e-7, and of
their views not the digest is kept, which would change with the last digit of one number, but how many messages of which
size there were. These networks learn in float64, a few steps only, so that the tolerance stays far below what any
change of the algorithm would do. Noise on returned gradients is keyed by the gradients' bytes: a last digit that
differs draws all noise anew, so that no tolerance could help. That job runs in a process of its own, in which torch and
its matrix library compute alike on all x86-64 processors with AVX2, which they only do where they are told so before
they start.

How often a kernel of encryption multiplies ciphertexts depends on which kernel the processor can run: additions are not
kept of an encrypted run.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import product
from compare import Tolerance
from made_tables import PEOPLE, read_columns, read_predictions, write_tables

__all__ = ["CASES", "Case", "found_values"]

HERE = Path(__file__).resolve().parent
JOBS = HERE / "jobs"
_VALUES = "values.json"

_ALIKE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""What makes torch compute alike on all processors of a family, where it stands in the environment of its process."""

_LAST_DIGIT = "logarithms and exponentials differ in the last digit from processor to processor"
_PRODUCTS = "matrix products of torch add up in an order that depends on the processor"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job, and how its values are found.

    Attributes:
        about: what it is there for.
        find: called with a folder that has the tables and all job files.
        tolerances: of its values.
        environment: of the process that it needs for itself; empty where it needs none.
    """

    about: str
    find: Callable[[Path], Any]
    tolerances: tuple[Tolerance, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def found_values(name: str, folder: Path) -> Any:
    """Run a case in an empty folder, and return its values."""
    case = CASES[name]
    if case.environment and any(os.environ.get(key) != value for key, value in case.environment.items()):
        path = os.pathsep.join(each for each in sys.path if each)
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | case.environment
        subprocess.run([sys.executable, __file__, name, str(folder)], env=environment, check=True)
        return json.loads((folder / _VALUES).read_text(encoding="utf-8"))
    write_tables(folder)
    for path in JOBS.glob("*.toml"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return case.find(folder)


# -- what is kept ----------------------------------------------------------------------------------------------------


def audited(job: Path, out: Path, *, views: bool = True) -> dict[str, Any]:
    """Audit a job, and return what is kept of it."""
    product.run_audit(job, out)
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        del row["versions"], row["cost"]["seconds"]
        row.pop("budgets", None)  # words about the defense, which the row names
    common = {key: rows[0][key] for key in ("dataset", "engine", "model")}
    for row in rows:
        assert {key: row.pop(key) for key in common} == common
    runs = {str(path.parent.relative_to(out / "runs")): _run(path) for path in sorted(out.glob("runs/*/*/run.json"))}
    for name, run in runs.items():
        folders = sorted((out / "runs" / name).glob("*/view"))
        run["views"] = {path.parent.name: _view(path, digest=views) for path in folders}
    return {"common": common, "rows": rows, "runs": runs}


def _run(path: Path) -> dict[str, Any]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    for attack in stored["attacks"]:
        del attack["seconds"]
    kept = ("applied", "attacks", "deviation", "meter", "seen", "test_rows", "wire")
    return {key: stored[key] for key in kept} | {"key": stored["key"]["insecure"]}


def _view(folder: Path, *, digest: bool) -> Any:
    if digest:
        return product.view_digest(folder)
    return {f"{way} {kind}": numbers for (way, kind), numbers in sorted(product.view_counts(folder).items())}


def trained(job: Path, out: Path, table: Path, **more: Any) -> dict[str, Any]:
    """Train a variant, and return utility, watched figures, and predictions of a table's rows."""
    found = product.run_training(job, out, **more)
    return found | {"predictions": predicted(out, table)}


def predicted(run: Path, table: Path, mode: str = "one-round") -> dict[str, list[Any]]:
    """Return a trained model's predictions without the ids."""
    out = run.parent / f"{run.name}-{mode}.parquet"
    product.run_prediction(run, table, out, mode=mode)
    return {name: values for name, values in read_predictions(out).items() if name != "id"}


def rehearsed(job: Path, folder: Path, seed: int, names: Iterable[str], *, views: bool = True) -> dict[str, Any]:
    """Train variants with seeded protection, and return what is kept of each."""
    found: dict[str, Any] = {}
    for variant in names:
        run = product.run_rehearsal(job, folder / variant, seed=seed, variant=variant)
        found[variant] = {
            "margins": run.margins.tolist(),
            "counted": run.counted,
            "fingerprint": run.fingerprint,
            "sent": run.sent,
            "views": {party: _view(folder / variant / party / "view", digest=views) for party in run.parties},
        }
    return found


# -- the cases -------------------------------------------------------------------------------------------------------


def _trees(folder: Path) -> Any:
    job, some = folder / "trees.toml", folder / "cancer-some.csv"
    found = {
        "audit": audited(job, folder / "audit"),
        "training": trained(job, folder / "m", some, seed=1, variant="none"),
    }
    assert predicted(folder / "m", some, "levels") == found["training"]["predictions"]
    again = trained(job, folder / "more", some, seed=1, variant="none", earlier=folder / "m")
    return found | {"going on": again, "offline": _offline(folder / "audit"), "explained": _explained(folder, some)}


def _offline(audit: Path) -> Any:
    """Attack a stored view by the command line, and score the guess."""
    data, view = audit / "data" / "1", audit / "runs" / "none" / "1" / "telco" / "view"
    guess = audit.parent / "guess.parquet"
    options = ["--features", data / "telco.parquet", "--classes", 2, "--seed", 1, "--out", guess]
    product.run_command("attack", view, "--attack", "id2graph", *options)
    scored = json.loads(product.run_command("score", guess, "--truth", data / "truth.parquet", "--json"))
    return {"guess": read_columns(guess)["guess"], "scored": scored}


def _explained(folder: Path, table: Path) -> Any:
    """Return importance, SHAP values and the exported model of the training in ``m``."""
    shap, export = folder / "shap.parquet", folder / "export.json"
    product.run_command("explain", "rows", folder / "m", "--table", table, "--out", shap, "--background-rows", 10)
    product.run_command("export", folder / "m", "--out", export, "--consent", "telco")
    importance = json.loads(product.run_command("explain", "importance", folder / "m", "--json"))
    columns = {name: values[:12] for name, values in read_columns(shap).items()}
    trees = json.loads(export.read_text(encoding="utf-8"))["learner"]["gradient_booster"]["model"]["trees"]
    kept = ("split_indices", "split_conditions", "left_children", "right_children", "default_left", "base_weights")
    return {"importance": importance, "rows": columns, "export": [{key: tree[key] for key in kept} for tree in trees]}


def _encrypted(folder: Path) -> Any:
    job = folder / "encrypted.toml"
    encrypted = rehearsed(job, folder / "paillier", 3, product.variants(job))
    text = job.read_text(encoding="utf-8").replace('"paillier"\nbits = 512', '"plain"')
    job.write_text(text, encoding="utf-8")
    plain = rehearsed(job, folder / "plain", 3, ["none"])["none"]
    assert plain["margins"] == encrypted["none"]["margins"]
    for run in encrypted.values():
        del run["counted"]["additions"]
    return encrypted


_GROWTH = {
    "bins 4": "bins = 4",
    "candidates of each node": 'candidates = "node"\nbins = 8',
    "every value": 'candidates = "all"',
    "few leaves": "max_leaves = 4\ngamma = 0.5\nmin_rows = 5",
    "small steps": "max_delta_step = 0.3\nbase_score = 0.4\nreg_lambda = 3.0",
    "drawn rows": "row_fraction = 0.5\nfeature_fraction = 0.5",
    "in turns": 'mode = "mixed"',
    "weighted classes": "scale_pos_weight = 2.5",
    "forest of bags": 'kind = "forest"\nrow_fraction = 1.0\nreplace = true',
}


def _growth(folder: Path) -> Any:
    found, text = {}, (folder / "growth.toml").read_text(encoding="utf-8")
    for number, (name, lines) in enumerate(_GROWTH.items()):
        job = folder / f"growth-{number}.toml"
        job.write_text(text.replace("[model]\n", f"[model]\n{lines}\n"), encoding="utf-8")
        (run,) = rehearsed(job, folder / f"growth-{number}-run", 13, ["none"]).values()
        margins = np.array(run["margins"])
        bits = hashlib.sha256(margins.tobytes()).hexdigest()
        found[name] = {"digest of margins": bits, "first margins": margins[:5].tolist(), "views": run["views"]}
    return found


def _audit_and_training(name: str, table: str, seed: int, *, views: bool = True) -> Callable[[Path], Any]:
    def find(folder: Path) -> Any:
        job = folder / f"{name}.toml"
        return {
            "audit": audited(job, folder / "audit", views=views),
            "training": trained(job, folder / "m", folder / f"{table}-some.csv", seed=seed, variant="none"),
        }

    return find


def _counts(folder: Path) -> Any:
    job, some = folder / "counts.toml", folder / "counts-some.csv"
    found = {"poisson": trained(job, folder / "poisson", some, seed=1)}
    text = job.read_text(encoding="utf-8").replace('"count:poisson"', '"reg:tweedie"\ntweedie_variance_power = 1.3')
    job.write_text(text, encoding="utf-8")
    return found | {"tweedie": trained(job, folder / "tweedie", some, seed=1)}


def _people(folder: Path) -> Any:
    job, run = folder / "people.toml", folder / "m"
    found = {"audit": audited(job, folder / "audit")}
    utility = product.run_training(job, run, seed=8, variant="none")
    out = folder / "predictions.parquet"
    product.run_prediction(run, {party: folder / f"{party}.csv" for party in PEOPLE}, out)
    some = {name: values[::5] for name, values in read_predictions(out).items()}
    return found | {"training": utility | {"predictions": some}}


def _resumed(folder: Path) -> Any:
    """Train, each party in its own folder; cut off twice, and gone on with from checkpoints."""
    write_people_jobs(folder)
    tables = {party: folder / f"{party}.csv" for party in PEOPLE}
    cuts = {1: ("bank", 12), 2: ("shop", 6)}
    records = product.run_parties(product.Company(folder, PEOPLE, cuts), seed=8, variant="id-lmid-xi-0.5")
    out = folder / "predictions.parquet"
    product.run_parties_prediction(product.Company(folder, PEOPLE), tables, out)
    return {
        "parties": records,
        "views": {party: product.view_digest(folder / f"run-{party}" / party / "view") for party in PEOPLE},
        "predictions": {name: values[::5] for name, values in read_predictions(out).items()},
    }


def write_people_jobs(folder: Path) -> None:
    """Write a job file for each party of ``people.toml``: its own table, and those of the others elsewhere."""
    own = {
        "bank": 'table = "bank.csv"\nlabel = "level"\nweight = "weight"\nrole = "active"\n',
        "telco": 'table = "telco.csv"\nmonotone = {calls = 1}\n',
        "shop": 'table = "shop.csv"\n',
    }
    for party in PEOPLE:
        sections = [f"[parties.{name}]\n" + (own[name] if name == party else "") for name in PEOPLE]
        if party != "bank":
            sections[0] += 'role = "active"\n'
        defense = '[[defense]]\nkind = "id-lmid"\nxi = 0.5\n' if party == "bank" else ""
        model = "[model]\ntrees = 4\ndepth = 3\nmax_leaves = 6\nmax_cat_threshold = 3\ngamma = 0.01\n"
        rest = '[encryption]\nengine = "plain"\ninsecure = true\n[network]\naddress = "127.0.0.1:7443"\n'
        text = "\n".join(['[data]\nid = "id"\n', *sections, model, defense, rest])
        (folder / f"{party}.toml").write_text(text, encoding="utf-8")


def _cut_off(folder: Path) -> Any:
    """Cut a run off at each party, and let it go on: the end of a run that nobody disturbed."""
    calm = product.ended_run(folder / "calm")
    for party, at in (("active", 45), ("left", 20), ("right", 30)):
        product.unfinished_run(folder / party, party, at)
        found = product.ended_run(folder / party)
        assert {**found, "attempts": 0, "passed": 0} == {**calm, "attempts": 0, "passed": 0}
    return calm


def _noisy_labels(folder: Path) -> Any:
    job = folder / "noisy-labels.toml"
    return rehearsed(job, folder / "runs", 9, [name for name in product.variants(job) if name != "none"])


def _noisy_gradients(folder: Path) -> Any:
    job = folder / "noisy-gradients.toml"
    return rehearsed(job, folder / "runs", 12, product.variants(job), views=False)


def _reference(folder: Path) -> Any:
    return {"audit": audited(folder / "reference.toml", folder / "audit")}


def _estimators(folder: Path) -> Any:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

    cancer, wine, diabetes = load_breast_cancer(), load_wine(), load_diabetes()
    open_ = {"engine": "plain", "insecure": True, "random_state": 1}
    few = {"n_estimators": 3, "max_depth": 3, **open_}
    nets = {"epochs": 2, "width": 6, "batch_size": 64, "dtype": "float64", "random_state": 1}
    found: dict[str, Any] = {}
    for name, data, columns, parameters in (
        ("SecureBoostClassifier", cancer, 12, few),
        ("SecureBoostRegressor", diabetes, 8, few),
        ("FederatedForestClassifier", wine, 10, few),
        ("FederatedForestRegressor", diabetes, 8, few),
        ("SplitNetClassifier", cancer, 12, nets),
        ("SplitNetRegressor", diabetes, 8, nets),
    ):
        x, y = data.data[:200:, :columns], data.target[:200]
        model = product.estimator(name, **parameters).fit(x, y)
        predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        found[name] = {"predictions": predict(x[::10]).tolist()}
        if "Net" not in name:
            found[name]["views"] = {party: view.digest() for party, view in model.views_.items()}
    return found


def _digits(*values: str) -> tuple[Tolerance, ...]:
    return tuple(Tolerance(values=each, relative=1e-12, absolute=1e-15, why=_LAST_DIGIT) for each in values)


def _products(*values: str) -> tuple[Tolerance, ...]:
    return tuple(Tolerance(values=each, relative=1e-7, absolute=1e-9, why=_PRODUCTS) for each in values)


_AUDIT = _digits(
    "audit/rows/*/leakage/*",
    "audit/rows/*/utility/*",
    "audit/runs/*/meter/*",
    "audit/runs/*/seen/*",
    "audit/runs/*/applied/*",
    "audit/runs/*/notes/log odds*",
)
_TRAINING = _digits("training/utility/*", "training/watched/*", "training/predictions/probability*")

CASES = {
    "trees": Case(
        about="boosted trees: all defenses without noise, all attacks on trees, prediction, a model gone on with, "
        "a stored view attacked by the command line, explanation and export",
        find=_trees,
        tolerances=(
            *_AUDIT,
            *_TRAINING,
            *_digits("going on/utility/*", "going on/watched/*", "going on/predictions/probability*"),
            *_digits("offline/scored/*"),
        ),
    ),
    "encrypted": Case(about="three parties, a short key, seeded protection, sampled rows", find=_encrypted),
    "growth": Case(about="what else can be said of how trees grow, one thing at a time", find=_growth),
    "forest": Case(
        about="a random forest of three parties and three classes, drawn rows and columns",
        find=_audit_and_training("forest", "wine", 4),
        tolerances=(*_AUDIT, *_TRAINING),
    ),
    "classes": Case(
        about="three classes, a tree for each, in layers; a hidden purity, and a budget of leakage",
        find=_audit_and_training("classes", "wine", 5),
        tolerances=(*_AUDIT, *_TRAINING),
    ),
    "quantities": Case(
        about="a regression with directions and a watched error",
        find=_audit_and_training("quantities", "diabetes", 6),
        tolerances=(*_AUDIT, *_TRAINING),
    ),
    "counts": Case(
        about="counts: Poisson and Tweedie",
        find=_counts,
        tolerances=_digits("*/utility/*", "*/predictions/prediction*"),
    ),
    "people": Case(
        about="three parties with tables of their own: missing values, categories, weights",
        find=_people,
        tolerances=(*_AUDIT, *_TRAINING),
    ),
    "resumed": Case(
        about="the same between three folders, cut off twice and gone on with",
        find=_resumed,
        tolerances=_digits("parties/*/utility/*", "predictions/probability*"),
    ),
    "cut off": Case(
        about="a run that is cut off, by its views and margins", find=_cut_off, tolerances=_digits("history/*")
    ),
    "noisy labels": Case(about="label privacy and what repairs it, under seeded noise", find=_noisy_labels),
    "reference": Case(about="the published splits, the most telling columns", find=_reference, tolerances=_AUDIT),
    "net with a top": Case(
        about="a split network of three parties with a top model",
        find=_audit_and_training("net-top", "cancer", 10, views=False),
        tolerances=_products("*"),
    ),
    "net of sums": Case(
        about="a split network without a top model; an attacker that deviates; compressed gradients",
        find=_audit_and_training("net-sum", "wine", 11, views=False),
        tolerances=_products("*"),
    ),
    "noisy gradients": Case(
        about="defenses of returned gradients, under seeded noise",
        find=_noisy_gradients,
        tolerances=_products("*"),
        environment=_ALIKE,
    ),
    "estimators": Case(
        about="predictions of all estimators",
        find=_estimators,
        tolerances=(*_products("SplitNet*"), *_digits("*/predictions/*")),
    ),
}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    to = Path(sys.argv[2])
    (to / _VALUES).write_text(json.dumps(found_values(sys.argv[1], to)), encoding="utf-8")
