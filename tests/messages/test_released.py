"""A message carries what derives from labels only as a policy chain released it: refused by class, and by value."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

from labelward.errors import CodecError, PolicyError, ProtocolError
from labelward.he.base import CipherBlock, Layout
from labelward.messages.base import Array, Message, Released, Releaser, RowMask, exempt
from labelward.messages.codec import decode, encode, require_released
from labelward.messages.splitnn import BatchGradients
from labelward.messages.tree import NodeSplit, WinningSplit
from labelward.policy.base import Policy, SplitReveal
from labelward.policy.chain import PolicyChain
from refusals import refused

LABELS = np.array([0, 1, 1, 0], np.float64)


class BareArray(Message, frozen=True):
    values: Array


class BareMask(Message, frozen=True):
    rows: RowMask


class BareNumbers(Message, frozen=True):
    classes: tuple[int, ...]


class BareFloat(Message, frozen=True):
    loss: float


class BareBytes(Message, frozen=True):
    bits: bytes


class BareCiphertext(Message, frozen=True):
    sums: CipherBlock


class HalfDeclared(Message, frozen=True):
    values: Annotated[Array, exempt("drawn at random")] | Array | None = None


class Declared(Message, frozen=True):
    epoch: int
    noise: Annotated[Array, exempt("drawn at random")]
    values: Released[Array]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (BareArray(Array.pack(LABELS)), "values"),
        (BareMask(RowMask.pack(LABELS > 0)), "rows"),
        (BareNumbers((0, 1, 1, 0)), "classes"),
        (BareFloat(0.5), "loss"),
        (BareBytes(b"\x06"), "bits"),
        (BareCiphertext(CipherBlock("plain", b"", "sums", (1,), Layout((1,), 1, 1), 0, b"")), "sums"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_a_class_with_an_undeclared_field_is_refused(message: Message, field: str) -> None:
    with refused(ProtocolError, "not-sendable", value=field):
        encode(message, (0,))


def test_half_a_declaration_is_none() -> None:
    with pytest.raises((ProtocolError, TypeError)):
        encode(HalfDeclared(), (0,))


def test_an_array_that_no_policy_saw_is_refused() -> None:
    with refused(CodecError, "not-sendable", value="values"):
        encode(BatchGradients(Array.pack(LABELS)), (0, 0))  # type: ignore[arg-type]


def test_a_received_value_is_not_sent_on() -> None:
    sent = BatchGradients(PolicyChain()._released(Array.pack(LABELS)))
    message, _ = decode(encode(sent, (0, 0)))
    assert message == sent
    with refused(CodecError, "not-sendable", value="values"):
        encode(message, (0, 0))


def test_only_a_chain_releases() -> None:
    with pytest.raises(TypeError):
        Released(Array.pack(LABELS), object())
    assert issubclass(PolicyChain, Releaser)
    assert not Released.received(1).map(lambda one: one + 1).sendable


def test_a_released_value_travels_as_it_is() -> None:
    message = Declared(1, Array.pack(LABELS), Releaser()._released(Array.pack(LABELS)))
    require_released(message)


class ShowsNobody(Policy):
    """Lets no party see the children of any split."""

    kind = "shows-nobody"
    purities = True

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        return frozenset({"telco"}) if reveal.node == 1 else frozenset()


def reveal(node: int) -> SplitReveal:
    counts = np.array([2, 2])
    return SplitReveal(
        tree=0,
        depth=0,
        node=node,
        owner="telco",
        owner_is_active=False,
        left=counts,
        right=counts,
        totals=2 * counts,
        participants=frozenset({"telco", "shop"}),
    )


def test_a_chain_releases_a_split_only_to_those_whom_its_policies_let_see_it() -> None:
    chain, mask = PolicyChain([ShowsNobody()]), RowMask.pack(LABELS > 0)
    for node in (0, 1):
        chain.before_instance_space(reveal(node))
    assert chain.release_splits("telco", 0, (NodeSplit(1, mask),)).sendable
    for peer, tree, node in (("telco", 0, 0), ("shop", 0, 1), ("telco", 1, 1), ("telco", 0, 2)):
        with refused(PolicyError, "cannot-act", value=peer):
            chain.release_splits(peer, tree, (NodeSplit(1, mask), NodeSplit(node, mask)))
        with refused(PolicyError, "cannot-act", value=peer):
            chain.release_winners(peer, tree, (WinningSplit(node, 0, 0, 0),))
    with pytest.raises(TypeError):
        chain.release_unguarded(mask)
    assert PolicyChain().release_unguarded(mask).sendable
