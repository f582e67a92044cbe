"""The handshake: parties compare version, job and rows, and agree on row masks and on the checkpoint to resume from.

The active party and each peer exchange ``Hello`` messages and compare them. The active party then announces the
validation and test rows (``RowSplit``), and the peer proves which rows it has (``RowIdDigests``). The result is an
:class:`Agreement`, which every role program requires.

**Row ids** never travel; :mod:`.row_ids` says how they are compared, and counted where they differ.

**Checkpoints** are compared by history, not by number. A passive party says for each of its checkpoints the digest of
its exchange with the active party (:mod:`.exchange`); the active party resumes from the newest checkpoint whose
exchange with every peer equals the peer's own. Where passive parties send to each other (:meth:`Topology.partners`),
each says the digests of these exchanges too, and both of a pair must be equal; a pair begins with a key that the
active party does not learn. It refuses if there is no such checkpoint although a party has progress: a party was
started in another folder, or lost its files. Nothing is removed before all have agreed.

Leakage: all parties learn whether the run continues and, if not, what differs between which parties.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError, quoted, wrong_message
from labelward.installation import version
from labelward.messages.base import RowMask
from labelward.messages.handshake import Hello, PairHistories, PairStart, RowIdDigests, RowSplit
from labelward.party.context import Context
from labelward.party.exchange import Exchange
from labelward.party.row_ids import answer_refusal, bound, digest_ids, refuse_rows

_STEP = (0,)
_MOST_LISTED = 20  # keys in one message
_MOST_STATED = 1 << 20  # columns or classes


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A party's proposal in the handshake.

    Attributes:
        parties: in party order, the active one first.
        job: the shared part of the job, as JSON text by key.
        ids: ids of all the party's rows, in the common order: sorted, if the rows have ids.
        bits: key size; 0 for an engine without keys.
        precision: fractional bits of encrypted values.
        insecure: whether the job permits an insecure engine or key.
        terms: whatever else must be equal at all parties, by name, such as versions of libraries.
        columns: the most columns of which this party will send sums, if it is passive; 0: not said.
        classes: of the label, 1 for a quantity, at the active party; 0: not said.
    """

    parties: tuple[str, ...]
    job: dict[str, str]
    ids: Sequence[str]
    bits: int
    precision: int
    insecure: bool
    terms: Mapping[str, str] = field(default_factory=dict)
    columns: int = 0
    classes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RowMasks:
    """Validation and test rows; all others are training rows.

    Attributes:
        validation: bool [rows], in the order of the proposal's ids.
        test: bool [rows]; disjoint from ``validation``.
    """

    validation: NDArray[np.bool_]
    test: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.validation.shape != self.test.shape or (self.validation & self.test).any():
            raise ValueError("the row masks overlap or have different lengths")

    @classmethod
    def in_order(cls, train: int, validation: int, test: int) -> RowMasks:
        """Return the masks of rows that are sorted into training, validation and test rows."""
        numbers = np.repeat([0, 1, 2], [train, validation, test])
        return cls(validation=numbers == 1, test=numbers == 2)

    def digest(self) -> str:
        """Return the SHA-256 of the masks, as hex."""
        return hashlib.sha256(np.packbits([self.validation, self.test]).tobytes()).hexdigest()

    @property
    def train(self) -> NDArray[np.bool_]:
        """bool [rows]: the training rows."""
        return ~(self.validation | self.test)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Terms that all parties agreed on before a run.

    Attributes:
        parties: in party order, the active one first.
        job: the shared part of the job, as JSON text by key; the same at all of them.
        sides: validation and test rows, as announced by the active party.
        rows: numbers of training rows and of prediction (test) rows.
        bits: key size; 0 for an engine without keys.
        precision: fractional bits of encrypted values.
        insecure: whether the job permits an insecure engine or key.
        resume: this party's checkpoint to resume from; None: from the beginning.
        columns: at the active party the most columns that each peer said it has; without those that did not say.
        classes: of the label, 1 for a quantity, as the active party said; 0: it did not.
    """

    parties: tuple[str, ...]
    job: dict[str, str]
    sides: RowMasks
    rows: tuple[int, int]
    bits: int
    precision: int
    insecure: bool
    resume: int | None
    columns: Mapping[str, int] = field(default_factory=dict)
    classes: int = 0

    @classmethod
    def of(cls, proposal: Proposal, masks: RowMasks, *, resume: int | None, **sizes: Any) -> Agreement:
        """Return the agreement of parties whose proposals are equal."""
        return cls(
            parties=proposal.parties,
            job=proposal.job,
            sides=masks,
            rows=(int(masks.train.sum()), int(masks.test.sum())),
            bits=proposal.bits,
            precision=proposal.precision,
            insecure=proposal.insecure,
            resume=resume,
            **sizes,
        )


def continued_model(model: str | None) -> dict[str, str]:
    """Return the additional job key of a warm start, the identifier of the earlier model; empty for None."""
    return {} if model is None else {"continues": model}


def handshake_active(ctx: Context, offer: Proposal, sides: RowMasks) -> Agreement:
    """Run the active party's handshake: compare with every peer, then announce the row masks.

    Args:
        offer: this party's proposal; of its ids only HMACs under a key of this handshake are compared.
        sides: validation and test rows, in the order of ``offer.ids``.

    Raises:
        HandshakeError: versions, terms, keys of the job, row counts, row ids or the histories of checkpoints differ;
            names the peer and what differs.
        PeerError: a peer failed.
    """
    nonce = ctx.protection.bytes(32)
    mine = _hello(ctx, offer, nonce)
    for peer in ctx.peers:
        ctx.expect(peer, 0)
        ctx.send(peer, mine, _STEP)
    answers = {peer: ctx.recv(peer, Hello, _STEP) for peer in ctx.peers}
    for peer, answer in answers.items():
        _compare(ctx.party, peer, mine, answer)
    columns = {peer: _stated(peer, "columns", answer.columns) for peer, answer in answers.items() if answer.columns}
    pairs = {peer: ctx.recv(peer, PairHistories, _STEP).digests for peer in ctx.peers if ctx.topology.partners(peer)}
    for peer, answer in answers.items():
        if answer.rows != len(offer.ids):
            refuse_rows(ctx, peer, offer.ids, answer.rows, nonce)
    resume, parts = _resume_point(ctx, answers, pairs)
    validation, test = RowMask.pack(sides.validation), RowMask.pack(sides.test)
    ids = digest_ids(nonce, offer.ids)
    digest = bound(nonce, ids, ctx.party)
    exchanges = {}
    for peer in ctx.peers:
        if parts is None:
            exchanges[peer] = Exchange.begin(nonce, peer, _terms(offer, sides, digest))
        else:
            assert resume is not None
            exchanges[peer] = ctx.checkpoints.exchange(resume, peer)
        history = b"" if parts is None else exchanges[peer].digest
        ctx.expect(peer, None)  # what follows the greeting may be of any size, unless the model says which
        ctx.send(peer, RowSplit(validation, test, (parts or {}).get(peer, 0), history, digest), _STEP)
    for peer, ready in {peer: ctx.recv(peer, RowIdDigests, _STEP) for peer in ctx.peers}.items():
        if not hmac.compare_digest(ready.ids, bound(nonce, ids, peer)):
            refuse_rows(ctx, peer, offer.ids, len(offer.ids), nonce)
    ctx.checkpoints.discard(resume)
    if parts is None:
        ctx.checkpoints.rebind(exchanges)
    for peer, exchange in exchanges.items():
        ctx.link(peer, exchange, (parts or {}).get(peer, 0))
    return Agreement.of(offer, sides, resume=resume, columns=columns, classes=offer.classes)


def handshake_passive(ctx: Context, offer: Proposal) -> Agreement:
    """Run a passive party's handshake; arguments and errors as for :func:`handshake_active`."""
    mine = _hello(ctx, offer, b"")
    partners = ctx.topology.partners(ctx.party)
    for peer in (ctx.active, *partners):
        ctx.expect(peer, 0)
    ctx.send(ctx.active, mine, _STEP)
    if partners:
        ctx.send(ctx.active, PairHistories({peer: ctx.checkpoints.digests(peer) for peer in partners}), _STEP)
    theirs = ctx.recv(ctx.active, Hello, _STEP)
    _compare(ctx.party, ctx.active, mine, theirs)
    classes = _stated(ctx.active, "classes", theirs.classes)
    if theirs.rows != mine.rows:
        answer_refusal(ctx, offer.ids, theirs.rows, theirs.nonce)
    begin = ctx.recv(ctx.active, RowSplit, _STEP)
    with ctx.blaming(ctx.active, "Begin", _STEP):
        validation, test = (mask.unpack(len(offer.ids)) for mask in (begin.validation, begin.test))
    if (validation & test).any():
        raise wrong_message(ctx.active, "Begin", "announced a row as a validation and a test row", _STEP)
    sides, ids = RowMasks(validation=validation, test=test), digest_ids(theirs.nonce, offer.ids)
    digest = bound(theirs.nonce, ids, ctx.active)
    ready = RowIdDigests(bound(theirs.nonce, ids, ctx.party))
    if not hmac.compare_digest(begin.ids, digest):
        ctx.send(ctx.active, ready, _STEP)
        answer_refusal(ctx, offer.ids, len(offer.ids), theirs.nonce)
    terms = _terms(offer, sides, digest)
    ctx.checkpoints.row_split = sides.digest()
    if begin.history or begin.resume:
        if (begin.resume, begin.history) not in zip(mine.checkpoints, mine.histories, strict=True):
            reason = f"requests to resume from checkpoint {begin.resume}, which {ctx.party!r} does not have"
            raise wrong_message(ctx.active, "Begin", reason, _STEP, value=begin.resume)
        if not ctx.checkpoints.has_row_split(begin.resume):
            reason = "announced other validation or test rows than when this training began"
            raise wrong_message(ctx.active, "Begin", reason, _STEP, value=begin.resume)
        exchanges = {peer: ctx.checkpoints.exchange(begin.resume, peer) for peer in (ctx.active, *partners)}
        ctx.checkpoints.discard(begin.resume)
    else:
        if ctx.checkpoints.progress:
            raise _history_error({ctx.active: 0, ctx.party: ctx.checkpoints.progress})
        exchanges = _pair_exchanges(ctx, partners, terms)
        exchanges[ctx.active] = Exchange.begin(theirs.nonce, ctx.party, terms)
        ctx.checkpoints.begin(_Start(), exchanges)
    for peer in (ctx.active, *partners):
        ctx.expect(peer, None)
    ctx.send(ctx.active, ready, _STEP)
    for peer, exchange in exchanges.items():
        ctx.link(peer, exchange, begin.resume)
    return Agreement.of(offer, sides, resume=begin.resume or None, classes=classes)


class _Start(msgspec.Struct, frozen=True):
    """A passive party's checkpoint 0: nothing but the beginning of the exchange."""


def _hello(ctx: Context, offer: Proposal, nonce: bytes) -> Hello:
    own = ctx.checkpoints
    histories = () if ctx.party == ctx.active else own.digests(ctx.active)
    coordinates = ctx.party == ctx.active
    return Hello(
        version=version("labelward"),
        party=ctx.party,
        job=offer.job,
        rows=len(offer.ids),
        nonce=nonce,
        checkpoints=() if coordinates else own.numbers(),  # of its own rounds, those without others included
        histories=histories,
        terms=dict(offer.terms),
        columns=0 if coordinates else offer.columns,
        classes=offer.classes if coordinates else 0,
    )


def _stated(peer: str, what: str, number: int) -> int:
    """Return a size that a peer states of its data; :class:`PeerError` for one that no table has."""
    if not 0 <= number <= _MOST_STATED:
        reason = f"states {number} {what} where at most {_MOST_STATED} can be"
        raise wrong_message(peer, "Hello", reason, _STEP, value=number)
    return number


def _pair_exchanges(ctx: Context, partners: Sequence[str], terms: tuple[bytes, ...]) -> dict[str, Exchange]:
    """Begin the exchanges of a passive party with others of its kind: the first of each two draws the key."""
    order, exchanges = list(ctx.topology.assigned), {}
    later = [peer for peer in partners if order.index(peer) > order.index(ctx.party)]
    for peer in later:
        nonce = ctx.protection.bytes(32)
        ctx.send(peer, PairStart(nonce), _STEP)
        exchanges[peer] = Exchange.begin(nonce, peer, terms)
    for peer in partners:
        if peer not in later:
            exchanges[peer] = Exchange.begin(ctx.recv(peer, PairStart, _STEP).nonce, ctx.party, terms)
    return exchanges


def _terms(offer: Proposal, sides: RowMasks, digest: bytes) -> tuple[bytes, ...]:
    """Return what an exchange begins with: job, terms, sides of the rows, row ids."""
    agreed = sorted((offer.job | dict(offer.terms)).items())
    return msgspec.msgpack.encode(agreed), sides.digest().encode(), digest


def _resume_point(
    ctx: Context, answers: Mapping[str, Hello], pairs: Mapping[str, Mapping[str, tuple[bytes, ...]]]
) -> tuple[int | None, dict[str, int] | None]:
    """Return the own checkpoint to resume from and the peers' numbers; None for those: a new training begins.

    Args:
        pairs: by peer, and by each party that it exchanges messages with, the digest of the two for each checkpoint.

    Raises:
        HandshakeError: a party has progress that the others do not share.
        PeerError: a peer states another number of histories than of checkpoints.
    """
    own, theirs = ctx.checkpoints, dict[str, dict[int, bytes]]()
    for peer, answer in answers.items():
        if len(answer.checkpoints) != len(answer.histories):
            reason = f"states {len(answer.histories)} histories of {len(answer.checkpoints)} checkpoints"
            raise wrong_message(peer, "Hello", reason, _STEP)
        theirs[peer] = dict(zip(answer.checkpoints, answer.histories, strict=True))
    _keep_agreed(theirs, pairs)
    found = own.common(theirs)
    if found is not None and (found[0] or own.progress <= 1 or not ctx.peers):
        return found
    progress = {ctx.party: own.progress} | {peer: max(numbers, default=0) for peer, numbers in theirs.items()}
    if any(progress.values()):
        strangers = {peer for peer in theirs if own.numbers() and not {*own.digests(peer)} & {*theirs[peer].values()}}
        raise _history_error(progress, strangers)
    return (0 if own.numbers() else None), None


def _keep_agreed(theirs: Mapping[str, dict[int, bytes]], pairs: Mapping[str, Mapping[str, tuple[bytes, ...]]]) -> None:
    """Forget the checkpoints of peers whose exchanges with each other differ, or are in only one of two parties."""
    of_pair: dict[tuple[str, str], dict[int, bytes]] = {}
    for peer, by_partner in pairs.items():
        for partner, digests in by_partner.items():
            if len(digests) != len(theirs[peer]):
                reason = f"states {len(digests)} histories of {len(theirs[peer])} checkpoints"
                raise wrong_message(peer, "PairHistories", reason, _STEP)
            of_pair[peer, partner] = dict(zip(theirs[peer], digests, strict=True))
    for (peer, partner), found in of_pair.items():
        for number, digest in found.items():
            if of_pair.get((partner, peer), {}).get(number) != digest:
                theirs[peer].pop(number, None)


def _history_error(progress: Mapping[str, int], strangers: Set[str] = frozenset()) -> HandshakeError:
    """Return the error for checkpoints without a common history.

    Args:
        progress: the newest number of each party.
        strangers: the peers whose checkpoints share no history with this party's, not even the beginning.
    """
    stated = {party: f"checkpoint {number}" if number else "none" for party, number in progress.items()}
    for party in strangers & {party for party, number in progress.items() if number}:
        stated[party] += " of another training"
    told = ", ".join(f"{party!r} has {words}" for party, words in stated.items())
    return HandshakeError(
        f"the parties have no common checkpoint of this training: {told}. A party was started in another folder, or "
        "lost its files; start it in its folder, or begin anew: with --restart at every party that has a checkpoint, "
        "with --force at one that lost the noise that it had drawn",
        code="disagreement",
        value=dict(progress),
    )


def _compare(party: str, peer: str, mine: Hello, theirs: Hello) -> None:
    if theirs.party != peer:
        raise HandshakeError(
            f"the peer at {peer!r} calls itself {quoted(theirs.party)!r}",
            code="identity",
            value=quoted(theirs.party),
        )
    if mine.version != theirs.version:
        raise HandshakeError(
            f"{party!r} runs labelward {mine.version} and {peer!r} runs {quoted(theirs.version)}",
            code="disagreement",
            value={party: mine.version, peer: quoted(theirs.version)},
        )
    _compare_values("the job", party, peer, mine.job, theirs.job)
    _compare_values("the versions of libraries", party, peer, mine.terms, theirs.terms)


def _compare_values(what: str, party: str, peer: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Compare values by key; raise :class:`HandshakeError` with both values of each key that differs."""
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    if differing:
        sides = sorted([(party, mine), (peer, theirs)], key=lambda side: side[0])  # the same text at both
        (one, ones), (other, others) = sides
        values = {
            quoted(key): {one: quoted(ones.get(key, "absent")), other: quoted(others.get(key, "absent"))}
            for key in differing[:_MOST_LISTED]
        }
        listed = "; ".join(
            f"{key} is {value[one]} at {one!r} and {value[other]} at {other!r}" for key, value in values.items()
        )
        if len(differing) > _MOST_LISTED:
            listed += f"; and {len(differing) - _MOST_LISTED} more"
        raise HandshakeError(f"the parties disagree on {what}: {listed}", code="disagreement", value=values)
