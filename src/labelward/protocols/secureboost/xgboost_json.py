"""A joined model in XGBoost's JSON format, as version 3.2 reads it.

Differences between the two formats, and how they are bridged:

- Left is x ≤ t here, and x < c there, with c and x in float32. Thresholds are values of the training rows, which need
  not be float32, and such a row must go left there too. So c is the least float32 above t as float32 rounds it: what
  goes left here goes left there, and what goes right here does so too, unless float32 does not tell it from t.
- The categories of an XGBoost split go right, and those not in its list left. So both children change places, and with
  them the direction of missing values. XGBoost has no unknown categories: give them as missing.
- Leaves and sums are float32 there: predictions are the same up to that.
- XGBoost 3.2 does not train trees with vector leaves on categories, and few tools read them. A tree with a weight for
  each output is written as one tree for each, of the same shape.
- A forest is written as boosted trees, their leaves divided by the number of trees; parallel trees of one round would
  predict the same, but the ``shap`` package refuses them. Class shares are the outputs of a squared error with several
  targets, so that ``predict`` gives the shares.
- Where XGBoost transforms ``base_score`` (logistic, Poisson, Tweedie), float32 would spoil large margins: there
  ``base_score`` stands for a margin of 0 and the first tree's leaves hold the base.
- The power of Tweedie's variance does not affect predictions, and is not exported: XGBoost's default is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, unknown_name
from labelward.kernels.node_rows import children
from labelward.messages.explain import ExportRecords
from labelward.protocols.secureboost.share import ModelShare, TreeShape

_NO_PARENT = 2147483647
_SQUARED: dict[str, Any] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
_OBJECTIVES: dict[str, tuple[dict[str, Any], float | None]] = {
    "binary:logistic": ({"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}}, 0.5),
    "multi:softprob": ({"name": "multi:softprob", "softmax_multiclass_param": {}}, None),
    "reg:squarederror": (_SQUARED, None),
    "count:poisson": ({"name": "count:poisson", "poisson_regression_param": {"max_delta_step": "0.7"}}, 1.0),
    "reg:tweedie": ({"name": "reg:tweedie", "tweedie_regression_param": {"tweedie_variance_power": "1.5"}}, 1.0),
    "gini": (_SQUARED, None),
    "variance": (_SQUARED, None),
}
"""XGBoost's name of each objective, and the ``base_score`` of a margin of 0 where XGBoost transforms it."""


def xgboost_json(share: ModelShare, records: Mapping[str, ExportRecords]) -> bytes:
    """Return the model as XGBoost's JSON.

    Its columns are those of all parties in party order, each party's in the order of its share; values of categorical
    columns are the parties' codes. The attributes ``labelward.classes`` and ``labelward.categories`` hold a list of the
    classes, and for each categorical column whose owner tells it the list of texts that the codes stand for.

    Args:
        records: every party's splits.

    Raises:
        DataError: a model without trees, or with an objective that XGBoost does not know.
    """
    if not share.trees:
        raise DataError("a model without trees cannot be exported", code="unsupported")
    if share.objective not in _OBJECTIVES:
        raise DataError(
            unknown_name("objective", share.objective, _OBJECTIVES), code="unsupported", value=share.objective
        )
    objective, neutral = _OBJECTIVES[share.objective]
    softmax = share.objective == "multi:softprob"
    if softmax:
        objective = objective | {"softmax_multiclass_param": {"num_class": str(share.outputs)}}
    names, types = feature_names(share, records), _feature_types(share, records)
    trees, outputs, rounds = _trees(share, records, share.base if neutral is not None else (), len(names))
    scores = share.base if neutral is None else (neutral,) * share.outputs
    model = {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": rounds,
        "tree_info": outputs,
        "trees": trees,
    }
    learner = {
        "attributes": _attributes(share, records, names),
        "feature_names": names,
        "feature_types": types,
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[" + ",".join(repr(score) for score in _float32(scores)) + "]",
            "boost_from_average": "0",
            "num_class": str(share.outputs) if softmax else "0",
            "num_feature": str(len(names)),
            "num_target": "1" if softmax else str(share.outputs),
        },
        "objective": objective,
    }
    return _text({"learner": learner, "version": [3, 2, 0]}).encode()


def _text(value: Any) -> str:
    """Return JSON with all characters as they are: XGBoost takes an escape literally."""
    return json.dumps(value, ensure_ascii=False)


def _attributes(share: ModelShare, records: Mapping[str, ExportRecords], names: Sequence[str]) -> dict[str, str]:
    """Return what XGBoost keeps but does not use: the names of classes and categories, as JSON."""
    values: dict[str, Sequence[str]] = {}
    start = 0
    for party in share.parties:
        values |= {names[start + column]: texts for column, texts in records[party].values.items()}
        start += records[party].width
    told = {"labelward.classes": share.classes, "labelward.categories": values}
    return {name: _text(value) for name, value in told.items() if value}


def above(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return for each threshold t the next float32 c after t in float32: where x ≤ t, x in float32 is < c."""
    with np.errstate(over="ignore"):
        return np.nextafter(thresholds.astype(np.float32), np.float32(np.inf))


def feature_names(share: ModelShare, records: Mapping[str, ExportRecords]) -> list[str]:
    """Return a name for each column of all parties.

    A column whose owner keeps its name, or whose name another party's column has too, gets the party's name as well:
    ``telco.f0``, ``telco.age``. Characters that XGBoost refuses in names become underscores.
    """
    forbidden = str.maketrans({"[": "_", "]": "_", "<": "_"})
    sent = [(party, (*records[party].names,)) for party in share.parties]
    often = Counter(name.translate(forbidden) for _, names in sent for name in names)
    result: dict[str, None] = {}
    for party, names in sent:
        for position in range(records[party].width):
            name = names[position].translate(forbidden) if names else f"f{position}"
            if not names or often[name] > 1:
                name = f"{party.translate(forbidden)}.{name}"
            while name in result:
                name += "_"
            result[name] = None
    return list(result)


def _feature_types(share: ModelShare, records: Mapping[str, ExportRecords]) -> list[str]:
    return [
        "c" if column in records[party].categorical else "float"
        for party in share.parties
        for column in range(records[party].width)
    ]


def _trees(
    share: ModelShare, records: Mapping[str, ExportRecords], base: Sequence[float], width: int
) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """Return trees of one output each, their outputs, and where each round begins.

    Args:
        base: for each output what the leaves of its first tree get on top; empty for nothing.
        width: columns of the joined table.
    """
    scale = 1.0 / len(share.trees) if share.kind == "forest" else 1.0
    extra = dict(enumerate(base))
    trees: list[dict[str, Any]] = []
    outputs: list[int] = []
    rounds: list[int] = []
    for tree in share.trees:
        weights = tree.leaf_values() * scale
        for place, output in enumerate(range(share.outputs) if tree.output < 0 else (tree.output,)):
            if len(trees) % share.outputs == 0:
                rounds.append(len(trees))
            trees.append(_tree(share, tree, records, weights[:, place] + extra.pop(output, 0.0), len(trees), width))
            outputs.append(output)
    return trees, outputs, [*rounds, len(trees)]


def _tree(
    share: ModelShare,
    tree: TreeShape,
    records: Mapping[str, ExportRecords],
    weights: NDArray[np.float64],
    number: int,
    width: int,
) -> dict[str, Any]:
    """Return one tree of one output; ``weights``: of its leaves; ``width``: columns of the joined table."""
    starts = dict(zip(share.parties, np.cumsum([0, *(records[p].width for p in share.parties)]).tolist(), strict=False))
    place = {node: position for position, node in enumerate(sorted((*tree.nodes, *tree.leaves)))}
    size = len(place)
    left, right, parents = [-1] * size, [-1] * size, [_NO_PARENT] * size
    indices, conditions, default_left, kinds = [0] * size, np.zeros(size), [0] * size, [0] * size
    gains, covers = np.zeros(size), np.zeros(size)
    sets: dict[int, Sequence[int]] = {}
    for split, (node, owner, record) in enumerate(zip(tree.nodes, tree.owners, tree.records, strict=True)):
        sent, at = records[share.parties[owner]], place[node]
        below = [place[child] for child in children(node)]
        missing_left = record in sent.missing_left
        codes = sent.categories.get(record)
        if codes:
            below.reverse()
            missing_left, kinds[at], sets[at] = not missing_left, 1, sorted(codes)
        elif codes is None:
            conditions[at] = above(np.array([sent.thresholds[record]]))[0]
        else:
            conditions[at] = -np.inf  # no category goes left
        left[at], right[at] = below
        parents[below[0]] = parents[below[1]] = at
        indices[at] = starts[share.parties[owner]] + sent.columns[record]
        default_left[at] = int(missing_left)
        gains[at] = tree.gains[split] if tree.gains else 0.0
    for node, cover in zip((*tree.nodes, *tree.leaves), tree.covers, strict=False):
        covers[place[node]] = cover
    for leaf, weight in zip(tree.leaves, weights, strict=True):
        conditions[place[leaf]] = weight
    nodes = sorted(sets)
    sizes = [len(sets[node]) for node in nodes]
    return {
        "base_weights": _float32(np.where(np.array(left) < 0, conditions, 0.0)),
        "categories": [code for node in nodes for code in sets[node]],
        "categories_nodes": nodes,
        "categories_segments": np.cumsum([0, *sizes])[:-1].tolist(),
        "categories_sizes": sizes,
        "default_left": default_left,
        "id": number,
        "left_children": left,
        "loss_changes": _float32(gains),
        "parents": parents,
        "right_children": right,
        "split_conditions": _float32(conditions),
        "split_indices": indices,
        "split_type": kinds,
        "sum_hessian": _float32(covers),
        "tree_param": {"num_deleted": "0", "num_feature": str(width), "num_nodes": str(size), "size_leaf_vector": "1"},
    }


def _float32(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    """Return the values in float32, in their shortest decimal form."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32)]
