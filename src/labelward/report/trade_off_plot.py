"""Trade-off plot of utility against leakage: inline SVG, with the legend as a separate image.

Colors are CSS variables, so the same image serves light and dark mode. Each mark is a group with a title, for pointers
and screen readers.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from labelward.installation import missing_library
from labelward.report.metrics import format_metric, metric_name, metric_of, spread_text
from labelward.report.narrative import UNDEFENDED
from labelward.report.plots import say_where_zero_is
from labelward.report.summary import Spread, SummaryRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_INK, _FAINT = "#010101", "#020202"
_FAMILIES = ("#030301", "#030302", "#030303", "#030304", "#030305", "#030306")
_VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--faint)"} | {
    color: f"var(--mark-{number})" for number, color in enumerate(_FAMILIES, start=1)
}
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d")
_SIZE = (5.2, 3.7)  # inches
_MAX_CHANCE_DISTANCE = 0.6
"""Largest distance of the chance line below the marks, relative to their height, at which it is drawn."""
_PLAIN = {"Date": None, "Creator": None}


@dataclass(frozen=True, kw_only=True)
class TradeOffImage:
    """Plot and legend as SVG, side by side on wide screens."""

    plot: str
    legend: str


def describe(party: str, rows: Sequence[SummaryRow]) -> str:
    """Return the plot as text, for screen readers."""
    marks = []
    for row in rows:
        primary = row.primary or ""
        utility = f"{metric_name(row.worth)} {spread_text(row.worth, row.utility[row.worth])}"
        marks.append(f"{row.defense}: {utility}, leakage {spread_text(primary, row.leakage[primary])}")
    return f"Leakage to {party} against utility. " + "; ".join(marks) + "."


def trade_off_image(party: str, rows: Sequence[SummaryRow], prefix: str) -> TradeOffImage:
    """Return the plot of one attacker, with one mark for each defense at the strongest attack.

    Args:
        party: the attacker.
        rows: one for each defense, the undefended run first.
        prefix: of all ids in the image, so that several images can share a page.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_library("the report", "matplotlib", "report") from error
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix, "font.size": 10, "text.parse_math": False}):
        plot_figure, legend_figure = Figure(figsize=_SIZE), Figure(figsize=_SIZE)
        for each in (plot_figure, legend_figure):
            FigureCanvasSVG(each)
        axes = plot_figure.add_axes((0.12, 0.12, 0.86, 0.86))
        _style(axes, rows[0])
        marks = _marks(axes, rows)
        legend_figure.legend(
            handles=[*marks, *_reference_lines(axes, rows)],
            loc="upper left",
            frameon=False,
            labelcolor=_INK,
            labelspacing=0.55,
            handlelength=2.4,
        )
        axes.margins(0.09, 0.1)
        if not metric_of(rows[0].worth).higher_is_better:
            axes.invert_xaxis()
        say_where_zero_is(axes)
        plot, legend = _svg(plot_figure), _svg(legend_figure)
    titles = {f"defense-{number}": describe(party, [row]).partition(". ")[2] for number, row in enumerate(rows)}
    return TradeOffImage(
        plot=_inline(plot, prefix, titles, f'role="img" aria-label="{escape(describe(party, rows))}"'),
        legend=_inline(legend, f"{prefix}-legend", {}, 'aria-hidden="true"'),
    )


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.04, metadata=_PLAIN)
    return buffer.getvalue()


def _style(axes: Axes, first: SummaryRow) -> None:
    worth = metric_of(first.worth)
    axes.set_xlabel(
        f"utility: {worth.title} on the test rows{'' if worth.higher_is_better else ', decreasing'}", color=_INK
    )
    axes.set_ylabel(f"leakage: {metric_name(first.primary or '')}", color=_INK)
    axes.tick_params(colors=_INK, which="both")
    axes.grid(True, color=_FAINT, linewidth=0.5, alpha=0.35)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)


def _reference_lines(axes: Axes, rows: Sequence[SummaryRow]) -> list[Line2D]:
    """Draw the reference levels and return their lines for the legend.

    The chance line is drawn only if it is near the marks; otherwise the legend states its value.
    """
    from matplotlib.lines import Line2D

    undefended = rows[0]
    primary = undefended.primary or ""
    lines: list[Line2D] = []
    shown = [row.leakage[primary] for row in rows]
    if primary in undefended.without_view:
        floor = undefended.without_view[primary]
        lines.append(
            axes.axhline(
                floor.mean, color=_INK, linewidth=1.2, linestyle="--", label="leakage at best without the view"
            )
        )
        shown.append(Spread(mean=floor.mean, std=None, seeds=floor.seeds))
    if primary in undefended.chance:
        chance = undefended.chance[primary].mean
        low = min(each.mean - (each.std or 0.0) for each in shown)
        high = max(each.mean + (each.std or 0.0) for each in shown)
        if low - chance <= _MAX_CHANCE_DISTANCE * (high - low):
            lines.append(axes.axhline(chance, color=_INK, linewidth=1.2, linestyle=":", label="leakage by chance"))
        else:
            label = f"leakage by chance: {format_metric(primary, chance)}, below the plot"
            lines.append(Line2D([], [], linestyle="none", label=label))
    for label, style, utility in (
        ("utility of the active party alone", "-.", undefended.alone),
        ("utility of centralized training", "-", undefended.joined),
    ):
        if undefended.worth in utility:
            place = utility[undefended.worth].mean
            lines.append(axes.axvline(place, color=_FAINT, linewidth=1.4, linestyle=style, label=label, zorder=1))
    return lines


def _marks(axes: Axes, rows: Sequence[SummaryRow]) -> list[Line2D]:
    """Draw one mark for each defense, and a thin line through those of a kind; return the marks for the legend.

    Marks of a kind share a color, and their fill becomes more opaque in the order of the job. Error bars are on top.
    """
    families = list(dict.fromkeys(_family(row) for row in rows if row.chain))
    marks = []
    for number, row in enumerate(rows):
        utility, leak = row.utility[row.worth], row.leakage[row.primary or ""]
        bare = row.defense == UNDEFENDED
        color = _INK if bare else _FAMILIES[families.index(_family(row)) % len(_FAMILIES)]
        axes.errorbar(
            [utility.mean],
            [leak.mean],
            xerr=[utility.std or 0.0],
            yerr=[leak.std or 0.0],
            linestyle="none",
            ecolor=color,
            elinewidth=1.0,
            capsize=3.5,
            zorder=5,
        )
        (mark,) = axes.plot(
            [utility.mean],
            [leak.mean],
            linestyle="none",
            marker="o" if bare else _MARKERS[(number - 1) % len(_MARKERS)],
            markersize=6.5 if bare else 9,
            markerfacecolor=(color, 1.0 if bare else _fill(row, rows)),
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
            [row.utility[row.worth].mean for row in sweep],
            [row.leakage[row.primary or ""].mean for row in sweep],
            color=_FAMILIES[number % len(_FAMILIES)],
            linewidth=0.8,
            alpha=0.55,
        )
    return marks


def _fill(row: SummaryRow, rows: Sequence[SummaryRow]) -> float:
    """Return the opacity of a mark, from 0 for the first of its kind to 0.6, on which error bars are still visible."""
    sweep = [each.defense for each in rows if _family(each) == _family(row)]
    return 0.6 * sweep.index(row.defense) / max(1, len(sweep) - 1)


def _family(row: SummaryRow) -> str:
    return "+".join(str(entry["kind"]) for entry in row.chain)


def _inline(svg: str, prefix: str, titles: dict[str, str], role: str) -> str:
    """Return an SVG image for inlining: no prolog, prefixed ids, CSS colors, titles, limited width."""
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
    width = 1.8 * float(view_box.split()[2])  # points to pixels, a little larger than on paper
    rest = svg[svg.index(">") + 1 :]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view_box}" '
        f'style="max-width:{width:.0f}px" {role}>{rest}'
    )


def _attribute(svg: str, name: str) -> str:
    found = re.search(rf'{name}="([^"]+)"', svg)
    if found is None:
        raise ValueError(f"SVG without {name}")
    return found[1]
