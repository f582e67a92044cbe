"""Comparison of a stored view with what shares say of its training: is anything missing?

A view verifies by itself as long as its hash chain is closed, which whoever has the file can do after cutting it. The
party's own share says how many records the view had, and with which hash; a peer's share says what was exchanged.
"""

from __future__ import annotations

from pathlib import Path

from labelward.errors import FileFormatError
from labelward.federation.components import MODELS, model_family
from labelward.federation.simulation import MODEL
from labelward.job import ComponentSpec
from labelward.party.evidence import Evidence
from labelward.party.transcript import FILE_NAME, has_position
from labelward.party.view import View


def verify_evidence(folder: Path, peer: Path | None = None) -> Evidence | None:
    """Compare a view with the party's share beside it, and with a peer's share.

    Args:
        folder: of the view.
        peer: folder of the peer's share; None: it is not at hand.

    Returns:
        What the own share says; None where it is missing, or of a version that wrote no evidence.

    Raises:
        FileFormatError: a share is damaged, of another training, or without evidence where a peer's was given; or
            records or messages are missing or were changed.
    """
    view = View.load(folder)
    path = folder / FILE_NAME if folder.is_dir() else folder
    beside = path.resolve().parent.parent / MODEL
    _, own = _evidence(view, beside) if beside.exists() else ("", None)
    if own is not None:
        if own.records and not has_position(path, (own.records, own.head)):
            raise FileFormatError(
                f"the share was saved after record {own.records} of the view, which is missing or another one",
                code="incomplete",
                field=str(folder),
                value=own.records,
            )
        view.first(own.records).require(own, view.party)
    if peer is not None:
        party, theirs = _evidence(view, peer)
        if theirs is None:
            raise FileFormatError("the share has no evidence of its training", code="format-version", field=str(peer))
        view.require(theirs, party)
    return own


def _evidence(view: View, folder: Path) -> tuple[str, Evidence | None]:
    """Return the owner of a share of the view's kind of model, and what it says of its training."""
    kind = view.parameter("model.kind")
    if kind not in MODELS.classes():
        raise FileFormatError(f"the view is of model {kind!r}, which this version does not know", code="unsupported")
    share = model_family(ComponentSpec(kind)).load(folder)
    return share.party, getattr(share, "evidence", None)
