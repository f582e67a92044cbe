"""What "lossless" means: the trees of the reference, of joined tables, and under encryption, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference

from wiring import Run, Setting, joined, make_parts, make_targets, readable_content, with_missing

NAMES = ("active", "left", "right")

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "two classes": ("binary", {}),
    "three classes, one tree": ("classes", {}),
    "three classes, a tree each": ("classes", {"multi_strategy": "one_output_per_tree"}),
    "quantities": ("quantities", {}),
    "counts": ("counts", {"objective": "count:poisson"}),
    "amounts": ("amounts", {"objective": "reg:tweedie"}),
    "forest of classes": ("classes", {"kind": "forest", "row_fraction": 0.8}),
    "forest of quantities": ("quantities", {"kind": "forest", "row_fraction": 0.8, "replace": True}),
}
GOSS = {"sampling": "goss", "top_rate": 0.3, "other_rate": 0.3}


def as_reference(run: Run) -> list[reference.Tree]:
    """Return the trees of a run with owners and thresholds filled in from all shares."""
    share = run.active.share
    records = {party: each.own for party, each in run.shares.items()}
    trees = []
    for shape in share.trees:
        splits = {}
        for node, owner, record in zip(shape.nodes, shape.owners, shape.records, strict=True):
            party = share.parties[owner]
            own = records[party]
            splits[node] = reference.Split(
                party,
                own.columns[record],
                own.thresholds[record],
                record in own.missing_left,
                own.categories.get(record),
            )
        width = len(shape.weights) // len(shape.leaves)
        weights = {leaf: shape.weights[at * width : (at + 1) * width] for at, leaf in enumerate(shape.leaves)}
        trees.append(reference.Tree(splits, weights, shape.output))
    return trees


def assert_lossless(setting: Setting) -> Run:
    """Trees and margins equal the reference, records and weights the joined training, to the last bit."""
    run = setting.run()
    assert_as_reference(run, setting)
    assert_as_joined(run, setting)
    return run


def assert_as_reference(run: Run, setting: Setting) -> None:
    """The run's model is the reference's."""
    expected = reference.train(setting)
    assert as_reference(run) == expected.trees
    assert run.active.share.base == tuple(expected.base)
    assert list(run.active.history) == expected.history
    assert run.active.margins.tolist() == reference.predict(expected, dict(setting.held_out)).tolist()


def assert_as_joined(run: Run, setting: Setting) -> None:
    """The run's model is that of the joined table."""
    together = joined(setting)
    assert together.trees == run.active.share.trees
    assert together.owners == run.active.share.parties
    assert together.own == {party: share.own for party, share in run.shares.items()}
    assert together.base == run.active.share.base
    assert together.history == run.active.history
    assert together.objective == run.active.share.objective


def encrypted(setting: Setting, engine: str = "paillier", bits: int = 512) -> tuple[Run, Run]:
    """Run without encryption and with it."""
    return setting.run(), setting.run(engine=engine, bits=bits, insecure=bits < 2048)


def assert_same(plain: Run, secret: Run) -> None:
    """Shares and margins to the last bit; every view but for its ciphertexts."""
    assert secret.shares == plain.shares
    assert secret.active.margins.tobytes() == plain.active.margins.tobytes()
    assert secret.active.history == plain.active.history
    for party, view in plain.views.items():
        assert readable_content(secret.views[party]) == readable_content(view)


def rich_setting(seed: int, targets: str, rows: int = 60, parties: int = 3, **params: object) -> Setting:
    """Return a setting with missing values, few and many categories, ties, row weights and held-out rows.

    Args:
        targets: as in ``make_targets``; "binary" for two classes.
    """
    names = NAMES[:parties]
    whole = make_parts(seed, rows + 15, dict.fromkeys(names, 2))
    rng = np.random.default_rng(seed)
    for x in whole.values():
        x[:, 1] = np.round(x[:, 1])
    last = names[-1]
    codes = {names[1]: rng.integers(0, 3, rows + 15), last: rng.integers(0, 7, rows + 15)}
    for party, column in codes.items():
        whole[party] = np.column_stack([whole[party], column.astype(np.float64)])
    whole = with_missing(seed, whole)
    classes = {"binary": ("0", "1"), "classes": ("0", "1", "2")}.get(targets, ())
    labels = make_targets(seed, whole, "classes" if classes else targets, len(classes) or 3)
    categories = {party: {2: tuple("abcdefg"[: 7 if party == last else 3])} for party in names[1:]}
    return Setting(
        {party: x[:rows].copy() for party, x in whole.items()},
        labels[:rows],
        params=make_params(**params),
        classes=classes,
        weights=np.round(rng.uniform(0.5, 2.0, rows), 3),
        test={party: x[rows:].copy() for party, x in whole.items()},
        categories=categories,
        seed=seed,
    )


def make_params(*, kind: str = "secureboost", **params: object) -> reference.TreeModel:
    """Return parameters of a small model."""
    from labelward.protocols.secureboost.params import FederatedForest, SecureBoost

    given = {"trees": 2, "depth": 3, "bins": 8, "max_cat_to_onehot": 3} | params
    return (FederatedForest if kind == "forest" else SecureBoost)(**given)
