"""Boosting: tree after tree, each ended by all parties together, with a checkpoint at every party.

A party that has begun the next tree may have sent messages of it before another has stored this one. Each party
therefore tells all others that it has ended a tree, and waits for them: checkpoints hold what was exchanged up to
there, so that those of the same tree belong together.
"""

from __future__ import annotations

import msgspec

from labelward.messages.base import Array
from labelward.messages.pivodl import TreeEnd
from labelward.party.checkpoint import decode_stored
from labelward.party.context import Context
from labelward.party.noise_record import record_draws, refuse_redraw
from labelward.policy.base import PolicyContext
from labelward.policy.chain import ChainState
from labelward.protocols.common.columns import OwnRecord
from labelward.protocols.pivodl.share import SharedTree
from labelward.protocols.pivodl.training import Training
from labelward.protocols.pivodl.tree import Tree


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a party stores after a tree, besides the tree; number 0 is written before anything with noise leaves.

    Attributes:
        model: identifier of the model.
        margins: float64 [rows that the party labels].
        counts: splits of each party so far.
        offered: own candidates so far, and those that the instance threshold refused.
        policies: what they drew; None where the party has only been greeted.
    """

    model: str = ""
    margins: Array | None = None
    counts: tuple[int, ...] = ()
    offered: tuple[int, int] = (0, 0)
    policies: ChainState | None = None


class _Grown(msgspec.Struct, frozen=True):
    """What one tree added: itself, and the party's own splits in it."""

    tree: SharedTree
    own: tuple[OwnRecord, ...]


def load_progress(ctx: Context, resume: int | None) -> Progress:
    """Return what an interrupted training goes on from; what was drawn before training is kept by a new beginning."""
    if not resume and 0 not in ctx.checkpoints.numbers():
        return Progress()
    return ctx.checkpoints.load(resume or 0, Progress)[0]


def train_trees(
    ctx: Context, training: Training, setup: PolicyContext, model: str, saved: Progress, resume: int | None
) -> tuple[SharedTree, ...]:
    """Grow all trees, or those that an interrupted training lacks.

    Args:
        setup: what policies are begun with.
        saved: of checkpoint ``resume``.

    Raises:
        PeerError: a peer failed, or sent what cannot be.
        PolicyError: a policy cannot act, or its noise was drawn before and is lost.
    """
    ctx.checkpoints.model = model
    if saved.policies is None:
        refuse_redraw(ctx.policies.drawing, ctx.checkpoints)
    ctx.policies.begin(setup, ctx.protection)
    if saved.policies is not None:
        ctx.policies.resume(saved.policies)
    trees = _restore(ctx, training, saved, resume) if resume else []
    if not resume:
        _save(ctx, training, model, [])
    record_draws(ctx.policies.drawing, ctx.checkpoints)
    total = training.fixed.params.trees
    while len(trees) < total:
        number = len(trees)
        ctx.progress("trees", number, total)
        trees.append(Tree(training, number).grow())
        for peer in ctx.peers:
            ctx.send(peer, TreeEnd(), (number,))
        for peer in ctx.peers:
            ctx.recv(peer, TreeEnd, (number,))
        _save(ctx, training, model, trees)
    ctx.progress("trees", total, total)
    return tuple(trees)


def _save(ctx: Context, training: Training, model: str, trees: list[SharedTree]) -> None:
    if not ctx.checkpoints.kept:
        return
    number, blocks = len(trees), {}
    if trees:
        mine = training.parties.index(ctx.party)
        added = trees[-1].owners.count(mine)
        grown = _Grown(trees[-1], tuple(training.records[len(training.records) - added :]))
        blocks[f"tree-{number}"] = msgspec.msgpack.encode(grown)
    state = Progress(
        model=model,
        margins=Array.pack(training.margins),
        counts=tuple(training.counts),
        offered=(training.offered, training.refused),
        policies=ctx.policies.state(),
    )
    ctx.save(number, state, peers=dict.fromkeys(ctx.peers, number), blocks=blocks)


def _restore(ctx: Context, training: Training, saved: Progress, number: int) -> list[SharedTree]:
    """Put a training into the state of a checkpoint; return the trees that it has."""
    _, block = ctx.checkpoints.load(number, Progress)
    grown = [decode_stored(block(f"tree-{each + 1}"), _Grown, ctx.checkpoints.folder) for each in range(number)]
    assert saved.margins is not None
    training.margins[:] = saved.margins.unpack()
    training.counts[:] = saved.counts
    training.offered, training.refused = saved.offered
    training.records += [record for each in grown for record in each.own]
    return [each.tree for each in grown]
