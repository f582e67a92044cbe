"""Work beside other work: encryptions prepared ahead, blocks made ahead, rows that lie on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from labelward.errors import EncryptionError, InputError
from labelward.he import Layout, PrivateKey, engine
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.base import BACKENDS, unavailable_reason
from labelward.he.paillier.precomputed_zeros import ZeroPool
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom
from refusals import refused

RUNNING = [name for name in BACKENDS if not unavailable_reason(name)]
LAYOUT = Layout((2**30, 2**30), 3000, 2)


def values(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-(2**30), 2**30, size=(n, 2))


def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does; far longer than that takes."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def ready(private: PrivateKey) -> int:
    prepared = private._pool  # type: ignore[attr-defined]
    return len(prepared._zeros) // prepared._size


def threads() -> list[str]:
    """Return the threads that work ahead; those of networks, which other tests had, may still be ending."""
    ahead = ("labelward-prepare", "labelward-encrypt")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(ahead)]


@pytest.mark.parametrize("name", RUNNING)
def test_prepared_encryptions_serve_once_and_first(name: str) -> None:
    """All ciphertexts differ, each decrypts to its own row, whether it was prepared or not."""
    made = PaillierEngine(kernel=name, background=True)
    private = made.generate(256, protection=SecureRandom(), insecure=True)
    private.prepare(700)
    until(lambda: ready(private) == 700)
    zeros = bytes(private._pool._zeros)  # type: ignore[attr-defined]
    drawn, blocks = values(1000), []
    for part in (drawn[:600], drawn[600:]):
        blocks.append(private.encrypt(part, LAYOUT).block())
        np.testing.assert_array_equal(private.decrypt(blocks[-1]), part[None])
    assert ready(private) == 0
    data = zeros + b"".join(block.data for block in blocks)
    ciphertexts = [data[i : i + 64] for i in range(0, len(data), 64)]
    assert len(set(ciphertexts)) == len(ciphertexts) == 700 + 1000
    made.close()
    assert not threads()


def test_the_thread_ends_with_its_work_and_begins_anew_when_asked() -> None:
    made = PaillierEngine(background=True)
    private = made.generate(256, protection=SecureRandom(), insecure=True)
    for count in (10, 5, 30):
        private.prepare(count)
        until(lambda: not threads())
    assert ready(private) == 30
    private.encrypt(values(12), LAYOUT)
    assert ready(private) == 18
    made.close()
    private.prepare(100)
    assert not threads()
    np.testing.assert_array_equal(private.decrypt(private.encrypt(values(20), LAYOUT).block()), values(20)[None])


def test_closing_stops_what_is_being_prepared() -> None:
    made = PaillierEngine(background=True)
    private = made.generate(256, protection=SecureRandom(), insecure=True)
    private.prepare(10**9)
    until(lambda: ready(private) > 0)
    made.close()
    assert not threads()


def test_without_background_nothing_is_prepared() -> None:
    for made in (PaillierEngine(), engine("plain", background=True)):
        private = made.generate(256, protection=SecureRandom(), insecure=True)
        private.prepare(10)
        assert not threads()
        np.testing.assert_array_equal(private.decrypt(private.encrypt(values(3), LAYOUT).block()), values(3)[None])


def test_where_preparing_fails_encrypting_does_all() -> None:
    failed = threading.Event()

    def fail(count: int) -> bytes:
        failed.set()
        raise EncryptionError("no more", code="key")

    prepared = ZeroPool(4, fail)
    prepared.start(10)
    assert failed.wait(60)
    prepared.join()
    assert prepared.take(3) == b""
    failed.clear()
    prepared.start(10)
    assert failed.wait(60)
    prepared.stop()
    prepared.join()


def test_many_threads_take_each_of_the_prepared_once() -> None:
    numbers = iter(range(10**6))
    prepared = ZeroPool(4, lambda count: b"".join(next(numbers).to_bytes(4, "big") for _ in range(count)))
    taken: list[bytes] = []

    def work() -> None:
        while len(taken) < 3000:
            data = prepared.take(7)
            taken.extend(data[i : i + 4] for i in range(0, len(data), 4))
            prepared.start(50)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    prepared.stop()
    prepared.join()
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("name", RUNNING)
def test_blocks_are_made_one_ahead_and_no_more(name: str) -> None:
    made = PaillierEngine(kernel=name)
    private = made.generate(256, protection=SecureRandom(), insecure=True)
    blocks = private.encrypt_blocks(values(100), LAYOUT, 10)
    assert private.public.counts.encryptions == 0
    first = next(blocks)
    until(lambda: private.public.counts.encryptions == 20)
    time.sleep(0.05)
    assert (private.public.counts.encryptions, private.public.counts.ciphertexts) == (20, 10)
    np.testing.assert_array_equal(private.decrypt(first), values(100)[None, :10])
    blocks.close()  # type: ignore[attr-defined]
    assert not threads()


def test_blocks_that_cannot_be_are_refused_at_once() -> None:
    private = PaillierEngine().generate(256, protection=SecureRandom(), insecure=True)
    with refused(EncryptionError, "capacity"):
        private.encrypt_blocks(values(3) + 2**30, Layout((1, 1), 3, 2), 2)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("limit", [0, 100_000])
def test_rows_beyond_the_limit_lie_on_disk(name: str, limit: int) -> None:
    """The same bytes from memory, from a file, and from both."""
    sealed = []
    for memory_limit in (None, limit):
        made = PaillierEngine(kernel=name, memory_limit=memory_limit)
        private = made.generate(256, protection=SecureRandom(seed=1), insecure=True)
        public = made.public(private.public.material(), protection=SecureRandom(seed=2), insecure=True)
        groups = np.random.default_rng(0).integers(-1, 5, size=(1000, 3)).astype(np.int32)
        kept = [public.rows(private.encrypt(values(1000), LAYOUT).block()) for _ in range(3)]
        sums = [rows.group_sums(groups, 5) for rows in kept]
        sealed.append((sums[0] + sums[1] + sums[2]).rerandomize())
    assert sealed[0] == sealed[1]


def test_rooms_keep_account() -> None:
    rooms = RowStore(8 * 1000)
    first = rooms.allocate((10, 50))
    assert not isinstance(first.base, np.memmap)
    assert first.ctypes.data % 64 == 0
    second = rooms.allocate((600,))
    assert isinstance(second, np.memmap)
    second[:] = np.arange(600)
    assert second.sum() == 600 * 599 // 2
    del first
    assert not isinstance(rooms.allocate((1000,)), np.memmap)
    assert rooms.allocate((0, 3)).shape == (0, 3)
    with refused(InputError, "range", value=-1):
        engine("paillier", memory_limit=-1)
