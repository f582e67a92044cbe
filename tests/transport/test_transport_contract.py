"""Every transport passes the shipped suite; wrong ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from labelward.testing.transports import TransportContract
from labelward.transport.base import Failure, Transport
from labelward.transport.in_process import connect_in_process


class TestInProcess(TransportContract):
    @contextmanager
    def connected(self, parties: tuple[str, ...]) -> Iterator[dict[str, Transport]]:
        yield connect_in_process(parties)


class _Wrong(Transport):
    """Passes all on to an end that is right."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.party = inner, inner.party

    def send(self, peer: str, frame: bytes) -> None:
        self.inner.send(peer, frame)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        return self.inner.receive(timeout)

    def fail(self, failure: Failure) -> None:
        self.inner.fail(failure)

    def close(self) -> None:
        self.inner.close()


class Twice(_Wrong):
    def send(self, peer: str, frame: bytes) -> None:
        self.inner.send(peer, frame)
        self.inner.send(peer, frame)


class Mute(_Wrong):
    def fail(self, failure: Failure) -> None:
        pass


class Abrupt(_Wrong):
    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("wrong", "test", "ends"),
    [
        (Twice, "test_frames_arrive_in_order_and_once", 2),
        (Mute, "test_a_failure_wakes_every_peer", 3),
        (Abrupt, "test_an_end_is_told_after_all_frames", 3),
    ],
)
def test_the_suite_finds_what_is_wrong(wrong: type[_Wrong], test: str, ends: int) -> None:
    class Suite(TransportContract):
        patience = 0.5

    suite = Suite()
    names = ("here", "there") if ends == 2 else ("one", "two", "three")
    made = connect_in_process(names)
    with pytest.raises(AssertionError):
        getattr(suite, test)(tuple(wrong(made[name]) for name in names))
