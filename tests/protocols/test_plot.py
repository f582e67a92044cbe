"""Drawn trees: own splits in words, other parties' by their owner alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import msgspec
import pytest
from random_models import converse, make_model

from blames import refused_about
from labelward.errors import DataError
from labelward.kernels.binning import EVERYTHING
from labelward.protocols.secureboost.explain import Feature, Features, columns_active, columns_passive
from labelward.protocols.secureboost.plot import draw_svg, draw_text
from labelward.protocols.secureboost.share import ModelShare, Records, TreeShape
from refusals import refused

SHARE = ModelShare(
    model="m",
    party="bank",
    parties=("bank", "telco"),
    columns=("income", "city"),
    own=Records((0, 1, 0), (1250.5, 0.0, EVERYTHING), (1,), {1: (0, 2)}),
    trees=(
        TreeShape((0, 1, 2, 3), (0, 1, 0, 0), (0, 0, 1, 2), (4, 5, 6, 7, 8), (0.5, -0.25, 1.0, 2.0, 3.0),
                  gains=(9.0, 4.0, 2.5, 1.0), covers=(40.0, 30.0, 10.0, 20.0, 10.0, 4.0, 6.0, 15.0, 5.0)),
    ),
    classes=("no", "yes"),
    categories={"city": ("Bern <1>", "Rome", "Oslo & co")},
)  # fmt: skip


def test_a_known_tree() -> None:
    assert draw_text(SHARE, 0).splitlines() == [
        "tree 0",
        "income ≤ 1250.5  [gain 9]  [cover 40]",
        "├─ yes: split of telco  [gain 4]  [cover 30]",
        "│  ├─ yes: income is known  [gain 1]  [cover 20]",
        "│  │  ├─ yes: leaf +2  [cover 15]",
        "│  │  └─ no:  leaf +3  [cover 5]",
        "│  └─ no:  leaf +0.5  [cover 10]",
        "└─ no:  city in {Bern <1>, Oslo & co} or missing  [gain 2.5]  [cover 10]",
        "   ├─ yes: leaf -0.25  [cover 4]",
        "   └─ no:  leaf +1  [cover 6]",
    ]


def test_names_that_an_owner_has_told() -> None:
    features: Features = {"telco": (Feature("telco", 0, "calls"),)}
    assert "split of telco on calls" in draw_text(SHARE, 0, features)
    assert "split of telco on column 0" in draw_text(SHARE, 0, {"telco": (Feature("telco", 0),)})


def test_the_picture_says_the_same() -> None:
    root = ET.fromstring(draw_svg(SHARE, 0))
    space = "{http://www.w3.org/2000/svg}"
    words = ["".join(each.itertext()) for each in root.iter(f"{space}text")]
    assert len(list(root.iter(f"{space}rect"))) == 9
    assert len(list(root.iter(f"{space}line"))) == 8
    for told in ("income ≤ 1250.5", "split of telco", "leaf -0.25", "cover 15", "gain 2.5"):
        assert any(told in each for each in words)
    assert any("{Bern <1>, Oslo & co} or missing" in each for each in words)
    places = [(rect.get("x"), rect.get("y")) for rect in root.iter(f"{space}rect")]
    assert len(set(places)) == 9
    width = float(root.get("width", ""))
    assert all(0 <= float(x or "-1") <= width - 170 for x, _ in places)


@pytest.mark.parametrize("ended", ["\n", "\x1b[31m", "\0", "\u2028", "\u202e"])
def test_names_that_are_more_than_one_line(ended: str) -> None:
    """Headings of workbooks have line breaks; a name of another party may have whatever it likes."""
    share = msgspec.structs.replace(
        SHARE,
        columns=(f"income{ended}2023", "city"),
        categories={"city": ("Bern", "Rome", f"Oslo{ended}")},
        classes=("no", f"yes{ended}"),
    )
    features: Features = {"telco": (Feature("telco", 0, f"calls{ended}"),)}
    text = draw_text(share, 0, features)
    assert len(text.splitlines()) == len(draw_text(SHARE, 0).splitlines())
    assert all(line.isprintable() for line in text.splitlines())
    ET.fromstring(draw_svg(share, 0, features))


def test_boxes_of_any_tree_do_not_overlap() -> None:
    for seed in range(5):
        share = make_model(seed, trees=1, depth=6).active
        root = ET.fromstring(draw_svg(share, 0))
        boxes = [(float(r.get("x", "")), float(r.get("y", ""))) for r in root.iter("{http://www.w3.org/2000/svg}rect")]
        assert len(boxes) == len(share.trees[0].nodes) + len(share.trees[0].leaves)
        for place, (x, y) in enumerate(boxes):
            assert all(abs(x - u) >= 170 or abs(y - v) >= 58 for u, v in boxes[:place])


@pytest.mark.parametrize("draw", [draw_text, draw_svg])
def test_nothing_of_other_parties_is_drawn(draw: object) -> None:
    """Not even where their columns are known by numbers: no names, no thresholds."""
    model = make_model(1, trees=3, depth=5)
    out, _ = converse(
        model,
        lambda ctx: columns_active(ctx, model.active),
        lambda ctx: columns_passive(ctx, model.shares[ctx.party]),
    )
    for tree in range(3):
        for features in (None, out["bank"]):
            drawn = draw(model.active, tree, features)  # type: ignore[operator]
            for party in model.parties[1:]:
                share = model.shares[party]
                assert not any(name in drawn for name in share.columns)
                assert not any(f"{threshold:.6g}" in drawn for threshold in share.own.thresholds if abs(threshold) > 2)


def test_which_output_a_tree_adds_to() -> None:
    model = make_model(2, trees=3, outputs=3, each_output=True)
    assert draw_text(model.active, 1).startswith("tree 1 (adds to class 1)\n")
    vector = make_model(2, trees=1, outputs=7, fill=0.0)
    assert draw_text(vector.active, 0).count(",") == 5


def test_trees_that_are_not_there() -> None:
    with refused(DataError, "range", field="tree", value=1):
        draw_text(SHARE, 1)
    with refused_about("0", DataError, "range", field="tree", value=0):
        draw_svg(msgspec.structs.replace(SHARE, trees=(), party="telco"), 0)
