"""Figures of trained bottom models: labels in their embeddings, and Grad-CAM evidence by party."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelward.installation import missing_library
from labelward.leakage.embeddings import NEIGHBORS, ClassMap, ExplainedImage, Explanations, LabelsInEmbedding
from labelward.report.formatting import NOTHING, decimals
from labelward.report.plots import Image
from labelward.report.tables import ReportTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = ("#0067a5", "#c2410c", "#00795a", "#a3337c", "#b08500", "#4b5fc1", "#6b4a2f", "#d1495b", "#2a9d8f", "#777777")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_MAX_COLORS = 10
"""Largest number of labels with distinct colors; more labels share a color scale."""
_DOTS = 160  # per inch
_GAP = 1
"""Gap between the parties' parts of an image, in pixels."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingFigures:
    """Images of one run, each with a sentence of description."""

    label: str
    images: tuple[tuple[Image, str], ...]


def embedding_figures(explained: Mapping[str, Explanations]) -> tuple[EmbeddingFigures, ...]:
    """Return the images by run.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    return tuple(_run(label, found) for label, found in explained.items())


def neighbor_table(explained: Mapping[str, Explanations]) -> ReportTable:
    """Return the share of rows with the label of their nearest neighbors by embedding, before and after training."""
    rows = [
        (
            label,
            each.party,
            f"{each.rows:,}",
            *map(_percent, (each.frequent, each.before.neighbors, each.after.neighbors)),
        )
        for label, found in explained.items()
        for each in found.embeddings
    ]
    return ReportTable(
        caption="Share of rows with the majority label of their nearest neighbors by embedding",
        header=("run", "party", "rows", "most frequent label", "before training", "after training"),
        rows=tuple(rows),
        words=2,
        note=f"Measured on training rows in the embedding, not in the plot, by majority of the {NEIGHBORS} nearest "
        "neighbors. “most frequent label” is the share reached by always guessing that label. First seed only.",
    )


def evidence_table(explained: Mapping[str, Explanations]) -> ReportTable:
    """Return each party's share of the Grad-CAM evidence in images."""
    parties = list(dict.fromkeys(party for found in explained.values() for party in found.evidence))
    rows = [
        (
            label,
            f"{found.evidence_rows:,}",
            *(_percent(found.evidence[party]) if party in found.evidence else NOTHING for party in parties),
        )
        for label, found in explained.items()
        if found.evidence
    ]
    return ReportTable(
        caption="Share of the evidence in each party's part of the image (Grad-CAM)",
        header=("run", "test rows", *parties),
        rows=tuple(rows),
        note="Each party's share of a row's map values for the output of the true label, mean over test rows. First "
        "seed only.",
    )


def _run(label: str, found: Explanations) -> EmbeddingFigures:
    drawn = [each for each in found.embeddings if each.labels]
    images = [(_embedding(label, each, found.classes), _describe_embedding(each)) for each in drawn]
    if found.pictures:
        images.append((_images(label, found.pictures, found.classes), _describe_evidence(found)))
    return EmbeddingFigures(label=label, images=tuple(images))


def _describe_embedding(found: LabelsInEmbedding) -> str:
    """Return one sentence on how training changed the distances of rows with the same label."""
    before, after = found.before.neighbors, found.after.neighbors
    noise = 2 * math.sqrt((before * (1 - before) + after * (1 - after)) / found.rows)
    how = "about as close together as before"
    if abs(after - before) > noise:
        how = "closer together than before" if after > before else "less close together than before"
    return (
        f"After training, rows with the same label are {how}: the nearest neighbors have the label of the row for "
        f"{_percent(after)} of rows, before training for {_percent(before)}."
    )


def _describe_evidence(found: Explanations) -> str:
    if not found.evidence:
        return "All maps are zero: Grad-CAM finds no evidence for the labels in these images."
    shares = ", ".join(f"{party} {_percent(share)}" for party, share in found.evidence.items())
    return f"Brighter areas contribute more to the prediction. Shares of the evidence: {shares}."


def _embedding(label: str, found: LabelsInEmbedding, classes: tuple[str, ...]) -> Image:
    labels = np.array(found.labels)

    def draw(figure: Figure) -> None:
        both = figure.subplots(1, 2)
        for axes, title, shown in zip(
            both, ("before training", "after training"), (found.before, found.after), strict=True
        ):
            points = np.array(shown.points, dtype=np.float64).reshape(-1, 2)
            for number in np.unique(labels).tolist():
                of_label = points[labels == number]
                name = classes[number]
                axes.scatter(
                    of_label[:, 0],
                    of_label[:, 1],
                    s=7,
                    linewidths=0,
                    alpha=0.8,
                    color=_color(number, len(classes)),
                    marker=_MARKERS[number % len(_MARKERS)],
                    label=name if len(name) <= 18 else f"{name[:17]}…",
                )
            axes.set_title(title, fontsize=8)
            axes.set(xlim=(-30, 1030), ylim=(-30, 1030), xticks=[], yticks=[], aspect="equal")
        handles, names = both[0].get_legend_handles_labels()
        if len(names) <= 2 * _MAX_COLORS:
            figure.legend(
                handles, names, loc="outside lower center", ncols=5, fontsize=6.5, frameon=False, markerscale=1.8
            )

    lines = math.ceil(min(len(classes), 2 * _MAX_COLORS) / 5)
    return Image(
        title=f"{found.party}: labels in the embedding",
        address=_png(draw, (6.2, 3.2 + 0.16 * lines)),
        words=f"{label}: embeddings of {found.party} in two dimensions (t-SNE), colored by true label, before and "
        f"after training. {_describe_embedding(found)}",
    )


def _images(label: str, pictures: tuple[ExplainedImage, ...], classes: tuple[str, ...]) -> Image:
    def draw(figure: Figure) -> None:
        grid = figure.subplots(2, len(pictures), squeeze=False)
        for (above, below), picture in zip(grid.T, pictures, strict=True):
            left, height = 0, 0
            for part in picture.parts:
                pixels, cells = _pixels(part), _cells(part)
                place = (left - 0.5, left + pixels.shape[1] - 0.5, pixels.shape[0] - 0.5, -0.5)
                for axes in (above, below):
                    axes.imshow(pixels, cmap="gray", vmin=0, vmax=255, extent=place)
                below.imshow(
                    cells, cmap="inferno", vmin=0, vmax=255, alpha=0.65, extent=place, interpolation="bilinear"
                )
                left, height = left + pixels.shape[1] + _GAP, max(height, pixels.shape[0])
            for axes in (above, below):
                axes.set(xlim=(-0.5, left - _GAP - 0.5), ylim=(height - 0.5, -0.5))
                axes.set_axis_off()
            above.set_title(classes[picture.label][:18], fontsize=7)

    parties = ", ".join(part.party for part in pictures[0].parts)
    return Image(
        title=f"Evidence for the prediction; from left to right the parts of {parties}",
        address=_png(draw, (6.2, 2 + 6.2 / len(pictures) / 2)),
        words=f"{label}: {len(pictures)} test images composed of all parties' parts, and the same images with the "
        "evidence for the true label (Grad-CAM).",
    )


def _pixels(part: ClassMap) -> NDArray[np.uint8]:
    """Return [height, width, 3] for three channels, otherwise [height, width]: the mean over channels."""
    pixels = np.frombuffer(part.pixels, dtype=np.uint8).reshape(part.shape)
    return np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else np.rint(pixels.mean(0)).astype(np.uint8)


def _cells(part: ClassMap) -> NDArray[np.uint8]:
    return np.frombuffer(part.map, dtype=np.uint8).reshape(part.cells)


def _color(number: int, labels: int) -> Any:
    if labels <= _MAX_COLORS:
        return _COLORS[number]
    import matplotlib as mpl

    return mpl.colormaps["turbo"](number / (labels - 1))


def _percent(share: float) -> str:
    return f"{decimals(100 * share, 1)} %"


def _png(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_library("the page", "matplotlib", "report") from error
    with mpl.rc_context({"font.size": 8, "text.parse_math": False}):
        figure = Figure(figsize=size, dpi=_DOTS, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
