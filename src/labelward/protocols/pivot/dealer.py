"""The dealer: draws the key and the seeds of all parties, seals them, and sends corrections until the end.

Setting: the dealer is trusted to forget and to collude with nobody. It receives public keys and numbers of shares,
which tell how many nodes split at each depth; no ciphertext, no share and no column. Yet it knows the whole private key
and all masks: together with any one other party, or with what one of them received, it could decrypt every label.
Seeds and parts travel sealed for their party and are stored by nobody, so that stored views do not open each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from labelward.errors import wrong_message
from labelward.he.base import Engine, KeyPart, PublicMaterial
from labelward.messages.base import Array
from labelward.messages.pivot import (
    DealEnd,
    DealerExchange,
    DealRequest,
    DealtCorrections,
    DealtParcel,
)
from labelward.party.context import Context
from labelward.privacy.noise import KEY_BYTES
from labelward.protocols.pivot.dealt_shares import KINDS, MOST, corrections
from labelward.rng import SecureRandom

_NONCE = bytes(12)  # each key encrypts one parcel


class KeyTerms(NamedTuple):
    """How the key of a training is made."""

    engine: Engine
    bits: int
    insecure: bool


class Dealt(NamedTuple):
    """What a party was dealt.

    Attributes:
        model: identifier of the training; empty in a prediction.
        seed: of its shares.
        part: of the private key; None in a prediction.
    """

    model: str
    seed: bytes
    part: KeyPart | None


def deal(ctx: Context, parties: tuple[str, ...], offer: KeyTerms | None) -> str:
    """Deal to all parties until the coordinator needs no more; return the model that it named.

    Args:
        parties: those that hold shares, the coordinator first.
        offer: None in a prediction, which decrypts nothing.

    Raises:
        PeerError: a peer failed, or asked for what is no share.
    """
    first = parties[0]
    received = {party: ctx.recv(party, DealerExchange, ()) for party in parties}
    seeds = [ctx.protection.bytes(KEY_BYTES) for _ in parties]
    material: PublicMaterial | None = None
    parts: tuple[bytes, ...] = (b"",) * len(parties)
    if offer is not None:
        with ctx.phase("key"):
            material, parts = offer.engine.deal_key(
                offer.bits, len(parties), protection=ctx.protection, insecure=offer.insecure
            )
    model = received[first].model
    for party, seed, part in zip(parties, seeds, parts, strict=True):
        own, key = _own_key(ctx.protection)
        try:
            sealed = _cipher(own, received[party].key, party).encrypt(_NONCE, seed + part, party.encode())
        except ValueError as error:
            raise wrong_message(party, "DealerExchange", "sent no usable key") from error
        ctx.send(party, DealtParcel(model, material, key, sealed), ())
    number = 0
    while not isinstance(request := ctx.recv(first, (DealRequest, DealEnd), (number,)), DealEnd):
        assert isinstance(request, DealRequest)
        kinds, counts = request.kinds, request.counts.value
        if len(kinds) != len(counts) or not {*kinds} <= KINDS.keys() or not all(0 <= n <= MOST for n in counts):
            raise wrong_message(first, "DealRequest", "asks for no shares", (number,))
        with ctx.phase("deal"):
            needed = zip(kinds, counts, strict=True)
            found = [corrections(seeds, kind, (number << 8) + at, n) for at, (kind, n) in enumerate(needed)]
        packed = np.concatenate([np.zeros(0, np.uint64), *found]).view(np.int64)
        ctx.send(first, DealtCorrections(Array.pack(packed)), (number,))
        number += 1
    return model


def receive(ctx: Context, dealer: str, offer: KeyTerms | None, model: str = "") -> Dealt:
    """Return what the dealer deals to this party.

    Args:
        offer: None in a prediction.
        model: that the coordinator names.

    Raises:
        PeerError: the parcel is damaged, or for another party.
    """
    own, key = _own_key(ctx.protection)
    ctx.send(dealer, DealerExchange(model, key), ())
    parcel = ctx.recv(dealer, DealtParcel, ())
    try:
        opened = _cipher(own, parcel.key, ctx.party).decrypt(_NONCE, parcel.sealed, ctx.party.encode())
    except (InvalidTag, ValueError) as error:
        raise wrong_message(dealer, "DealtParcel", "sent a damaged parcel") from error
    seed, secret = opened[:KEY_BYTES], opened[KEY_BYTES:]
    if len(seed) != KEY_BYTES or (parcel.material is None) != (offer is None):
        raise wrong_message(dealer, "DealtParcel", "sent another kind of parcel")
    part = None
    if offer is not None and parcel.material is not None:
        with ctx.blaming(dealer, "DealtParcel", ()):
            part = offer.engine.key_part(parcel.material, secret, protection=ctx.protection, insecure=offer.insecure)
        if part.public.bits != offer.engine.key_bits(offer.bits):
            raise wrong_message(dealer, "DealtParcel", "dealt a key of another size")
    return Dealt(parcel.model, seed, part)


def _own_key(protection: SecureRandom) -> tuple[X25519PrivateKey, bytes]:
    private = X25519PrivateKey.from_private_bytes(protection.bytes(32))
    return private, private.public_key().public_bytes_raw()


def _cipher(own: X25519PrivateKey, peer: bytes, party: str) -> ChaCha20Poly1305:
    """Return the cipher of the one parcel for a party."""
    shared = own.exchange(X25519PublicKey.from_public_bytes(peer))
    return ChaCha20Poly1305(HKDF(SHA256(), 32, None, b"labelward parcel " + party.encode()).derive(shared))
