"""The trade-off plot: utility against leakage, as SVG that is inlined in the page.

Colors are written as CSS variables, so that one drawing serves light and dark; each mark is a group of its own with a
title, so that a pointer or a screen reader can ask what it is.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from labelward.errors import DependencyError
from labelward.report.numbers import decimals
from labelward.report.sentences import UNDEFENDED, metric_name
from labelward.report.summary import Spread, SummaryRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["describe", "trade_off"]

_INK, _FAINT = "#010101", "#020202"
_FAMILIES = ("#030301", "#030302", "#030303", "#030304", "#030305", "#030306")
_VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--faint)"} | {
    color: f"var(--mark-{number})" for number, color in enumerate(_FAMILIES, start=1)
}
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d")
_SIZE = (5.2, 3.9)  # inches, without the legend below
_PLAIN = {"Date": None, "Creator": None}


def describe(party: str, rows: Sequence[SummaryRow]) -> str:
    """Return the plot in words, for those who cannot see it."""
    marks = []
    for row in rows:
        (metric, utility), leak = _utility(row), row.leakage[row.primary or ""]
        marks.append(f"{row.defense}: {metric_name(metric)} {_figure(utility)}, leakage {_figure(leak)}")
    return f"Leakage to {party} against utility. " + "; ".join(marks) + "."


def trade_off(party: str, rows: Sequence[SummaryRow], prefix: str) -> str:
    """Return the plot of one attacker: one mark for each defense, at the strongest attack.

    Args:
        party: the attacker.
        rows: one for each defense, the undefended run first.
        prefix: of all ids in the drawing, so that several drawings share a page.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyError("the report needs matplotlib: pip install 'labelward[report]'") from error
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix, "font.size": 10, "text.parse_math": False}):
        figure = Figure(figsize=_SIZE)
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.12, 0.12, 0.86, 0.86))
        _style(axes, rows[0])
        figure.legend(
            handles=[*_reference_lines(axes, rows[0]), *_marks(axes, rows)],
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            frameon=False,
            labelcolor=_INK,
            labelspacing=0.4,
            handlelength=2.4,
        )
        axes.margins(0.09, 0.1)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.04, metadata=_PLAIN)
    titles = {f"defense-{number}": describe(party, [row]).partition(". ")[2] for number, row in enumerate(rows)}
    return _inline(buffer.getvalue(), prefix, describe(party, rows), titles)


def _style(axes: Axes, first: SummaryRow) -> None:
    axes.set_xlabel(f"utility: {metric_name(_utility(first)[0])} on the test rows", color=_INK)
    axes.set_ylabel(f"leakage: {metric_name(first.primary or '')}", color=_INK)
    axes.tick_params(colors=_INK, which="both")
    axes.grid(True, color=_FAINT, linewidth=0.5, alpha=0.35)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)


def _reference_lines(axes: Axes, undefended: SummaryRow) -> list[Line2D]:
    """Draw what the marks are to be compared with; return the lines as the legend names them."""
    metric, primary = _utility(undefended)[0], undefended.primary or ""
    lines: list[Line2D] = []
    for label, style, leak in (
        ("leakage without the view", "--", undefended.without_view),
        ("leakage by chance", ":", undefended.chance),
    ):
        if primary in leak:
            lines.append(axes.axhline(leak[primary].mean, color=_INK, linewidth=1.2, linestyle=style, label=label))
    for label, style, utility in (
        ("utility of the active party alone", "-.", undefended.alone),
        ("utility of the joined table", "-", undefended.joined),
    ):
        if metric in utility:
            lines.append(axes.axvline(utility[metric].mean, color=_FAINT, linewidth=1.4, linestyle=style, label=label))
    return lines


def _marks(axes: Axes, rows: Sequence[SummaryRow]) -> list[Line2D]:
    """Draw one mark for each defense, and a thin line through those of a kind; return the marks for the legend."""
    families = list(dict.fromkeys(_family(row) for row in rows if row.chain))
    marks = []
    for number, row in enumerate(rows):
        utility, leak = _utility(row)[1], row.leakage[row.primary or ""]
        bare = row.defense == UNDEFENDED
        color = _INK if bare else _FAMILIES[families.index(_family(row)) % len(_FAMILIES)]
        axes.errorbar(
            [utility.mean],
            [leak.mean],
            xerr=[utility.std or 0.0],
            yerr=[leak.std or 0.0],
            linestyle="none",
            ecolor=color,
            elinewidth=0.9,
            capsize=2.5,
        )
        (mark,) = axes.plot(
            [utility.mean],
            [leak.mean],
            linestyle="none",
            marker="o" if bare else _MARKERS[(number - 1) % len(_MARKERS)],
            markersize=6.5 if bare else 9,
            markerfacecolor=color if bare else "none",
            markeredgecolor=color,
            markeredgewidth=1.7,
            label=textwrap.fill(row.defense, 56),
            zorder=4,
            gid=f"defense-{number}",
        )
        marks.append(mark)
    for number, family in enumerate(families):
        sweep = [row for row in rows if _family(row) == family]
        axes.plot(
            [_utility(row)[1].mean for row in sweep],
            [row.leakage[row.primary or ""].mean for row in sweep],
            color=_FAMILIES[number % len(_FAMILIES)],
            linewidth=0.8,
            alpha=0.55,
        )
    return marks


def _family(row: SummaryRow) -> str:
    return "+".join(str(entry["kind"]) for entry in row.chain)


def _utility(row: SummaryRow) -> tuple[str, Spread]:
    return next(iter(row.utility.items()))


def _figure(spread: Spread) -> str:
    mean = decimals(spread.mean, 3)
    return mean if spread.std is None else f"{mean} ± {decimals(spread.std, 3)}"


def _inline(svg: str, prefix: str, description: str, titles: dict[str, str]) -> str:
    """Make a drawing part of a page: no prolog, ids of its own, CSS colors, a description and titles."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    for gid, title in titles.items():
        opening = f'<g id="{prefix}-{gid}">'
        svg = svg.replace(opening, f"{opening}<title>{escape(title)}</title>")
    view_box = _attribute(svg, "viewBox")
    rest = svg[svg.index(">") + 1 :]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view_box}" '
        f'role="img" aria-label="{escape(description)}">{rest}'
    )


def _attribute(svg: str, name: str) -> Any:
    found = re.search(rf'{name}="([^"]+)"', svg)
    if found is None:
        raise ValueError(f"a drawing without {name}")
    return found[1]
