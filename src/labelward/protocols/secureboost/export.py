"""Export of the joined model, where every party consents.

Setting: the active party states which model it wants to export, and for which purpose. Each passive party's caller
answers. Splits are revealed only after all have consented: the active party then learns columns and thresholds of all
splits, which neither training nor prediction reveals. Where one party refuses, no party reveals anything, and nothing
is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from labelward.errors import OutputError, PolicyError, quoted, wrong_message
from labelward.messages.explain import ExportConsent, ExportDecision, ExportRecords, ExportRequest
from labelward.party.context import Context
from labelward.protocols.secureboost.share import ModelShare
from labelward.protocols.secureboost.xgboost_json import xgboost_json
from labelward.runs.secure_files import write_bytes

_LONGEST_PURPOSE = 1000  # characters
_MOST_COLUMNS = 1 << 20

Consent = bool | Callable[[str], bool]


def export_active(ctx: Context, share: ModelShare, path: Path, *, purpose: str) -> Path:
    """Ask every party for its consent and its splits, and write the joined model as XGBoost's JSON.

    See :mod:`~labelward.protocols.secureboost.xgboost_json` for what differs from the federated model.

    Args:
        path: the file to be written, ending in ``.json``, with mode 0600; an existing one is replaced.
        purpose: a free text, by which the passive parties' callers decide.

    Raises:
        OutputError: the file cannot be written; where that is known beforehand, no party is asked.
        PolicyError: a party does not consent; nothing is written.
        PeerError: a peer failed, or its splits do not fit the model.
    """
    if path.suffix != ".json" or not path.parent.is_dir() or path.is_dir():
        reason = f"a model cannot be exported to {path}: name a .json file in an existing folder"
        raise OutputError(reason, code="unwritable", value=path)
    for peer in ctx.peers:
        ctx.send(peer, ExportRequest(share.model, purpose), ())
    answers = {peer: ctx.recv(peer, ExportConsent, ()) for peer in ctx.peers}
    for peer, answer in answers.items():
        if (answer.model, answer.purpose) != (share.model, purpose):
            raise wrong_message(peer, "ExportConsent", "answered another request", ())
    refused = tuple(peer for peer, answer in answers.items() if not answer.consent)
    for peer in sorted(ctx.peers, key=lambda each: each in refused):  # who refused may end at once
        ctx.send(peer, ExportDecision(refused), ())
    if refused:
        names = ", ".join(map(repr, refused))
        reason = f"that of {names} is missing, so the model is not exported (for purpose {purpose!r})"
        raise PolicyError(reason, code="missing", field="consent", value=tuple(refused))
    records = {ctx.party: _export_records(share, names=True)}
    for peer in ctx.peers:
        records[peer] = ctx.recv(peer, ExportRecords, ())
        _check(peer, records[peer], share.records_of(peer))
    write_bytes(path, xgboost_json(share, records))
    return path


def export_passive(
    ctx: Context, share: ModelShare, *, consent: Consent = False, names: bool = False
) -> tuple[str, ...]:
    """Answer a request to export the joined model; returns the parties that refused (none: the splits were sent).

    Args:
        consent: whether this party agrees; a function decides by the purpose that the active party states.
        names: whether to reveal the names of this party's columns, too; else they become ``f0``, ``f1``, ... in the
            order of its share.

    Raises:
        PeerError: the active party failed, or holds a share of another model.
    """
    request = ctx.recv(ctx.active, ExportRequest, ())
    if request.model != share.model:
        reason = f"exports model {request.model!r}; the share here is of {share.model!r}"
        raise wrong_message(ctx.active, "ExportRequest", reason, (), value=request.model)
    if request.purpose != quoted(request.purpose, _LONGEST_PURPOSE):
        raise wrong_message(ctx.active, "ExportRequest", "states a purpose that cannot be shown whole", ())
    agreed = consent(request.purpose) if callable(consent) else consent
    ctx.send(ctx.active, ExportConsent(request.model, request.purpose, agreed is True), ())
    refused = ctx.recv(ctx.active, ExportDecision, ()).refused
    if agreed is not True:
        return refused if ctx.party in refused else (ctx.party, *refused)
    if not refused:
        ctx.send(ctx.active, _export_records(share, names=names), ())
    return refused


def _export_records(share: ModelShare, *, names: bool) -> ExportRecords:
    """Return a party's splits as they travel."""
    return ExportRecords(
        names=share.columns if names else (),
        width=len(share.columns),
        categorical=tuple(position for position, name in enumerate(share.columns) if name in share.categories),
        columns=share.own.columns,
        thresholds=share.own.thresholds,
        missing_left=share.own.missing_left,
        categories=dict(share.own.categories),
        values={share.columns.index(name): texts for name, texts in share.categories.items()} if names else {},
    )


def _check(peer: str, sent: ExportRecords, records: int) -> None:
    """Raise :class:`PeerError` for splits that do not fit the active party's share or each other."""
    fits = (
        0 <= sent.width <= _MOST_COLUMNS
        and len(sent.columns) == len(sent.thresholds) == records
        and len(sent.names) in (0, sent.width)
        and set(sent.values) <= set(sent.categorical)
        and all(0 <= column < sent.width for column in (*sent.columns, *sent.categorical))
        and not any(math.isnan(threshold) for threshold in sent.thresholds)
        and all(0 <= record < records for record in (*sent.missing_left, *sent.categories))
        and all(sent.columns[record] in sent.categorical for record in sent.categories)
        and all(0 <= code < 1 << 24 for codes in sent.categories.values() for code in codes)
    )
    if not fits:
        reason = f"sent {len(sent.columns)} splits where it has {records}, or impossible columns or categories"
        raise wrong_message(peer, "ExportRecords", reason, (), value=len(sent.columns))
