"""The contract suite of transports; whoever writes a transport runs it on theirs.

::

    class TestMyTransport(TransportContract):
        @contextmanager
        def connected(self, parties: tuple[str, ...]) -> Iterator[dict[str, Transport]]:
            ...                 # yield one connected end for each party, and close what is left

Needs pytest. Each test uses an end from one thread at a time, as parties do.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from labelward.errors import PeerDisagreementError, PeerError
from labelward.transport.base import Failure, Transport

Ends = dict[str, Transport]

_FAILURE = Failure("peer-failed", "DataError")


class TransportContract:
    """What every transport keeps: order, exactly once, bytes as they were sent, and no party left waiting.

    Attributes:
        patience: seconds within which a frame, a failure or an end must have arrived.
    """

    patience: float = 5.0

    def connected(self, parties: tuple[str, ...]) -> AbstractContextManager[Ends]:
        """Return one connected end for each of these parties, for as long as the context is open."""
        raise NotImplementedError

    @pytest.fixture
    def pair(self) -> Iterator[tuple[Transport, Transport]]:
        """Two connected ends."""
        with self.connected(("here", "there")) as ends:
            yield ends["here"], ends["there"]

    @pytest.fixture
    def trio(self) -> Iterator[tuple[Transport, Transport, Transport]]:
        """Three connected ends."""
        with self.connected(("one", "two", "three")) as ends:
            yield ends["one"], ends["two"], ends["three"]

    # -- frames ----------------------------------------------------------------------------------------------------

    def test_an_end_knows_its_party(self, pair: tuple[Transport, Transport]) -> None:
        """The name by which its peers address it."""
        assert [end.party for end in pair] == ["here", "there"]

    def test_frames_arrive_in_order_and_once(self, pair: tuple[Transport, Transport]) -> None:
        """Many frames of many sizes, and then silence."""
        here, there = pair
        frames = [number.to_bytes(4, "little") * (1 + number % 50) for number in range(500)]
        sender = _thread(lambda: [here.send("there", frame) for frame in frames])
        assert [self._take(there) for _ in frames] == [("here", frame) for frame in frames]
        sender.join()
        assert there.receive(0.05) is None

    @pytest.mark.parametrize("size", [1, 255, 65_537, 20_000_000])
    def test_frames_of_any_size(self, pair: tuple[Transport, Transport], size: int) -> None:
        """One byte to tens of megabytes, as a tree of encrypted rows has."""
        here, there = pair
        frame = bytes(range(256)) * (size // 256) + bytes(size % 256)
        sender = _thread(lambda: here.send("there", frame))
        assert self._take(there) == ("here", frame)
        sender.join()

    def test_what_arrives_is_what_was_sent(self, pair: tuple[Transport, Transport]) -> None:
        """Nothing that the sender does afterwards changes it, and the receiver cannot either."""
        here, there = pair
        buffer = bytearray(b"before")
        here.send("there", bytes(buffer))
        buffer[:] = b"after!"
        sender, frame = self._take(there)
        assert (sender, frame) == ("here", b"before")
        assert type(frame) is bytes

    def test_both_directions_at_once(self, pair: tuple[Transport, Transport]) -> None:
        """Both send everything before either receives."""
        here, there = pair
        for number in range(50):
            here.send("there", b"h%d" % number)
            there.send("here", b"t%d" % number)
        assert [self._take(here)[1] for _ in range(50)] == [b"t%d" % number for number in range(50)]
        assert [self._take(there)[1] for _ in range(50)] == [b"h%d" % number for number in range(50)]

    def test_each_sender_keeps_its_own_order(self) -> None:
        """Five parties send to each other at the same time; each frame reaches its addressee and nobody else."""
        names = ("a", "b", "c", "d", "e")
        with self.connected(names) as ends:
            arrived: dict[str, list[tuple[str, bytes]]] = {}

            def live(party: str) -> None:
                for number in range(40):
                    for peer in names:
                        if peer != party:
                            ends[party].send(peer, f"{party}>{peer}:{number}".encode())
                arrived[party] = [self._take(ends[party]) for _ in range(40 * (len(names) - 1))]

            for thread in [_thread(lambda party=party: live(party)) for party in names]:  # type: ignore[misc]
                thread.join()
            for party in names:
                for peer in set(names) - {party}:
                    got = [frame for sender, frame in arrived[party] if sender == peer]
                    assert got == [f"{peer}>{party}:{number}".encode() for number in range(40)]

    def test_silence_is_none_after_the_timeout(self, pair: tuple[Transport, Transport]) -> None:
        """Not much earlier, not much later; and the end works on."""
        here, there = pair
        start = time.monotonic()
        assert there.receive(0.2) is None
        assert 0.19 <= time.monotonic() - start < 0.2 + self.patience
        assert there.receive(0.0) is None
        here.send("there", b"late")
        assert self._take(there) == ("here", b"late")

    def test_a_stranger_is_refused(self, pair: tuple[Transport, Transport]) -> None:
        """A name that is no party of the run."""
        with pytest.raises(PeerError) as caught:
            pair[0].send("nobody", b"x")
        assert (caught.value.code, caught.value.peer) == ("unknown", "nobody")

    # -- ends and failures -----------------------------------------------------------------------------------------

    def test_an_end_is_told_after_all_frames(self, trio: tuple[Transport, Transport, Transport]) -> None:
        """Every peer receives an empty frame, once, after what was sent to it."""
        one, two, three = trio
        one.send("two", b"last words")
        one.close()
        one.close()
        assert [self._take(two), self._take(two)] == [("one", b"last words"), ("one", b"")]
        assert self._take(three) == ("one", b"")
        assert two.receive(0.05) is None
        assert three.receive(0.05) is None

    def test_the_others_go_on_after_an_end(self, trio: tuple[Transport, Transport, Transport]) -> None:
        """Who is done is done for itself only; sending to it is refused."""
        one, two, three = trio
        one.close()
        assert self._take(three) == ("one", b"")
        two.send("three", b"still here")
        assert self._take(three) == ("two", b"still here")
        assert self._take(two) == ("one", b"")
        with pytest.raises(PeerError) as caught:
            self._until_refused(two, "one")
        assert (caught.value.code, caught.value.peer) == ("peer-gone", "one")

    def test_a_failure_wakes_every_peer(self, trio: tuple[Transport, Transport, Transport]) -> None:
        """All who wait are told at once who failed and why."""
        one, two, three = trio
        told: dict[str, tuple[PeerError, float]] = {}

        def wait(end: Transport) -> None:
            try:
                end.receive(60.0)
            except PeerError as error:
                told[end.party] = (error, time.monotonic())

        threads = [_thread(lambda end=end: wait(end)) for end in (two, three)]  # type: ignore[misc]
        time.sleep(0.1)
        start = time.monotonic()
        one.fail(_FAILURE)
        for thread in threads:
            thread.join(self.patience)
        assert told.keys() == {"two", "three"}
        for error, when in told.values():
            assert _said(error) == _said(_FAILURE.at("one"))
            assert when - start < self.patience

    def test_frames_before_a_failure_are_delivered(self, pair: tuple[Transport, Transport]) -> None:
        """First what arrived, then the failure, at every call from then on."""
        here, there = pair
        here.send("there", b"first")
        time.sleep(0.1)
        here.fail(_FAILURE)
        assert self._take(there) == ("here", b"first")
        for _ in range(2):
            with pytest.raises(PeerError) as caught:
                there.receive(self.patience)
            assert _said(caught.value) == _said(_FAILURE.at("here"))

    def test_closing_after_a_failure_is_no_end(self, trio: tuple[Transport, Transport, Transport]) -> None:
        """Neither of the party that failed nor of one that closes because of it: nobody is told that they were done."""
        one, two, three = trio
        one.fail(_FAILURE)
        one.close()
        for end in (two, three):
            with pytest.raises(PeerError) as caught:
                end.receive(self.patience)
            assert _said(caught.value) == _said(_FAILURE.at("one"))
            end.close()

    def test_nothing_is_sent_after_a_failure(self, pair: tuple[Transport, Transport]) -> None:
        """A party that has not heard of it yet hears of it when it sends."""
        here, there = pair
        here.fail(_FAILURE)
        with pytest.raises(PeerError) as caught:
            self._until_refused(there, "here")
        assert caught.value.peer == "here"

    def test_the_first_failure_counts(self, trio: tuple[Transport, Transport, Transport]) -> None:
        """Those who fail because another did do not hide who began."""
        one, two, three = trio
        one.fail(_FAILURE)
        with pytest.raises(PeerError):
            two.receive(self.patience)
        two.fail(Failure("peer-silent", "because of another"))
        with pytest.raises(PeerError) as caught:
            three.receive(self.patience)
        assert _said(caught.value) == _said(_FAILURE.at("one"))

    def test_a_disagreement_is_a_type(self, pair: tuple[Transport, Transport]) -> None:
        """It follows from the code, whatever words come with it."""
        here, there = pair
        failure = Failure("disagreement", "other words")
        here.fail(failure)
        with pytest.raises(PeerDisagreementError) as caught:
            there.receive(self.patience)
        assert _said(caught.value) == _said(failure.at("here"))

    def test_words_make_no_disagreement(self, pair: tuple[Transport, Transport]) -> None:
        """A party that merely failed may use any."""
        here, there = pair
        here.fail(Failure("peer-failed", "disagreement: on the depth"))
        with pytest.raises(PeerError) as caught:
            there.receive(self.patience)
        assert not isinstance(caught.value, PeerDisagreementError)
        assert caught.value.code == "peer-failed"

    def test_a_failure_may_come_from_another_thread(self, pair: tuple[Transport, Transport]) -> None:
        """While the end's own thread waits; it is woken too."""
        here, there = pair
        caught: list[PeerError] = []

        def wait() -> None:
            try:
                here.receive(60.0)
            except PeerError as error:
                caught.append(error)

        thread = _thread(wait)
        time.sleep(0.1)
        here.fail(_FAILURE)
        thread.join(self.patience)
        assert [error.peer for error in caught] == ["here"]
        with pytest.raises(PeerError):
            there.receive(self.patience)

    def _take(self, end: Transport) -> tuple[str, bytes]:
        arrived = end.receive(self.patience)
        assert arrived is not None, f"nothing arrived at {end.party!r} within {self.patience} s"
        return arrived

    def _until_refused(self, end: Transport, peer: str) -> None:
        """Send until the transport has learned that the peer is gone; over a network that may take a moment."""
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            end.send(peer, b"anyone?")
            time.sleep(0.01)


def _said(error: PeerError) -> tuple[str, str | None, str]:
    return error.peer, error.code, error.reason


def _thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
