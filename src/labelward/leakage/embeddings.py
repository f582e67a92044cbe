"""Explanations of trained bottom models for the report: labels in embeddings, and Grad-CAM evidence in images.

For each passive party: the accuracy of nearest neighbors in its embedding before and after training, and both
embeddings in two dimensions by t-SNE. For images: Grad-CAM over the joint model. Measured on the models in the folder
of a run, independent of the views, and stored next to ``run.json``.

Reference: Section 5.3, Figure 4 and Table 5 of the label inference paper. Differences: the untrained bottom model is
shown for comparison, and neighbor accuracy does not depend on the plot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import FileFormatError
from labelward.federation.simulation import MODEL
from labelward.kernels.spectral import one_thread
from labelward.protocols.family import ImageMaps, ModelFamily
from labelward.rng import PrivateSeed
from labelward.runs.secure_files import write_bytes

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

EXPLANATIONS_FILE = "explanations.json"
NEIGHBORS = 5
_MEASURED, _PLOTTED, _MIN_ROWS = 1000, 500, 20
"""Training rows that are measured, those of them that are plotted, and the required minimum."""
_EVIDENCE_ROWS, _PICTURES = 200, 6
"""Test rows over which Grad-CAM is averaged, and those of them that are shown."""
_SIDE = 1000
_ITERATIONS = 500


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Projection of an embedding.

    Attributes:
        neighbors: share of the measured rows that have the majority label of their nearest neighbors.
        points: plotted rows in two dimensions, coordinates from 0 to 1,000.
    """

    neighbors: float
    points: tuple[tuple[int, int], ...]


class LabelsInEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of training rows in a party's embeddings, before and after training.

    Attributes:
        rows: number of measured rows.
        frequent: share of their most frequent label: the baseline without neighbors.
        labels: class numbers of the plotted rows; empty where none are shown.
    """

    party: str
    rows: int
    frequent: float
    labels: tuple[int, ...]
    before: Projection
    after: Projection


class ClassMap(msgspec.Struct, frozen=True, kw_only=True):
    """One party's part of an image with its Grad-CAM map: one byte for each pixel and each cell.

    Attributes:
        shape: channels, height and width of the pixels.
        cells: height and width of the map.
        map: 255 is the largest value of the row's maps over all parties.
    """

    party: str
    shape: tuple[int, int, int]
    pixels: bytes
    cells: tuple[int, int]
    map: bytes


class ExplainedImage(msgspec.Struct, frozen=True, kw_only=True):
    """A test row: class number and each party's part, the active party's first."""

    label: int
    parts: tuple[ClassMap, ...]


class Explanations(msgspec.Struct, frozen=True, kw_only=True):
    """Stored explanations of a run.

    Attributes:
        classes: names of classes by number; for regression, of bins.
        embeddings: of passive parties.
        pictures: for image models.
        evidence: for image models by party: share of the values of all maps, mean over ``evidence_rows`` test rows.
        seconds: duration of the computation.
    """

    format: Literal[1] = 1
    classes: tuple[str, ...]
    embeddings: tuple[LabelsInEmbedding, ...]
    pictures: tuple[ExplainedImage, ...] = ()
    evidence: dict[str, float] = {}
    evidence_rows: int = 0
    seconds: float = 0.0


@dataclass
class Explainer:
    """Explains the runs of one seed; results that do not depend on the run are computed once.

    Rows are drawn privately: who knows which rows are shown, and their embeddings, finds the label of each.
    """

    programs: ModelFamily[Any]
    data: VerticalDataset
    seed: int
    private: PrivateSeed
    _before: dict[tuple[str, int], Projection] = field(default_factory=dict)

    def explain(self, folder: Path, parties: Sequence[str], *, rows_shown: bool = True) -> None:
        """Write the explanations of a run into its folder; no file for models without embeddings.

        Args:
            folder: of the run, with all parties' shares.
            parties: passive parties whose embeddings are measured.
            rows_shown: whether single rows stand in it with their labels; else figures only.

        Raises:
            FileFormatError: a share is missing or damaged.
            OutputError: the file cannot be written.
        """
        if not self.programs.bulky:
            return
        start = time.perf_counter()
        shares = {party.name: self.programs.load(folder / party.name / MODEL) for party in self.data.parties}
        chosen = [party for party in self.data.parties if party.name in parties]
        all_found = (self._embedded(shares[party.name], party, rows_shown) for party in chosen)
        embeddings = [found for found in all_found if found is not None]
        rows = self._sampled("explained test rows", len(self.data.test_labels))[:_EVIDENCE_ROWS]
        images = self.programs.class_maps(shares, self.data, rows)
        if not embeddings and not images:
            return
        bins = range(int(self.data.train_labels.max()) + 1)
        explanations = Explanations(
            classes=self.data.classes or tuple(f"bin {number + 1}" for number in bins),
            embeddings=tuple(embeddings),
            pictures=_pictures(images, self.data.test_labels[rows]) if rows_shown else (),
            evidence=_evidence(images),
            evidence_rows=len(rows) if images else 0,
            seconds=time.perf_counter() - start,
        )
        write_bytes(folder / EXPLANATIONS_FILE, msgspec.json.encode(explanations) + b"\n")

    def _sampled(self, purpose: str, rows: int) -> NDArray[np.int64]:
        return self.private.learning(self.seed, 0, purpose).permutation(rows).astype(np.int64)

    def _embedded(self, share: Any, party: PartyDataset, rows_shown: bool) -> LabelsInEmbedding | None:
        rows = self._sampled("explained rows", len(self.data.train_labels))[:_MEASURED]
        found = self.programs.embeddings(share, party, rows, seed=self.seed)
        if found is None or len(rows) < _MIN_ROWS or not all(np.isfinite(each).all() for each in found):
            return None
        trained, untrained = found
        labels, shown = self.data.train_labels[rows], _PLOTTED if rows_shown else 0
        if (party.name, shown) not in self._before:
            self._before[party.name, shown] = self._projected(untrained, labels, shown)
        return LabelsInEmbedding(
            party=party.name,
            rows=len(rows),
            frequent=float(np.bincount(labels).max() / len(labels)),
            labels=tuple(labels[:shown].tolist()),
            before=self._before[party.name, shown],
            after=self._projected(trained, labels, shown),
        )

    def _projected(self, embedding: Floats, labels: Labels, shown: int) -> Projection:
        points = project_to_plane(embedding[:shown], seed=self.seed) if shown else np.zeros((0, 2))
        return Projection(
            neighbors=neighbor_accuracy(embedding, labels),
            points=tuple((x, y) for x, y in np.rint(points * _SIDE).astype(int).tolist()),
        )


def neighbor_accuracy(embedding: Floats, labels: Labels, neighbors: int = NEIGHBORS) -> float:
    """Return the share of rows whose label is predicted by their nearest neighbors, excluding the row itself.

    Args:
        embedding: [rows, dimensions]; distances are Euclidean, without scaling.
        labels: int64 [rows].
        neighbors: number of neighbors, below the number of rows. Each has one vote; the nearest one breaks ties.
    """
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=neighbors).fit(embedding).kneighbors(return_distance=False)
    neighbor_labels = labels[nearest]
    votes = (neighbor_labels[:, :, None] == np.arange(labels.max() + 1)).sum(1).astype(np.float64)
    votes[np.arange(len(labels)), neighbor_labels[:, 0]] += 0.5
    return float(np.mean(votes.argmax(1) == labels))


def project_to_plane(embedding: Floats, *, seed: int) -> Floats:
    """Return a two-dimensional t-SNE projection of an embedding, coordinates from 0 to 1.

    Deterministic, initialized with the first two principal components. A one-dimensional embedding becomes a line,
    equal rows become one point.
    """
    from sklearn.manifold import TSNE

    if (embedding == embedding[0]).all():
        return np.full((len(embedding), 2), 0.5)
    if embedding.shape[1] == 1:
        embedding = np.column_stack([embedding, np.zeros(len(embedding))])
    model = TSNE(
        init="pca", perplexity=min(30.0, (len(embedding) - 1) / 3), max_iter=_ITERATIONS, random_state=seed % (1 << 32)
    )
    with one_thread():
        points = np.asarray(model.fit_transform(embedding), dtype=np.float64)
    low, extent = points.min(0), np.ptp(points, axis=0).max()
    return np.asarray((points - low) / (extent or 1.0))


def read_explanations(folder: Path) -> Explanations | None:
    """Return the stored explanations of a run, or None.

    Raises:
        FileFormatError: the file is damaged or of another format version.
    """
    path = folder / EXPLANATIONS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Explanations)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}", code="unreadable", value=str(path)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"damaged, or of another version: {error}", code="damaged", field=str(path)) from error


def _pictures(images: Mapping[str, ImageMaps], labels: Labels) -> tuple[ExplainedImage, ...]:
    """Return the first row of each class, for a limited number of classes."""
    if not images:
        return ()
    low = min(float(each.pixels.min()) for each in images.values())
    high = max(float(each.pixels.max()) for each in images.values())
    _, first = np.unique(labels, return_index=True)
    pictures = []
    for row in first[:_PICTURES].tolist():
        largest = max(float(each.maps[row].max()) for each in images.values())
        parts = [
            ClassMap(
                party=party,
                shape=_three(each.pixels[row].shape),
                pixels=_bytes(each.pixels[row] - low, high - low),
                cells=_two(each.maps[row].shape),
                map=_bytes(each.maps[row], largest),
            )
            for party, each in images.items()
        ]
        pictures.append(ExplainedImage(label=int(labels[row]), parts=tuple(parts)))
    return tuple(pictures)


def _evidence(images: Mapping[str, ImageMaps]) -> dict[str, float]:
    """Return each party's share of the map values, mean over the rows with a nonzero map."""
    sums = np.array([each.maps.sum((1, 2)) for each in images.values()])
    if not sums.any():
        return {}
    nonzero = sums[:, sums.sum(0) > 0]
    return dict(zip(images, (nonzero / nonzero.sum(0)).mean(1).tolist(), strict=True))


def _bytes(values: Floats, largest: float) -> bytes:
    return np.rint(values * (255 / (largest or 1.0))).astype(np.uint8).tobytes()


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    height, width = shape
    return height, width
