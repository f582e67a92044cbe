"""What the bottom models of a run learned, for the report: how labels lie in embeddings, and on what an answer rests.

Of each passive party: how often a row's nearest rows by embedding have its label, under its bottom model as it was
trained and as it was before; and both embeddings in the plane, by t-SNE. Of images: Grad-CAM over the joined model.
It is measured on the models as they lie in a run's folder, whatever the views hold, and stored beside ``run.json``.

Reference: Section 5.3, Figure 4 and Table 5 of the label inference paper. Differences: the untrained bottom stands
beside the trained one; figures that do not depend on the drawing stand beside both pictures.
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
from labelward.federation.adapter import ImageMaps, ModelAdapter
from labelward.federation.simulation import MODEL
from labelward.rng import learning
from labelward.runs.secure_files import atomic_write

__all__ = [
    "EXPLANATIONS_FILE",
    "NEIGHBORS",
    "ClassMap",
    "ExplainedImage",
    "Explainer",
    "Explanations",
    "LabelsInEmbedding",
    "Projection",
    "neighbor_accuracy",
    "project_to_plane",
    "read_explanations",
]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

EXPLANATIONS_FILE = "explanations.json"
NEIGHBORS = 5
_MEASURED, _DRAWN, _LEAST = 1000, 500, 20
"""Training rows that are measured, those among them that are drawn, and how many there must be."""
_LOOKED_AT, _SHOWN = 200, 6
"""Test rows over which Grad-CAM is averaged, and those among them that are shown."""
_SIDE = 1000
_ITERATIONS = 500


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """An embedding of some rows.

    Attributes:
        neighbors: share of the measured rows of whose nearest rows most have their label.
        points: of the drawn rows in the plane, each coordinate from 0 to 1,000.
    """

    neighbors: float
    points: tuple[tuple[int, int], ...]


class LabelsInEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """How the labels of training rows lie in a party's embeddings, before training and after it.

    Attributes:
        rows: that were measured.
        frequent: share of the most frequent label among them: what one reaches without any neighbor.
        labels: class numbers of the drawn rows.
    """

    party: str
    rows: int
    frequent: float
    labels: tuple[int, ...]
    before: Projection
    after: Projection


class ClassMap(msgspec.Struct, frozen=True, kw_only=True):
    """One party's part of an image, and on what of it the answer rests: a byte for each pixel and for each cell.

    Attributes:
        shape: channels, height and width of the pixels.
        cells: height and width of the map.
        map: 255 is the largest value of the row's maps at all parties.
    """

    party: str
    shape: tuple[int, int, int]
    pixels: bytes
    cells: tuple[int, int]
    map: bytes


class ExplainedImage(msgspec.Struct, frozen=True, kw_only=True):
    """A test row: its class number, and each party's part, the active party's first."""

    label: int
    parts: tuple[ClassMap, ...]


class Explanations(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a run.

    Attributes:
        classes: names of the labels by number; of quantities of the bins that they are cut into.
        embeddings: of the passive parties that are looked at.
        pictures: of image models.
        evidence: of image models by party: its share of the values of all maps, mean over ``evidence_rows`` test rows.
        seconds: what all this took.
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
    """Explains the runs of one seed; what does not depend on the run is worked out once."""

    programs: ModelAdapter[Any]
    data: VerticalDataset
    seed: int
    _before: dict[str, Projection] = field(default_factory=dict)

    def explain(self, folder: Path, parties: Sequence[str]) -> None:
        """Write what the models of a run tell into its folder; nothing for models that make no embeddings.

        Args:
            folder: of the run, with all parties' shares.
            parties: passive ones, whose embeddings are looked at.

        Raises:
            FileFormatError: a share is missing or damaged.
            OutputError: the file cannot be written.
        """
        if not self.programs.bulky:
            return
        start = time.perf_counter()
        shares = {party.name: self.programs.load(folder / party.name / MODEL) for party in self.data.parties}
        held = [party for party in self.data.parties if party.name in parties]
        embeddings = [found for party in held if (found := self._embedded(shares[party.name], party)) is not None]
        rows = self._drawn("explained test rows", len(self.data.test_labels))[:_LOOKED_AT]
        images = self.programs.class_maps(shares, self.data, rows)
        if not embeddings and not images:
            return
        bins = range(int(self.data.train_labels.max()) + 1)
        explanations = Explanations(
            classes=self.data.classes or tuple(f"bin {number + 1}" for number in bins),
            embeddings=tuple(embeddings),
            pictures=_pictures(images, self.data.test_labels[rows]),
            evidence=_evidence(images),
            evidence_rows=len(rows) if images else 0,
            seconds=time.perf_counter() - start,
        )
        with atomic_write(folder / EXPLANATIONS_FILE) as file:
            file.write(msgspec.json.encode(explanations) + b"\n")

    def _drawn(self, purpose: str, rows: int) -> NDArray[np.int64]:
        return learning(self.seed, "", 0, purpose).permutation(rows).astype(np.int64)

    def _embedded(self, share: Any, held: PartyDataset) -> LabelsInEmbedding | None:
        rows = self._drawn("explained rows", len(self.data.train_labels))[:_MEASURED]
        found = self.programs.embeddings(share, held, rows, seed=self.seed)
        if found is None or len(rows) < _LEAST or not all(np.isfinite(each).all() for each in found):
            return None
        trained, untrained = found
        labels = self.data.train_labels[rows]
        if held.name not in self._before:
            self._before[held.name] = self._projected(untrained, labels)
        return LabelsInEmbedding(
            party=held.name,
            rows=len(rows),
            frequent=float(np.bincount(labels).max() / len(labels)),
            labels=tuple(labels[:_DRAWN].tolist()),
            before=self._before[held.name],
            after=self._projected(trained, labels),
        )

    def _projected(self, embedding: Floats, labels: Labels) -> Projection:
        points = project_to_plane(embedding[:_DRAWN], seed=self.seed)
        return Projection(
            neighbors=neighbor_accuracy(embedding, labels),
            points=tuple((x, y) for x, y in np.rint(points * _SIDE).astype(int).tolist()),
        )


def neighbor_accuracy(embedding: Floats, labels: Labels, neighbors: int = NEIGHBORS) -> float:
    """Return the share of rows that get their own label from their nearest rows, none of which is the row itself.

    Args:
        embedding: [rows, numbers]; distances are Euclidean, between the numbers as they are.
        labels: int64 [rows].
        neighbors: fewer than rows. Each has a vote; where votes are equal, the nearest row's counts more.
    """
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=neighbors).fit(embedding).kneighbors(return_distance=False)
    told = labels[nearest]
    votes = (told[:, :, None] == np.arange(labels.max() + 1)).sum(1).astype(np.float64)
    votes[np.arange(len(labels)), told[:, 0]] += 0.5
    return float(np.mean(votes.argmax(1) == labels))


def project_to_plane(embedding: Floats, *, seed: int) -> Floats:
    """Return the rows of an embedding in the plane by t-SNE, each coordinate from 0 to 1.

    Equal calls give equal points. It starts from the first two principal components; of a single number it makes a
    line, of equal rows one point.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if (embedding == embedding[0]).all():
        return np.full((len(embedding), 2), 0.5)
    if embedding.shape[1] == 1:
        embedding = np.column_stack([embedding, np.zeros(len(embedding))])
    model = TSNE(
        init="pca", perplexity=min(30.0, (len(embedding) - 1) / 3), max_iter=_ITERATIONS, random_state=seed % (1 << 32)
    )
    with threadpool_limits(1):  # sums of several threads round differently, and they wait for each other
        points = np.asarray(model.fit_transform(embedding), dtype=np.float64)
    low, extent = points.min(0), np.ptp(points, axis=0).max()
    return np.asarray((points - low) / (extent or 1.0))


def read_explanations(folder: Path) -> Explanations | None:
    """Return what is stored in the folder of a run, or None where nothing is.

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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"damaged, or of another version: {error}", code="damaged", field=str(path)) from error


def _pictures(images: Mapping[str, ImageMaps], labels: Labels) -> tuple[ExplainedImage, ...]:
    """Return the first row of each class, up to so many classes, in bytes."""
    if not images:
        return ()
    low = min(float(each.pixels.min()) for each in images.values())
    high = max(float(each.pixels.max()) for each in images.values())
    _, first = np.unique(labels, return_index=True)
    pictures = []
    for row in first[:_SHOWN].tolist():
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
    """Return each party's share of its rows' maps, mean over the rows of which any map shows something."""
    sums = np.array([each.maps.sum((1, 2)) for each in images.values()])
    if not sums.any():
        return {}
    shown = sums[:, sums.sum(0) > 0]
    return dict(zip(images, (shown / shown.sum(0)).mean(1).tolist(), strict=True))


def _bytes(values: Floats, largest: float) -> bytes:
    return np.rint(values * (255 / (largest or 1.0))).astype(np.uint8).tobytes()


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    height, width = shape
    return height, width
