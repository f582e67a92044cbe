"""Export of the joined model, where every party consents.

Setting: the active party says which model it would export, and what for. Each passive party's caller answers. Only
after all have consented are any splits told: then the active party learns columns and thresholds of all splits, which
no training or prediction tells it. Where one party refuses, no party tells anything, and nothing is written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from labelward.errors import OutputError, PeerError, PolicyError
from labelward.messages.explain import ExportConsent, ExportDecision, ExportRecords, ExportRequest
from labelward.party.context import Context
from labelward.protocols.tree.share import ModelShare
from labelward.protocols.tree.xgboost_json import xgboost_json

__all__ = ["export_active", "export_passive"]

_MOST_COLUMNS = 1 << 20

Consent = bool | Callable[[str], bool]


def export_active(ctx: Context, share: ModelShare, path: Path, *, purpose: str) -> Path:
    """Ask every party for its consent and its splits, and write the joined model as XGBoost's JSON.

    See :mod:`~labelward.protocols.tree.xgboost_json` for what differs from the federated model.

    Args:
        share: the active party's share.
        path: the file to be written, ending in ``.json``, with mode 0600; an existing one is replaced.
        purpose: what for, in words; the passive parties' callers decide by it.

    Raises:
        OutputError: the file cannot be written; nobody was asked where that can be known before.
        PolicyError: a party does not consent; nothing is written.
        PeerError: a peer failed, or what it told does not fit.
    """
    if path.suffix != ".json" or not path.parent.is_dir() or path.is_dir():
        raise OutputError(
            f"a model cannot be exported to {path}: not a file name ending in .json, in an existing folder",
            code="unwritable",
            value=path,
        )
    for peer in ctx.peers:
        ctx.send(peer, ExportRequest(share.model, purpose), ())
    answers = {peer: ctx.recv(peer, ExportConsent, ()) for peer in ctx.peers}
    for peer, answer in answers.items():
        if (answer.model, answer.purpose) != (share.model, purpose):
            raise PeerError(peer, "answered another request", message="ExportConsent", step=(), code="peer-message")
    refused = tuple(peer for peer, answer in answers.items() if not answer.consent)
    for peer in ctx.peers:
        ctx.send(peer, ExportDecision(refused), ())
    if refused:
        names = ", ".join(map(repr, refused))
        raise PolicyError(
            f"the model is not exported: no consent of {names} (for purpose {purpose!r})",
            code="missing",
            value=tuple(refused),
        )
    records = {ctx.party: _told(share, names=True)}
    for peer in ctx.peers:
        records[peer] = ctx.recv(peer, ExportRecords, ())
        _check(peer, records[peer], share.records_of(peer))
    return _write(path, xgboost_json(share, records))


def export_passive(
    ctx: Context, share: ModelShare, *, consent: Consent = False, names: bool = False
) -> tuple[str, ...]:
    """Answer a request to export the joined model; returns the parties that refused (none: the splits were told).

    Args:
        share: this party's share.
        consent: whether this party agrees; a function decides by the purpose that the active party states.
        names: whether the names of this party's columns are told, too; else they become ``f0``, ``f1``, ... in the
            order of its share.

    Raises:
        PeerError: the active party failed, or holds a share of another model.
    """
    request = ctx.recv(ctx.active, ExportRequest, ())
    if request.model != share.model:
        reason = f"exports model {request.model!r}; the share here is of {share.model!r}"
        raise PeerError(ctx.active, reason, message="ExportRequest", step=(), code="peer-message", value=request.model)
    agreed = consent(request.purpose) if callable(consent) else consent
    ctx.send(ctx.active, ExportConsent(request.model, request.purpose, agreed is True), ())
    refused = ctx.recv(ctx.active, ExportDecision, ()).refused
    if agreed is not True:
        return refused if ctx.party in refused else (ctx.party, *refused)
    if not refused:
        ctx.send(ctx.active, _told(share, names=names), ())
    return refused


def _told(share: ModelShare, *, names: bool) -> ExportRecords:
    """Return what a party tells of its splits."""
    return ExportRecords(
        names=share.columns if names else (),
        width=len(share.columns),
        categorical=tuple(position for position, name in enumerate(share.columns) if name in share.categories),
        columns=share.own.columns,
        thresholds=share.own.thresholds,
        missing_left=share.own.missing_left,
        categories=dict(share.own.categories),
    )


def _check(peer: str, told: ExportRecords, records: int) -> None:
    """Refuse splits that do not fit the active party's share or each other."""
    fits = (
        0 <= told.width <= _MOST_COLUMNS
        and len(told.columns) == len(told.thresholds) == records
        and len(told.names) in (0, told.width)
        and all(0 <= column < told.width for column in (*told.columns, *told.categorical))
        and not any(math.isnan(threshold) for threshold in told.thresholds)
        and all(0 <= record < records for record in (*told.missing_left, *told.categories))
        and all(told.columns[record] in told.categorical for record in told.categories)
        and all(0 <= code < 1 << 24 for codes in told.categories.values() for code in codes)
    )
    if not fits:
        reason = f"told {len(told.columns)} splits where it has {records}, or columns and categories that cannot be"
        raise PeerError(peer, reason, message="ExportRecords", step=(), code="peer-message", value=len(told.columns))


def _write(path: Path, text: bytes) -> Path:
    """Write the whole file or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
        partial.replace(path)
    except OSError as error:
        raise OutputError(
            f"a model cannot be exported to {path}: {error.strerror}", code="unwritable", value=path
        ) from error
    return path
