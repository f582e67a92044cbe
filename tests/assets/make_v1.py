"""Write ``v1/``: what the product left on disk when the golden record was made. ``v1/README.md`` says what is there.

    python tests/assets/make_v1.py

Never run it again for the same folder: the files prove that what was stored then can still be opened. Where a format
changes on purpose, write a folder of another name beside it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "golden"), str(HERE.parent)]

TREES = """
[data]
table = "table.csv"
label = "label"

[parties]
active = 0.4
telco = 0.6

[model]
trees = 3
depth = 3
bins = 8

[encryption]
engine = "plain"
insecure = true

[[defense]]
kind = "id-lmid"
xi = 0.2

[[defense]]
kind = "local-trees"

[[attack]]
kind = "id2graph"

[[attack]]
kind = "clustering"
"""

NET = """
[data]
table = "table.csv"
label = "label"

[parties]
active = 0.4
telco = 0.6

[model]
kind = "splitnn"
epochs = 2
batch_size = 32
width = 4
embedding = 2
dtype = "float64"
"""


def main() -> None:
    """Write everything, and what must come of it."""
    import product
    import pyarrow as pa
    import pyarrow.csv
    from cases import write_people_jobs
    from compare import Tolerance, write_values
    from made_tables import PEOPLE, read_columns, read_predictions, write_tables
    from sklearn.datasets import load_wine

    target = HERE / "v1"
    if target.exists():
        raise SystemExit(f"{target} is there already, and is not to be written anew")
    target.mkdir()
    expected: dict[str, Any] = {}

    made = target / "made"
    made.mkdir()
    write_tables(made)
    whole = pa.csv.read_csv(made / "cancer.csv").select([*(f"x{at:02}" for at in range(8)), "label"])
    pa.csv.write_csv(whole.slice(0, 120), target / "table.csv")
    (target / "trees.toml").write_text(TREES.lstrip(), encoding="utf-8")
    (target / "net.toml").write_text(NET.lstrip(), encoding="utf-8")

    audit = target / "audit"
    product.run_command("audit", target / "trees.toml", "--out", audit, "--quiet")
    (audit / "report.html").unlink(missing_ok=True)
    view, data = audit / "runs" / "none" / "1" / "telco" / "view", audit / "data" / "1"
    options = ["--features", data / "telco.parquet", "--attack", "id2graph", "--classes", 2, "--seed", 1]
    product.run_command("attack", view, *options, "--out", made / "guess.parquet")
    scored = product.run_command("score", made / "guess.parquet", "--truth", data / "truth.parquet", "--json")
    views = sorted(audit.glob("runs/*/1/*/view"))
    expected["audit"] = {
        "views": {str(path.relative_to(audit)): product.view_digest(path) for path in views},
        "guess": read_columns(made / "guess.parquet")["guess"],
        "scored": json.loads(scored),
    }

    for name, job in (("model", "trees"), ("net", "net")):
        product.run_command(
            "train",
            target / f"{job}.toml",
            "--out",
            target / name,
            "--quiet",
            *["--defense", "none"] * (name == "model"),
        )
        out = made / f"{name}.parquet"
        product.run_command("predict", target / name, "--table", target / "table.csv", "--out", out)
        expected[name] = {key: values for key, values in read_predictions(out).items() if key != "id"}

    company = target / "company"
    company.mkdir()
    for party in PEOPLE:
        shutil.copy(made / f"{party}.csv", company)
    write_people_jobs(company)
    cut = product.Company(company, PEOPLE, {1: ("telco", 5)})
    product.run_parties(cut, seed=8, variant="id-lmid-xi-0.5")
    product.run_parties_prediction(
        product.Company(company, PEOPLE),
        {party: company / f"{party}.csv" for party in PEOPLE},
        made / "company.parquet",
    )
    expected["company"] = {
        "views": {party: product.view_digest(company / f"run-{party}" / party / "view") for party in PEOPLE},
        "predictions": read_predictions(made / "company.parquet"),
    }

    product.run_command(
        "study", "options", "--datasets", "breast_cancer", "--seeds", 1, "--out", target / "study", "-q"
    )
    (target / "study" / "study.html").unlink()
    for folder in (target / "study").rglob("data"):
        shutil.rmtree(folder)

    product.unfinished_run(target / "unfinished", "left", 24)
    shutil.copytree(target / "unfinished", made / "unfinished")
    expected["unfinished"] = product.ended_run(made / "unfinished")

    wine = load_wine()
    model = product.estimator(
        "SecureBoostClassifier", n_estimators=2, max_depth=3, engine="plain", insecure=True, random_state=1
    )
    model.fit(wine.data[:, :8], wine.target).save(target / "estimator")
    expected["estimator"] = {"probabilities": model.predict_proba(wine.data[::9, :8]).tolist()}

    shutil.rmtree(made)
    for job in target.rglob("job.toml"):  # a stored job names its tables by their absolute paths
        text = job.read_text(encoding="utf-8")
        job.write_text(text.replace(str(target), "/stored"), encoding="utf-8")
    why = "logarithms, exponentials and matrix products differ in the last digits from processor to processor"
    near = [
        Tolerance(values=each, relative=relative, absolute=1e-12, why=why)
        for each, relative in (
            ("net/*", 1e-7),
            ("audit/scored/*", 1e-12),
            ("*/probability*", 1e-12),
            ("*/probabilities/*", 1e-12),
            ("unfinished/history/*", 1e-12),
        )
    ]
    write_values(target / "expected.json", "what comes of the files that lie here", expected, near)


if __name__ == "__main__":
    main()
