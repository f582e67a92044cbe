"""The bottom models that an attack on a stored view may use: of the view's own party, from that party's run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labelward.attacks.base import AttackerData
from labelward.errors import FileFormatError
from labelward.federation.components import PROGRAMS, model_adapter
from labelward.federation.simulation import MODEL
from labelward.job import ComponentSpec
from labelward.party.view import View

__all__ = ["load_bottom_models"]


def load_bottom_models(view_dir: Path, model: Path | None = None) -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    """Return what gives the trained and the untrained bottom model of a view's party; None where it has none.

    Args:
        view_dir: folder of the view.
        model: folder of the party's share; None: that beside the view, if there is one.

    Raises:
        FileFormatError: the view or the share is damaged.
        DataError: the share is another party's.
        DependencyError: the share is of a split network, and torch is not installed.
    """
    view = View.load(view_dir)
    folder = view_dir.resolve().parent / MODEL if model is None else model
    kind = view.parameter("model.kind")
    if kind not in PROGRAMS:
        raise FileFormatError(
            f"a view of a model of kind {kind!r}, which this version does not know",
            code="unsupported",
            field=str(view_dir),
            value=kind,
        )
    if not folder.exists() and model is None:
        return None
    own = model_adapter(ComponentSpec(kind)).own(view, AttackerData(features=np.empty((0, 0)), columns=()), folder)
    return None if own.bottom is None or own.untrained is None else (own.bottom, own.untrained)
