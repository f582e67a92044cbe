"""The study of ID2Graph's options: what its paper leaves to future work, beside the attack as it is printed.

Trained as in Table 2 of the paper. Each option changes one thing, so that its differences seed by seed are its own. The
weights of own columns are ours: they were not chosen on other data than these, so that what they win here is an upper
bound of what they would win elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labelward.evaluate.studies.id2graph import ID2GRAPH
from labelward.evaluate.studies.plan import Column, Part, Study
from labelward.job import ComponentSpec

__all__ = ["OPTIONS"]

_NAMES = ("breast_cancer", "obesity", "phishing", "digits")
_CHANGES: dict[str, dict[str, Any]] = {
    "own columns .1": {"attributes": 0.1},
    "own columns 1": {"attributes": 1.0},
    "depth": {"tree_weights": "depth"},
    "size": {"tree_weights": "size"},
    "purity": {"tree_weights": "purity"},
    "classes unknown: communities": {"clusters": "communities"},
    "classes unknown: silhouette": {"clusters": "silhouette"},
}

OPTIONS = Study(
    name="options",
    title="ID2Graph: what its options bring",
    tables=tuple(replace(table, title=table.name) for table in ID2GRAPH.tables if table.name in _NAMES),
    models=ID2GRAPH.models,
    columns=(
        Column(title="ID2Graph", attack=ComponentSpec("id2graph")),
        *(Column(title=name, attack=ComponentSpec("id2graph", change)) for name, change in _CHANGES.items()),
    ),
    settings=tuple(setting for setting in ID2GRAPH.settings if setting.name == "default"),
    parts=(
        Part(
            name="options",
            title="Options of ID2Graph beside the attack of the paper",
            form="rivals",
            settings=("default",),
            columns=("ID2Graph", *_CHANGES),
            about="Bold in the first column: the attack of the paper. Elsewhere: what the option adds to it, seed by "
            "seed. Own columns: rows that are alike in the attacker's columns are joined, too, with a share of the "
            "trees' weight. Depth, size, purity: leaves weigh by their depth, by one for each row in them in place of "
            "one for each pair, or by how far the other trees agree with them. Classes unknown: the number of clusters "
            "is read from the communities or from silhouettes, where the attack of the paper is told it.",
        ),
    ),
)
