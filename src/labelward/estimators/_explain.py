"""Explanations, drawings and exports where one user holds all shares: every party's program in this process.

Each party decides for itself whether it tells the names of its columns and, for an export, its splits. Here one user is
all parties, so that all tell everything unless the caller says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelward.errors import unknown_name
from labelward.estimators._errors import InvalidInputError
from labelward.estimators._federation import run_conversation
from labelward.party.context import Context
from labelward.protocols.secureboost.explain import Explanation, columns_active, columns_passive
from labelward.protocols.secureboost.explain import explain as shapley
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.plot import draw_svg, draw_text
from labelward.protocols.secureboost.predict import predict_passive
from labelward.protocols.secureboost.share import ModelShare

__all__ = ["background_sample", "consenting_parties", "explain_predictions", "export_trees", "plot_tree"]

Floats = NDArray[np.float64]
Shares = Mapping[str, ModelShare]


def consenting_parties(shares: Shares, names: Collection[str] | None) -> Collection[str]:
    """Return the parties that tell the names of their columns: all of them for None.

    Raises:
        ValueError: no such party.
    """
    if names is None:
        return tuple(shares)
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidInputError(f"must be a list of parties but got {names!r}", code="type", field="names", value=names)
    for name in names:
        if name not in shares:
            raise InvalidInputError(unknown_name("party", str(name), shares), code="unknown", field="names", value=name)
    return names


def background_sample(blocks: Mapping[str, Floats], most: int) -> dict[str, Floats]:
    """Return at most so many of the rows, evenly spaced.

    Raises:
        ValueError: it is no whole number of at least 1.
    """
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
        raise InvalidInputError(
            f"must be a whole number of at least 1 but got {most!r}", code="range", field="most", value=most
        )
    rows = len(next(iter(blocks.values())))
    chosen = np.linspace(0, rows - 1, min(int(most), rows)).astype(np.int64)
    return {party: block[chosen] for party, block in blocks.items()}


def explain_predictions(
    shares: Shares, blocks: Mapping[str, Floats], behind: Mapping[str, Floats], names: Collection[str]
) -> Explanation:
    """Return the SHAP values of the rows of ``blocks`` against the background rows of ``behind``."""
    both = {party: np.concatenate([blocks[party], behind[party]]) for party in shares}
    active = next(iter(shares))
    rows, background = len(blocks[active]), len(behind[active])

    def lead(ctx: Context) -> Explanation:
        share = shares[active]
        features = columns_active(ctx, share)
        return shapley(ctx, share, features, {active: (share.own, both[active])}, rows, background)

    def follow(ctx: Context) -> None:
        columns_passive(ctx, shares[ctx.party], names=ctx.party in names)
        predict_passive(ctx, shares[ctx.party], both[ctx.party])

    return run_conversation(tuple(shares), rows + background, lead, follow)


def plot_tree(shares: Shares, number: int, names: Collection[str], *, svg: bool) -> str:
    """Return a tree as text, or as an SVG picture."""
    active = next(iter(shares))
    features = run_conversation(
        tuple(shares),
        0,
        lambda ctx: columns_active(ctx, shares[active]),
        lambda ctx: columns_passive(ctx, shares[ctx.party], names=ctx.party in names),
    )
    return (draw_svg if svg else draw_text)(shares[active], number, features)


def export_trees(shares: Shares, path: Path) -> Path:
    """Write the joined model as XGBoost's JSON; every party consents."""

    def follow(ctx: Context) -> None:
        export_passive(ctx, shares[ctx.party], consent=True, names=True)

    active = next(iter(shares))
    return run_conversation(
        tuple(shares), 0, lambda ctx: export_active(ctx, shares[active], path, purpose="an estimator's export"), follow
    )
