"""Ablations of ID2Graph: options that its paper leaves to future work, compared with the attack as printed.

Trained as for Table 2 of the paper. Each option changes one thing, so its differences seed by seed are its own. The
weights of the attacker's columns were chosen on these same datasets: what they gain here bounds their gain elsewhere.
"""

from dataclasses import replace
from typing import Any

from labelward.job import ComponentSpec
from labelward.studies.id2graph import ID2GRAPH
from labelward.studies.spec import MetricColumn, Study, StudyPart

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

ID2GRAPH_ABLATIONS = Study(
    name="options",
    title="ID2Graph: ablation of its options",
    datasets=tuple(replace(each, title=each.name) for each in ID2GRAPH.datasets if each.name in _NAMES),
    models=ID2GRAPH.models,
    columns=(
        MetricColumn(title="ID2Graph", attack=ComponentSpec("id2graph")),
        *(MetricColumn(title=name, attack=ComponentSpec("id2graph", change)) for name, change in _CHANGES.items()),
    ),
    settings=tuple(setting for setting in ID2GRAPH.settings if setting.name == "default"),
    parts=(
        StudyPart(
            name="options",
            title="Options of ID2Graph compared with the attack of the paper",
            form="ablation",
            settings=("default",),
            columns=("ID2Graph", *_CHANGES),
            about="First column: the attack of the paper. Other columns: the option's difference to it, seed by seed. "
            "Own columns: the graph also connects rows that are similar in the attacker's columns, with a share of the "
            "trees' weight. Depth, size, purity: leaves are weighted by their depth, by one per row instead of one per "
            "pair, or by how far other trees agree with them. Classes unknown: the number of clusters is estimated "
            "from communities or silhouettes, whereas the attack of the paper knows it.",
        ),
    ),
)
