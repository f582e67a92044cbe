"""Plots as SVG that a page embeds as images."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labelward.installation import missing_library
from labelward.report.formatting import decimals
from labelward.report.summary import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (3.5, 2.7)  # inches
_COLORS = ("#0067a5", "#c2410c", "#00795a", "#a3337c", "#8a6100", "#4b5fc1")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LEGEND = 64  # characters beside each other in a legend
_AREA = 28.0  # square points of a mark without a budget, and of the smallest budget


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image: a ``data:`` address, and its content in words."""

    title: str
    address: str
    words: str


@dataclass(frozen=True, kw_only=True)
class DefenseMark:
    """One defense in a plot of utility against leakage; larger for a larger budget."""

    family: str
    name: str
    utility: Spread
    leakage: Spread
    budget: float | None


@dataclass(frozen=True, kw_only=True)
class ScaleMark:
    """One line of a scale: an interval (low, mean, high), a lower bound, which may be infinite, and a guarantee."""

    name: str
    interval: tuple[float, float, float] | None
    least: float | None
    guarantee: float | None


def scale_plot(title: str, marks: Sequence[ScaleMark], *, axis: str, names: tuple[str, str, str]) -> Image:
    """Return marks on one horizontal scale, a line for each; an infinite bound is drawn at the right end.

    Args:
        title: of the image.
        marks: from top to bottom.
        axis: label of the scale.
        names: of intervals, bounds and guarantees.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    placed = list(enumerate(reversed(marks)))
    intervals = [(y, mark.interval) for y, mark in placed if mark.interval is not None]
    bounds = [(y, mark.least) for y, mark in placed if mark.least is not None]
    limits = [(y, mark.guarantee) for y, mark in placed if mark.guarantee is not None]
    finite = [value for _, value in (*bounds, *limits) if math.isfinite(value)] + [each[2] for _, each in intervals]
    end = 1.1 * max((1.0, *finite))

    def draw(axes: Axes) -> None:
        for color, name, points, marker in (
            (_COLORS[0], names[0], [(y, mean) for y, (_, mean, _) in intervals], "o"),
            (_COLORS[1], names[1], bounds, ">"),
            (_COLORS[2], names[2], limits, "|"),
        ):
            if points:
                at = [min(value, end) for _, value in points]
                size = 4 * _AREA if marker == "|" else _AREA
                axes.scatter(at, [y for y, _ in points], s=size, color=color, marker=marker, label=name, zorder=3)
        for y, (low, _, high) in intervals:
            axes.plot([low, high], [y, y], color=_COLORS[0], linewidth=1.2)
        axes.axvline(0, color="black", linewidth=0.7)
        axes.set_yticks([y for y, _ in placed], [mark.name for _, mark in placed])
        axes.set_xlabel(axis)

    parts = []
    for mark in marks:
        least = "none" if mark.least is None else "∞" if math.isinf(mark.least) else decimals(mark.least, 2)
        middle = "none" if mark.interval is None else decimals(mark.interval[1], 2)
        limit = "none" if mark.guarantee is None else f"{mark.guarantee:g}"
        parts.append(f"{mark.name}: {names[0]} {middle}, {names[1]} {least}, {names[2]} {limit}")
    height = 1.2 + 0.25 * len(marks)
    return Image(title=title, address=_render(draw, height), words=f"{axis}. {'; '.join(parts)}.")


def curves(
    title: str, values: Sequence[float], lines: Mapping[str, Sequence[Spread]], axis: str, leakage: str
) -> Image:
    """Return lines of leakage over a varied value, with standard deviations over seeds as error bars.

    Args:
        title: of the image.
        values: on the axis.
        lines: by name, one spread for each value.
        axis: label of the axis of values.
        leakage: label of the other axis.

    Raises:
        DependencyError: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        for number, (name, line) in enumerate(lines.items()):
            axes.errorbar(
                values,
                [each.mean for each in line],
                yerr=[each.std or 0.0 for each in line],
                label=name,
                color=_COLORS[number % len(_COLORS)],
                marker=_MARKERS[number % len(_MARKERS)] if len(values) <= 12 else None,
                markersize=4,
                linewidth=1.2,
                elinewidth=0.7,
                capsize=2,
            )
        axes.set_xlabel(axis)
        axes.set_ylabel(leakage)

    contents = [f"{name} {', '.join(decimals(each.mean, 3) for each in line)}" for name, line in lines.items()]
    places = ", ".join(f"{value:g}" for value in values)
    return Image(title=title, address=_render(draw), words=f"{leakage} over {axis} ({places}): {'; '.join(contents)}.")


def defense_plot(
    title: str,
    marks: Sequence[DefenseMark],
    *,
    utility: str,
    leakage: str,
    undefended: DefenseMark,
    floor: Spread | None,
) -> Image:
    """Return utility against leakage: a mark for each defense, and the undefended utility as a vertical line.

    Args:
        title: of the image.
        marks: of the defenses.
        utility: label of the utility axis.
        leakage: label of the other axis.
        undefended: the mark without a defense.
        floor: leakage of a baseline that needs no view, drawn as a horizontal line.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    families = list(dict.fromkeys(mark.family for mark in marks))

    def draw(axes: Axes) -> None:
        axes.axvline(undefended.utility.mean, color="black", linewidth=0.9)
        if floor is not None:
            axes.axhline(floor.mean, color="black", linewidth=0.9)
        axes.scatter([undefended.utility.mean], [undefended.leakage.mean], s=_AREA, color="black", label="undefended")
        for number, family in enumerate(families):
            own = [mark for mark in marks if mark.family == family]
            axes.scatter(
                [mark.utility.mean for mark in own],
                [mark.leakage.mean for mark in own],
                s=[_AREA * (1 + rank) for rank in _ranks(own)],
                color=_COLORS[number % len(_COLORS)],
                marker=_MARKERS[number % len(_MARKERS)],
                alpha=0.75,
                label=family,
            )
        axes.set_xlabel(f"{utility} on the test rows")
        axes.set_ylabel(leakage)

    contents = [
        f"{mark.name}: {decimals(mark.utility.mean, 3)}, {decimals(mark.leakage.mean, 3)}"
        for mark in (undefended, *marks)
    ]
    words = f"{utility} and {leakage}. {'; '.join(contents)}."
    return Image(title=title, address=_render(draw), words=words)


def point_plot(title: str, groups: Mapping[str, Sequence[tuple[float, float]]], axes_names: tuple[str, str]) -> Image:
    """Return groups of points in a plane; the content in words is that of the last group.

    Args:
        title: of the image.
        groups: by name; later ones are drawn over earlier ones.
        axes_names: labels of the horizontal and the vertical axis.

    Raises:
        DependencyError: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        for number, (name, points) in enumerate(groups.items()):
            size, color = (_AREA / 4, "#999999") if number == 0 else (_AREA, _COLORS[number % len(_COLORS)])
            axes.scatter([x for x, _ in points], [y for _, y in points], s=size, color=color, alpha=0.7, label=name)
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(axes_names[1])

    last = list(groups.values())[-1]
    words = f"{axes_names[0]} and {axes_names[1]}: {'; '.join(f'{x:.3g}, {y:.3g}' for x, y in last)}."
    return Image(title=title, address=_render(draw, horizontal=True), words=words)


def histograms(title: str, edges: Sequence[float], lines: Mapping[str, Sequence[float]], axis: str) -> Image:
    """Return outlines of histograms; the content in words is the place of each one's highest bin.

    Args:
        title: of the image.
        edges: of the bins.
        lines: by name, the share of the rows in each bin.
        axis: label of the axis of values.

    Raises:
        DependencyError: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        for number, (name, shares) in enumerate(lines.items()):
            axes.stairs(shares, edges, label=name, color=_COLORS[number % len(_COLORS)])
        axes.set_xlabel(axis)
        axes.set_ylabel("share of the class")

    highest = {name: max(range(len(shares)), key=lambda at: shares[at]) for name, shares in lines.items()}
    places = [f"{name} {decimals((edges[at] + edges[at + 1]) / 2, 2)}" for name, at in highest.items()]
    return Image(title=title, address=_render(draw), words=f"Most rows of a class at {axis}: {'; '.join(places)}.")


def _ranks(marks: Sequence[DefenseMark]) -> list[int]:
    """Return the rank of each budget among a family's."""
    budgets = sorted({mark.budget or 0.0 for mark in marks})
    return [budgets.index(mark.budget or 0.0) for mark in marks]


def say_where_zero_is(axes: Axes, *, horizontal: bool = True) -> None:
    """Say at the label of an axis that it does not include 0, where it does not; of both, or the vertical one."""
    for axis, (low, high) in ((axes.yaxis, axes.get_ylim()), (axes.xaxis, axes.get_xlim()))[: 1 + horizontal]:
        if axis.get_label_text() and not min(low, high) <= 0 <= max(low, high):
            axis.set_label_text(f"{axis.get_label_text()} (axis without 0)")


def _put_legend(axes: Axes) -> None:
    """Put the legend above the axes, where it hides nothing."""
    longest = max(map(len, axes.get_legend_handles_labels()[1]))
    columns = min(3, max(1, _LEGEND // (longest + 6)))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize=6.5, frameon=False, borderaxespad=0.2)


def _render(draw: Callable[[Axes], None], height: float = _SIZE[1], *, horizontal: bool = False) -> str:
    """Return the address of a drawing; ``horizontal``: say of the horizontal axis, too, where it does not include 0."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_library("the page", "matplotlib", "report") from error
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "study", "font.size": 8, "text.parse_math": False}):
        figure = Figure(figsize=(_SIZE[0], height))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(True, linewidth=0.4, alpha=0.5)
        axes.margins(0.08, 0.1)
        say_where_zero_is(axes, horizontal=horizontal)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            _put_legend(axes)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
