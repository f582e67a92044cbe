"""Make the tables of the two folders, from measurements that scikit-learn ships: ``python tables.py FOLDER``.

The rows stand for customers whom both companies have. The label is whether a tumor is benign (breast cancer, Wisconsin;
CC BY 4.0); nothing here is about banks or telephones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from sklearn.datasets import load_breast_cancer

TRAINED_ON = 449  # of 569 rows; the others are the new customers, whose labels nobody has yet


def write_tables(folder: Path) -> None:
    """Write ``customers.csv`` and ``new.csv`` of each company; each company has the rows in its own order."""
    data = load_breast_cancer()
    ids = np.array([f"C{100_000 + row * 7919 % 900_000}" for row in range(len(data.target))])
    names = [name.replace(" ", "_") for name in data.feature_names]
    columns = {"bank": range(10, 20), "telco": range(20, 30)}  # the ten "error" columns, and the ten "worst" ones
    for company, held in columns.items():
        for file, rows in (("customers.csv", range(TRAINED_ON)), ("new.csv", range(TRAINED_ON, len(ids)))):
            order = np.array(sorted(rows, key=ids.__getitem__) if company == "telco" else rows)
            table = {"customer": ids[order]} | {names[column]: data.data[order, column] for column in held}
            if company == "bank" and file == "customers.csv":
                table["good"] = data.target[order]
            (folder / company).mkdir(parents=True, exist_ok=True)
            pa.csv.write_csv(pa.table(table), folder / company / file)


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
