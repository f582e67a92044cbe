"""Logistic regression on vertically divided columns: the programs of both roles.

Setting: semi-honest parties. The active party has the labels and a key, the others have columns. For each batch

1. every party works out its part of the scores from its own columns and weights. Passive parties send theirs; where
   there are several, under pairwise masks that cancel in the sum;
2. the active party adds them up, and sends the residuals (probability less label) encrypted;
3. every passive party sums them by the digits of its columns (:mod:`.fixed_point`), masks each sum, and sends the sums
   re-randomized;
4. the active party decrypts, weighs and adds up what it reads, which is uniform but for 2^-40, and returns one number a
   column under the masks of that party, which takes a step.

Who sees what. A passive party: one sum of residuals times column for each column and batch (attack
``batch-gradients``), and no residual. It can solve for the labels of rows that its columns single out in a batch, so
that rare categories have no column, and for all labels of a batch with few rows for its columns, which the active party
refuses (:func:`.check_batches`). One that makes up its columns reads 20 labels with each of
them; only noise on the labels bounds that.
The active party: for each epoch the sum of the other parties' parts of the score of each row, and so with one passive
party that party's own. How they change from epoch to epoch gives the inner products of the rows, once there are more
epochs than columns. And the number of encoded columns of each party. Passive parties see nothing of each other.

The sigmoid is exact, since the active party has scores in clear; Hardy et al. (2017, "Private federated learning on
vertically partitioned data via entity resolution and additively homomorphic encryption", Section 4) approximate it by a
polynomial of degree 2 so that scores can stay encrypted, for which they need a third party that has the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.he import Engine
from labelward.he.base import CipherBlock, Layout, PrivateKey, PublicKey
from labelward.messages.base import Array
from labelward.messages.logistic import (
    BatchRows,
    EncryptedResiduals,
    LogisticReady,
    LogisticStart,
    MaskedProducts,
    MaskedWeightGradient,
    PartialScores,
    ScoreKey,
    WeightGradient,
)
from labelward.party.context import Context, Step
from labelward.party.handshake import Agreement
from labelward.party.noise_record import record_draws
from labelward.party.roles import PASSIVE
from labelward.policy.chain import ChainState
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.logistic.descent import Intercept, OwnWeights, batch_rows, check_batches
from labelward.protocols.logistic.fixed_point import MOST_COLUMNS, BatchSums, products

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[np.int32]

_DESCRIBED = 1 << 12
"""Bytes of a message beside its ciphertexts, at most."""


class ActiveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The active party between two epochs; number 0 is written before anything leaves.

    Attributes:
        model: the model's identifier.
        weights: float64 [encoded columns].
        labels: float64 [training rows] that the model is fitted to: noisy ones, where a policy drew noise.
        policies: their state.
    """

    model: str
    weights: Array
    intercept: float
    labels: Array
    policies: ChainState


class PassiveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A passive party between two epochs."""

    model: str
    weights: Array


@dataclass
class ActiveTraining:
    """The active party's training.

    Attributes:
        own: its columns.
        labels: float64 [training rows], as policies left them.
    """

    ctx: Context
    own: OwnWeights
    constant: Intercept
    labels: Floats
    model: str

    def run(self, private: PrivateKey, engine: Engine, resume: tuple[int, ActiveProgress] | None) -> None:
        """Train with all peers of the context, or go on after so many epochs, from what was stored then.

        Raises:
            JobError: the weights diverged.
            PeerError: a peer failed, stayed silent or sent something that cannot be.
        """
        ctx = self.ctx
        for peer in ctx.peers:
            ctx.expect(peer, 8 * self.own.params.most_rows(len(self.labels)) + _DESCRIBED)  # scores
            ctx.send(peer, LogisticStart(self.model, private.public.material()), ())
        columns = {peer: self._columns_of(peer, engine, private.public.bits) for peer in ctx.peers}
        if resume is None:
            self._save(0)
        else:
            self._restore(resume[1])
        done = resume[0] if resume else 0
        record_draws(ctx.policies.drawing, ctx.checkpoints)
        # Noise on the labels is stored before it is looked at: a start after a refusal would draw again, uncounted.
        check_batches(self.own.params, ctx.seed, self.labels, sum(columns.values()))
        for epoch in range(done, self.own.params.epochs):
            ctx.progress("epochs", epoch, self.own.params.epochs)
            for step, rows in _batches(ctx, self.own, epoch):
                self._batch(private, step, rows, columns)
            self._save(epoch + 1)
        ctx.progress("epochs", self.own.params.epochs, self.own.params.epochs)

    def _batch(self, private: PrivateKey, step: Step, rows: Rows, columns: Mapping[str, int]) -> None:
        ctx, sums = self.ctx, BatchSums(len(rows))
        with ctx.phase("scores"):
            scores = self.own.scores(rows)
        scores = scores + _received_scores(ctx, step, len(rows))
        residuals = self.constant.residuals(scores, self.labels[rows])
        with ctx.phase("encrypt"):
            block = private.encrypt(sums.split(residuals), sums.layout).block()
        for peer in ctx.peers:
            ctx.send(peer, EncryptedResiduals(block), step)
        with ctx.phase("step"):
            self.own.step(products(self.own.codes[rows], residuals), len(rows))
            self.constant.step(residuals)
        received = {peer: ctx.recv(peer, MaskedProducts, step).sums for peer in ctx.peers}
        for peer, block_of_sums in received.items():
            with ctx.phase("decrypt"), ctx.blaming(peer, "MaskedProducts", step):
                shape = sums.shape(columns[peer])
                opened = sums.opened(_decrypted(private, peer, block_of_sums, sums.layout, shape, step), residuals)
            released = ctx.policies.release_of_targets(Array.pack(opened))
            ctx.send(peer, MaskedWeightGradient(released), step)

    def _columns_of(self, peer: str, engine: Engine, bits: int) -> int:
        """Return how many encoded columns a peer has, and take no longer messages of it than these give."""
        count = self.ctx.recv(peer, LogisticReady, ()).columns
        if not 1 <= count <= MOST_COLUMNS:
            reason = f"has {count} encoded columns; 1 to {MOST_COLUMNS} are possible"
            raise wrong_message(peer, "LogisticReady", reason, (), value=count)
        sums = BatchSums(self.own.params.most_rows(len(self.labels)))
        form, (wide, values) = engine.ciphertext_format(sums.layout, bits), sums.shape(count)
        self.ctx.expect(peer, form.sum_bytes(wide * values) + _DESCRIBED)
        return count

    def _restore(self, saved: ActiveProgress) -> None:
        self.own.weights = saved.weights.unpack().astype(np.float64)
        self.constant.value = saved.intercept
        self.ctx.policies.resume(saved.policies)

    def _save(self, epoch: int) -> None:
        if not self.ctx.checkpoints.kept:
            return
        state = ActiveProgress(
            model=self.model,
            weights=Array.pack(self.own.weights),
            intercept=self.constant.value,
            labels=Array.pack(self.labels),
            policies=self.ctx.policies.state(),
        )
        self.ctx.save(epoch, state, peers=dict.fromkeys(self.ctx.peers, epoch))


def _decrypted(
    private: PrivateKey, peer: str, block: object, layout: Layout, shape: tuple[int, int], step: Step
) -> Integers:
    """Return the masked sums of a peer; PeerError where the block has another layout or shape."""
    if not isinstance(block, CipherBlock) or block.layout != layout or block.shape != shape:
        raise wrong_message(peer, "MaskedProducts", "sent sums of another layout or shape", step)
    return private.decrypt(block)


def train_own_weights(ctx: Context, own: OwnWeights, engine: Engine, agreed: Agreement) -> tuple[str, PublicKey]:
    """Take part in training; return the model's identifier and the active party's key.

    Raises:
        EncryptionError: as the engine does; names the active party.
        JobError: the weights diverged.
        PeerError: the active party failed, stayed silent or sent something that cannot be.
    """
    for peer in ctx.peers:
        ctx.expect(peer, engine.key_bytes(agreed.bits) + _DESCRIBED)
    start, done = ctx.recv(ctx.active, LogisticStart, ()), agreed.resume or 0
    with ctx.blaming(ctx.active, "LogisticStart", ()):
        public = engine.public(start.key, protection=ctx.protection, insecure=agreed.insecure)
    ctx.checkpoints.name_model(start.model, agreed.resume)
    size = own.params.most_rows(len(own.codes))
    ctx.expect(ctx.active, engine.ciphertext_format(BatchSums(size).layout, agreed.bits).row_bytes(size) + _DESCRIBED)
    ctx.send(ctx.active, LogisticReady(own.codes.shape[1]), ())
    masks = score_masks(ctx, (0,))
    if done:
        own.weights = ctx.checkpoints.load(done, PassiveProgress)[0].weights.unpack().astype(np.float64)
    for epoch in range(done, own.params.epochs):
        ctx.progress("epochs", epoch, own.params.epochs)
        for step, rows in _batches(ctx, own, epoch):
            with ctx.phase("scores"):
                scores = masks.masked(own.scores(rows), ctx.topology.parties(PASSIVE), f"scores {step}")
            ctx.send(ctx.active, PartialScores(ctx.policies.release_unguarded(Array.pack(scores))), step)
            _answer(ctx, own, public, step, rows)
        ctx.save(epoch + 1, PassiveProgress(model=start.model, weights=Array.pack(own.weights)))
    return start.model, public


def _answer(ctx: Context, own: OwnWeights, public: PublicKey, step: Step, rows: Rows) -> None:
    """Sum encrypted residuals by digit, have the masked sums decrypted, and take a step."""
    sums, codes = BatchSums(len(rows)), own.codes[rows]
    block = ctx.recv(ctx.active, EncryptedResiduals, step).rows
    with ctx.phase("add"), ctx.blaming(ctx.active, "EncryptedResiduals", step):
        if not isinstance(block, CipherBlock) or block.layout != sums.layout or block.shape != (len(rows),):
            raise wrong_message(ctx.active, "EncryptedResiduals", "sent residuals of another layout or number", step)
        by_digit = public.rows(block).group_sums(sums.groups(codes), sums.shape(1)[1]).rerandomize()
    with ctx.phase("mask"):
        masks = sums.masks(codes.shape[1], ctx.protection)
        masked = public.sums(by_digit) + public.sums(public.encrypt_sums(masks, sums.layout))
        ctx.send(ctx.active, MaskedProducts(masked.rerandomize()), step)
    array = ctx.recv(ctx.active, MaskedWeightGradient, step).values.value
    with ctx.blaming(ctx.active, "MaskedWeightGradient", step):
        values = array.unpack_as("int64", codes.shape[1])
    gradient = own.step(sums.unmasked(values, masks), len(rows))
    ctx.observe(WeightGradient(step[0], step[1], Array.pack(gradient)))


def _batches(ctx: Context, own: OwnWeights, epoch: int) -> Iterator[tuple[Step, Rows]]:
    """Yield step and rows of each batch of an epoch, each as it is observed."""
    for batch, rows in enumerate(batch_rows(own.params, ctx.seed, len(own.codes))):
        ctx.observe(BatchRows(epoch, batch, Array.pack(rows)))
        yield (epoch, batch), rows


def score_masks(ctx: Context, step: Step) -> PairwiseMasks:
    """Return the masks of a passive party's scores, which cancel in the sum over all passive parties."""
    private = X25519PrivateKey.from_private_bytes(ctx.protection.bytes(32))
    others = [peer for peer in ctx.topology.parties(PASSIVE) if peer != ctx.party]
    for peer in others:
        ctx.send(peer, ScoreKey(private.public_key().public_bytes_raw()), step)
    keys = {peer: ctx.recv(peer, ScoreKey, step).key for peer in others}
    return PairwiseMasks(private, ctx.party, keys, message="ScoreKey")


def _received_scores(ctx: Context, step: Step, rows: int) -> Integers:
    """Return the sum of all passive parties' scores of some rows, modulo 2^64, at the active party."""
    total = np.zeros(rows, dtype=np.int64)
    for peer in ctx.peers:
        array = ctx.recv(peer, PartialScores, step).scores.value
        with ctx.blaming(peer, "PartialScores", step):
            total += array.unpack_as("int64", rows)
    return total
