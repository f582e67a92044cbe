"""Ends of a transport that die at a chosen message, for tests of runs that are cut off."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from labelward.errors import PeerError, PeerRestartedError
from labelward.transport.base import Failure, Transport


class Killed(BaseException):
    """Stands for SIGKILL: nothing but the file system remembers."""


class CutEnd(Transport):
    """An end that dies at a message; the other ends then say that a peer came back as a new process.

    Args:
        at: number of the party's message, sent or received, that does not happen; None: it lives.
        passed: how many messages each party has passed; counted here.
        waiting: which parties wait for a message, noted here; given: it dies when all others do, so that what they have
            kept by then is no matter of chance.
    """

    def __init__(self, inner: Transport, at: int | None, passed: Counter[str], waiting: set[str] | None = None) -> None:
        self.party, self._inner, self._at, self._passed, self._waiting = inner.party, inner, at, passed, waiting

    def send(self, peer: str, frame: bytes) -> None:
        self._step()
        with _restarted():
            self._inner.send(peer, frame)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        if self._waiting is not None:
            self._waiting.add(self.party)
        with _restarted():
            arrived = self._inner.receive(timeout)
        if arrived is not None and arrived[1]:
            if self._waiting is not None:
                self._waiting.discard(self.party)
            self._step()
        return arrived

    def fail(self, failure: Failure) -> None:
        self._inner.fail(failure)

    def close(self) -> None:
        self._inner.close()

    def _step(self) -> None:
        if self._passed[self.party] == self._at:
            if self._waiting is not None:
                assert any(self._others_wait(self._waiting) for _ in range(300)), "a party moves on for 30 s"
            raise Killed
        self._passed[self.party] += 1

    def _others_wait(self, waiting: set[str]) -> bool:
        before = Counter(self._passed)
        time.sleep(0.1)
        return before == self._passed and before.keys() - {self.party} <= waiting


class RestartingEnd(Transport):
    """An end whose party comes back as a new process after some sent messages; the others hear of it at once.

    Args:
        left: how many messages it sends before that; -1: it does not come back.
    """

    def __init__(self, end: Transport, left: int) -> None:
        self.end, self.left, self.party = end, left, end.party

    def send(self, peer: str, frame: bytes) -> None:
        if self.left == 0:
            self.end.fail(Failure("peer-restarted", "restarted"))
            raise PeerRestartedError(peer, "came back", code="peer-restarted")
        self.left -= 1
        self._restarting(self.end.send, peer, frame)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        return self._restarting(self.end.receive, timeout)

    def _restarting(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except PeerError as error:
            if error.code == "peer-restarted":
                raise PeerRestartedError(self.party, "came back", code="peer-restarted") from error
            raise

    def fail(self, failure: Failure) -> None:
        self.end.fail(failure)

    def close(self) -> None:
        self.end.close()


@contextlib.contextmanager
def _restarted() -> Any:
    try:
        yield
    except PeerError as error:
        raise PeerRestartedError(error.peer, "came back", code="peer-restarted") from error
