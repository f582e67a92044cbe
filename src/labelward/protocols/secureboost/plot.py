"""Drawings of a tree at the active party: its own splits in words, those of others by their owner.

A passive party's split shows its owner, and its column where the party has revealed the name (see
:func:`~labelward.protocols.secureboost.explain.columns_active`). The threshold always remains the owner's secret.
"""

from __future__ import annotations

from html import escape

from labelward.errors import DataError, quoted
from labelward.kernels.binning import EVERYTHING
from labelward.kernels.node_rows import children, depth_of, parent
from labelward.protocols.secureboost.explain import Features
from labelward.protocols.secureboost.share import ModelShare, TreeShape

_LEAF, _LEVEL, _WIDTH, _HEIGHT, _LINE = 190, 110, 170, 58, 16
_MAX_LISTED = 5  # categories, or weights of a leaf
_LONGEST = 10_000  # characters of a line


def draw_text(share: ModelShare, tree: int, features: Features | None = None) -> str:
    """Return the tree as lines of text, indented by depth; "yes" is left.

    Args:
        features: the columns of all records, where known.

    Raises:
        DataError: no such tree; a passive party has none.
    """
    drawing = _Drawing(share, tree, features)
    lines = [drawing.title]

    def add(node: int, head: str, below: str) -> None:
        first, *rest = drawing.words(node)
        lines.append(head + first + "".join(f"  [{each}]" for each in rest))
        if node in drawing.split:
            left, right = children(node)
            add(left, f"{below}├─ yes: ", f"{below}│  ")
            add(right, f"{below}└─ no:  ", f"{below}   ")

    add(0, "", "")
    return "\n".join(lines) + "\n"


def draw_svg(share: ModelShare, tree: int, features: Features | None = None) -> str:
    """Return the tree as an SVG picture, one color for each party; arguments and errors as for :func:`draw_text`."""
    drawing = _Drawing(share, tree, features)
    x: dict[int, float] = {}

    def place(node: int) -> float:
        if node in drawing.split:
            x[node] = sum(place(child) for child in children(node)) / 2
        else:
            x[node] = _LEAF * (sum(each not in drawing.split for each in x) + 0.5)
        return x[node]

    place(0)
    depth = max(map(depth_of, x)) + 1
    width, height = _LEAF * len(drawing.leaf), _LEVEL * depth + 30
    lines, boxes = [], []
    for node, center in x.items():
        top = _y(node)
        if node:
            above = parent(node)
            word, middle = "yes" if node % 2 else "no", (x[above] + center) / 2
            start = _y(above) + _HEIGHT
            lines.append(f'<line x1="{x[above]:.1f}" y1="{start}" x2="{center:.1f}" y2="{top}" stroke="#8a8a8a"/>')
            lines.append(f'<text x="{middle:.1f}" y="{(start + top) / 2:.1f}" class="way">{word}</text>')
        boxes.append(
            f'<rect x="{center - _WIDTH / 2:.1f}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
            f'fill="{drawing.color(node)}" stroke="#5a5a5a"/>'
        )
        for number, line in enumerate(drawing.words(node)):
            cut = line if len(line) <= 28 else line[:27] + "…"
            tip = f"<title>{escape(line)}</title>"
            y = top + 20 + _LINE * number
            boxes.append(f'<text x="{center:.1f}" y="{y}">{tip}{escape(cut)}</text>')
    style = "text{font:11px sans-serif;text-anchor:middle;fill:#1a1a1a}.way{fill:#5a5a5a}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(drawing.title)}</title><style>{style}</style>'
        + "".join((*lines, *boxes))
        + "</svg>\n"
    )


def _shown(line: str) -> str:
    return quoted(" ".join(line.split()), _LONGEST)


def _y(node: int) -> int:
    return 20 + _LEVEL * depth_of(node)


_COLORS = ("#cfe3f7", "#fde0c2", "#d9ead3", "#ead1dc", "#fff2b8", "#d9d2e9")
_LEAF_COLOR = "#f2f2f2"


class _Drawing:
    """Text and color of each node."""

    def __init__(self, share: ModelShare, tree: int, features: Features | None) -> None:
        if not 0 <= tree < len(share.trees):
            reason = f"must be below {len(share.trees)}, the number of trees here, but got {tree}"
            raise DataError(reason, code="range", field="tree", value=tree)
        self.share, self.features = share, features or {}
        self.shape: TreeShape = share.trees[tree]
        self.split = {node: position for position, node in enumerate(self.shape.nodes)}
        self.leaf = {node: position for position, node in enumerate(self.shape.leaves)}
        self.weights = self.shape.leaf_values()
        to = self.shape.output
        name = share.classes[to] if len(share.classes) == share.outputs > 1 and to >= 0 else f"output {to}"
        self.title = _shown(f"tree {tree}" + (f" (adds to {name})" if to >= 0 and share.outputs > 1 else ""))

    def words(self, node: int) -> list[str]:
        """Return the lines of a node, without characters that end lines or that no terminal or SVG should be given."""
        return [_shown(line) for line in self._lines(node)]

    def _lines(self, node: int) -> list[str]:
        """Return its question or its weights, then its gain and cover, where known."""
        if node in self.leaf:
            position = self.leaf[node]
            named = len(self.share.classes) == self.weights.shape[1] > 1
            names = [f"{name} " for name in self.share.classes] if named else [""] * self.weights.shape[1]
            shown = zip(
                names[:_MAX_LISTED], self.weights[position] + 0.0, strict=False
            )  # + 0.0: no minus before a zero
            weights = [f"{name}{weight:+.4g}" for name, weight in shown]
            more = ", …" if self.weights.shape[1] > _MAX_LISTED else ""
            return [f"leaf {', '.join(weights)}{more}", *self._cover(len(self.split) + position)]
        position = self.split[node]
        gain = [f"gain {self.shape.gains[position]:.4g}"] if self.shape.gains else []
        return [self._question(position), *gain, *self._cover(position)]

    def color(self, node: int) -> str:
        """Return the color of a node's box."""
        return _COLORS[self.shape.owners[self.split[node]] % len(_COLORS)] if node in self.split else _LEAF_COLOR

    def _cover(self, position: int) -> list[str]:
        return [f"cover {self.shape.covers[position]:.4g}"] if self.shape.covers else []

    def _question(self, position: int) -> str:
        """Return an own split in words; another party's by its owner, and its column's name where known."""
        owner, record = self.share.parties[self.shape.owners[position]], self.shape.records[position]
        if owner != self.share.party:
            known = self.features.get(owner, ())
            return f"split of {owner}" + (f" on {known[record].label}" if record < len(known) else "")
        own = self.share.own
        name, missing = self.share.columns[own.columns[record]], record in own.missing_left
        codes = own.categories.get(record)
        if codes is not None:
            names = self.share.categories.get(name, ())
            chosen = [names[code] if code < len(names) else str(code) for code in codes]
            listed = ", ".join(chosen[:_MAX_LISTED]) + (", …" if len(chosen) > _MAX_LISTED else "")
            return f"{name} in {{{listed}}}" + (" or missing" if missing else "")
        if own.thresholds[record] == EVERYTHING:
            return f"{name} is known or missing" if missing else f"{name} is known"
        return f"{name} ≤ {own.thresholds[record]:.6g}" + (" or missing" if missing else "")
