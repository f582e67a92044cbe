"""Key sizes, blocks and worker processes of the Paillier engine."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from blames import refused_about
from labelward.errors import EncryptionError, OutputError
from labelward.he import CipherBlock, Layout, PublicMaterial, engine
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.processes import ProcessBackend
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom
from refusals import refused

LAYOUT = Layout((2**30, 2**30), 300, 2)


@pytest.fixture
def pool() -> Iterator[PaillierEngine]:
    made = PaillierEngine(workers=2, kernel=ProcessBackend(2, inline_below=0))
    yield made
    made.close()


def values(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-(2**30), 2**30, size=(n, 2))


def worker_pids(made: PaillierEngine) -> list[int]:
    return [worker.pid for worker in made.backend.pool.workers]


def run_through(made: PaillierEngine, bits: int) -> list[CipherBlock]:
    """Encrypt, sum and seal with seeded protection, so that the bytes can be compared."""
    private = made.generate(bits, protection=SecureRandom(seed=1), insecure=True)
    public = made.public(private.public.material(), protection=SecureRandom(seed=2), insecure=True)
    groups = np.random.default_rng(0).integers(-1, 5, size=(100, 3)).astype(np.int32)
    fresh = private.encrypt(values(100), LAYOUT).block()
    sealed = public.rows(fresh).group_sums(groups, 5).rerandomize()
    expected = [[values(100)[groups[:, f] == g].sum(axis=0).tolist() for g in range(5)] for f in range(3)]
    assert private.decrypt(sealed).tolist() == expected
    return [fresh, public.encrypt(values(10), LAYOUT).block(), sealed]


@pytest.mark.parametrize("bits", [256, 1024, pytest.param(2048, marks=pytest.mark.slow)])
def test_workers_make_the_same_bytes_as_this_process(pool: PaillierEngine, bits: int) -> None:
    assert run_through(pool, bits) == run_through(PaillierEngine(kernel="gmpy2"), bits)


def test_a_killed_worker_is_an_error_and_the_next_call_starts_new_ones(pool: PaillierEngine) -> None:
    private = pool.generate(256, protection=SecureRandom(), insecure=True)
    rows = private.encrypt(values(50), LAYOUT)
    os.kill(worker_pids(pool)[1], signal.SIGKILL)
    with refused_about("ended", EncryptionError, "failed"):
        private.encrypt(values(50), LAYOUT)
    sealed = rows.group_sums(np.zeros((50, 1), np.int32), 1).rerandomize()
    assert private.decrypt(sealed).tolist() == [[values(50).sum(axis=0).tolist()]]


def test_rows_in_blocks_outlive_the_workers_that_held_them(pool: PaillierEngine) -> None:
    """What processes held of blocks that came one after the other is given to the next ones."""
    private = pool.generate(256, protection=SecureRandom(), insecure=True)
    rows, groups = private.public.allocate_rows(LAYOUT, 50), np.arange(50, dtype=np.int32)[:, None] % 3
    for block in private.encrypt_blocks(values(50), LAYOUT, 7):
        rows.add(block)
    for pid in worker_pids(pool):
        os.kill(pid, signal.SIGKILL)
    with refused_about("ended", EncryptionError, "failed"):
        rows.group_sums(groups, 3)
    expected = [values(50)[group::3].sum(axis=0).tolist() for group in range(3)]
    assert private.decrypt(rows.group_sums(groups, 3).rerandomize()).tolist() == [expected]
    late = rows.group_sums(groups[11:], 3, 11)
    expected = [values(50)[11:][groups[11:, 0] == group].sum(axis=0).tolist() for group in range(3)]
    assert private.decrypt(late.rerandomize()).tolist() == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "close"])
def test_nobody_hangs_on_a_worker_that_ends_in_the_midst_of_its_work(pool: PaillierEngine, end: str) -> None:
    private = pool.generate(3072, protection=SecureRandom(), insecure=True)
    private.encrypt(values(1), LAYOUT)
    caught: list[Exception] = []

    def work() -> None:
        try:
            private.public.encrypt(values(200), LAYOUT)  # some four seconds of work
        except EncryptionError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    pids = worker_pids(pool)
    if end == "kill":
        os.kill(pids[0], signal.SIGKILL)
    else:
        pool.close()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert len(caught) == 1
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_closed_engine_says_so(pool: PaillierEngine) -> None:
    private = pool.generate(256, protection=SecureRandom(), insecure=True)
    private.encrypt(values(3), LAYOUT)
    pids = worker_pids(pool)
    pool.close()
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with refused_about("closed", EncryptionError, "failed"):
        private.encrypt(values(3), LAYOUT)


def test_threads_share_the_workers(pool: PaillierEngine) -> None:
    """Two parties at once, each with its key: neither gets the other's numbers."""
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            private = pool.generate(256, protection=SecureRandom(), insecure=True)
            for n in range(seed, seed + 10):
                np.testing.assert_array_equal(
                    private.decrypt(private.encrypt(values(n), LAYOUT).block()), values(n)[None]
                )
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


SCRIPT = """
import sys
import numpy as np
from labelward.he import Layout
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.processes import ProcessBackend
from labelward.rng import SecureRandom
engine = PaillierEngine(workers=2, kernel=ProcessBackend(2, inline_below=0))
private = engine.generate(256, protection=SecureRandom(), insecure=True)
rows = private.encrypt(np.ones((4, 1), np.int64), Layout((1,), 4, 1))
print(private.decrypt(rows.block()).sum(), flush=True)
if "wait" in sys.argv:
    slow = engine.generate(4096, protection=SecureRandom())
    while True:
        slow.public.encrypt(np.ones((4, 1), np.int64), Layout((1,), 4, 1))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_that_never_closes(tmp_path: Path) -> None:
    """Nothing is imported twice, nothing is left, nothing is printed, even with warnings as errors."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", tmp_path / "script.py"],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


@pytest.mark.slow
def test_interrupting_prints_no_traceback_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", "wait"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # where tests run without Ctrl-C
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "4\n"
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("bits", [0, 240, 264, 1024, 2040, 2047, 2056, 8208])
def test_key_sizes_that_are_refused(bits: int) -> None:
    with refused(EncryptionError, "key" if bits == 1024 else "range", value=bits):
        engine("paillier").generate(bits, protection=SecureRandom())
    with refused(EncryptionError, "key" if bits == 1024 else "range", value=bits):
        engine("paillier").public(PublicMaterial("paillier", bits, b""), protection=SecureRandom())


def test_a_short_key_needs_the_flag() -> None:
    private = engine("paillier").generate(256, protection=SecureRandom(), insecure=True)
    assert private.public.bits == 256
    with refused(EncryptionError, "key", value=256):
        engine("paillier").public(private.public.material(), protection=SecureRandom())


def test_security_levels() -> None:
    """NIST SP 800-57 part 1 revision 5, table 2; sizes between two rows have the lower one's."""
    levels = {bits: engine("paillier").security_level(bits) for bits in (512, 1024, 2048, 3072, 4096, 7680)}
    assert levels == {512: 0, 1024: 80, 2048: 112, 3072: 128, 4096: 128, 7680: 192}


@pytest.mark.parametrize(
    ("bits", "n"),
    [(256, 2**255), (256, (2**127 + 45) ** 2), (256, 2**254 + 1), (272, 2**255 + 1), (512, 2**521 - 1)],
    ids=["even", "square", "short", "long", "longer"],
)
def test_public_keys_that_are_none(bits: int, n: int) -> None:
    material = PublicMaterial("paillier", bits, n.to_bytes(66, "big").lstrip(b"\0"))
    with refused(EncryptionError, "key"):
        engine("paillier").public(material, protection=SecureRandom(), insecure=True)


def test_a_prime_is_no_public_key() -> None:
    prime = 2**256 - 189
    material = PublicMaterial("paillier", 256, prime.to_bytes(32, "big"))
    with refused_about("product", EncryptionError, "key"):
        engine("paillier").public(material, protection=SecureRandom(), insecure=True)


def test_a_public_key_with_a_small_factor_is_refused() -> None:
    n = 3 * ((1 << 510) + 1)
    assert n.bit_length() == 512
    material = PublicMaterial("paillier", 512, n.to_bytes(64, "big"))
    with refused_about("a factor below 65536", EncryptionError, "key"):
        engine("paillier").public(material, protection=SecureRandom(), insecure=True)


@pytest.fixture(scope="module")
def block() -> tuple:
    private = engine("paillier").generate(256, protection=SecureRandom(), insecure=True)
    return private, private.encrypt(values(3), LAYOUT).block()


@pytest.mark.parametrize("what", ["zero", "n2", "ones"])
def test_ciphertexts_out_of_range(block: tuple, what: str) -> None:
    private, fresh = block
    size, n = len(fresh.data) // 3, int.from_bytes(private.public.material().data, "big")
    bad = {"zero": bytes(size), "n2": (n * n).to_bytes(size, "big"), "ones": b"\xff" * size}[what]
    altered = msgspec.structs.replace(fresh, data=fresh.data[:size] + bad + fresh.data[2 * size :])
    with refused_about("n²", EncryptionError, "ciphertext"):
        private.public.rows(altered)
    with refused_about("n²", EncryptionError, "ciphertext"):
        private.decrypt(altered)


def test_a_ciphertext_of_something_else_does_not_decrypt(block: tuple) -> None:
    """A random number is a valid ciphertext, but its plaintext leaves the slots (chance below 2^-150 that it fits)."""
    private, fresh = block
    size = len(fresh.data) // 3
    altered = msgspec.structs.replace(fresh, data=fresh.data[:-size] + b"\x01" * size)
    with refused(EncryptionError, "capacity"):
        private.decrypt(altered)


def test_sums_travel_compressed(block: tuple) -> None:
    """Two slots of 40 bits: three rows in a plaintext of 256 bits, so 3 × 5 sums take five ciphertexts."""
    private, fresh = block
    sealed = private.public.rows(fresh).group_sums(np.zeros((3, 3), np.int32), 5).rerandomize()
    assert LAYOUT.widths() == (40, 40)
    assert sealed.count == 5
    assert len(sealed.data) == 5 * 64


def test_a_private_key_cannot_be_copied_out(block: tuple) -> None:
    private, _ = block
    with pytest.raises(TypeError, match="never leaves"):
        pickle.dumps(private)


def test_workers_forget_what_is_garbage(pool: PaillierEngine) -> None:
    private = pool.generate(256, protection=SecureRandom(), insecure=True)
    for _ in range(3):
        private.encrypt(values(5), LAYOUT).group_sums(np.zeros((5, 1), np.int32), 1).rerandomize()
    held = pool.backend.pool.loaded
    pool.backend.pool.forget()
    assert len(held) == 2  # the owner's key and the obfuscators


def test_a_ciphertext_that_shares_a_factor_with_n(block: tuple) -> None:
    """Only who knows the factors can make one; it is refused where it would enter a sum."""
    private, fresh = block
    size = len(fresh.data) // 3
    altered = msgspec.structs.replace(fresh, data=int(private._p).to_bytes(size, "big") + fresh.data[size:])
    with refused_about("factor", EncryptionError, "ciphertext"):
        private.public.rows(altered)
    rows = private.public.allocate_rows(LAYOUT, 6)
    with refused_about("factor", EncryptionError, "ciphertext"):
        rows.add(altered)
    rows.have = 3  # whatever a caller makes of it
    with refused(EncryptionError, "failed"):
        rows.group_sums(np.zeros((3, 1), np.int32), 1)


def test_rows_take_no_block_after_one_that_failed(block: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failure left half-done could be taken in twice."""
    private, fresh = block
    rows = private.public.allocate_rows(LAYOUT, 6)
    with monkeypatch.context() as broken:
        broken.setattr(private.public, "prepared_rows", Mock(return_value=Mock(add=Mock(side_effect=MemoryError))))
        with pytest.raises(MemoryError):
            rows.add(fresh)
    assert rows.have == 0
    with refused(EncryptionError, "failed"):
        rows.add(fresh)


def test_blocks_of_no_rows_are_refused(block: tuple) -> None:
    private, _ = block
    for rows in (0, -1):
        with refused(EncryptionError, "range", value=rows):
            private.encrypt_blocks(values(3), LAYOUT, rows)


def test_a_block_that_claims_more_rows_than_it_has_bytes(block: tuple) -> None:
    private, fresh = block
    with refused(EncryptionError, "ciphertext"):
        private.public.rows(msgspec.structs.replace(fresh, shape=(1 << 50,)))


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with refused_about("No space left", OutputError, "unwritable"):
        RowStore(0).allocate((4, 4))


def test_the_package_imports_neither_numba_nor_gmpy2_until_an_engine_is_made() -> None:
    code = "import sys, labelward.he; sys.exit(bool({'numba', 'gmpy2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
