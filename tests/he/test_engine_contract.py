"""Every engine of the registry passes the shipped suite."""

from __future__ import annotations

import numpy as np
import pytest

from blames import refused_about
from labelward.errors import EncryptionError, InputError
from labelward.he import ENGINES, Engine, Layout, engine
from labelward.he._validate import check_sums
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.base import unavailable_reason
from labelward.he.paillier.backends.processes import ProcessBackend
from labelward.rng import SecureRandom
from labelward.testing.engines import EngineContract
from refusals import refused


class TestPlain(EngineContract):
    insecure = True

    @classmethod
    def make(cls) -> Engine:
        return engine("plain")


class TestPaillier(EngineContract):
    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return PaillierEngine(kernel="gmpy2")


class TestPaillierInWorkers(EngineContract):
    """All work, however small, in two worker processes."""

    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return PaillierEngine(workers=2, kernel=ProcessBackend(2, inline_below=0))


@pytest.mark.skipif(bool(unavailable_reason("ifma")), reason=f"no IFMA here: {unavailable_reason('ifma')}")
class TestPaillierWithIfma(EngineContract):
    """Eight lanes, two threads."""

    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return PaillierEngine(workers=2, kernel="ifma")


@pytest.mark.skipif(bool(unavailable_reason("libgmp")), reason=f"no libgmp here: {unavailable_reason('libgmp')}")
class TestPaillierWithLibgmp(EngineContract):
    """Compiled loops, two threads."""

    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return PaillierEngine(workers=2, kernel="libgmp")


class TestLattice(EngineContract):
    """The real ring: it is fast enough."""

    bits = 4096

    @classmethod
    def make(cls) -> Engine:
        return engine("lattice")


class TestSmallLattice(EngineContract):
    """A ring that protects nothing, two threads, and rows that take several polynomials."""

    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return engine("lattice", workers=2, parameters={"secrets": 3})


def test_every_registered_engine_can_be_made() -> None:
    for name in ENGINES:
        made = engine(name)
        assert made.name == name
        assert made.describe()["engine"] == name
        made.close()


def test_unknown_engine_and_worker_counts_are_refused() -> None:
    with refused_about("'paillier'", InputError, "unknown", value="palier"):
        engine("palier")
    with refused_about("workers", InputError, "range", value=0):
        engine("plain", workers=0)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_counts_of_a_known_case(name: str) -> None:
    """Four rows, seven entries in four nonempty cells: three additions are enough, and no more are done."""
    made = engine(name)
    key = made.generate(512, protection=SecureRandom(), insecure=True)
    public = made.public(key.public.material(), protection=SecureRandom(), insecure=True)
    fresh = key.encrypt(np.ones((4, 2), np.int64), Layout((1, 1), 4, 2)).block()
    parts = made.ciphertext_format(Layout((1, 1), 4, 2), 512).parts
    assert key.public.counts.encryptions == fresh.count == 4 * parts
    groups = np.array([[0, 1], [0, -1], [2, 1], [0, 0]], dtype=np.int32)
    sums = public.rows(fresh).group_sums(groups, 3)
    assert public.counts.additions == 3 * parts
    assert key.decrypt(sums.rerandomize()).tolist() == [[[3, 3], [0, 0], [1, 1]], [[1, 1], [2, 2], [0, 0]]]
    assert public.counts.logical_sums == 12


def test_plain_says_that_it_encrypts_nothing() -> None:
    with refused(EncryptionError, "insecure"):
        engine("plain").generate(2048, protection=SecureRandom())
    assert engine("plain").security_level(2048) == 0


@pytest.mark.parametrize("kind", [np.int64, object], ids=["int64", "integers of any size"])
@pytest.mark.parametrize("value", [-91, 91, 2**62])
def test_a_sum_beyond_its_bound_is_refused(value: int, kind: type) -> None:
    """An engine may decrypt to Python's integers."""
    layout = Layout((100, 9), 10, 2)
    check_sums(np.array([[[1000, 90], [-1000, -90]]], dtype=kind), layout)
    check_sums(np.zeros((0, 2), dtype=kind), layout)
    with refused(EncryptionError, code="capacity", value=90):
        check_sums(np.array([[[1000, 90], [-1000, value]]], dtype=kind), layout)


def test_a_sum_beyond_64_bits_is_refused() -> None:
    """A decrypted number can have as many bits as the key."""
    with refused(EncryptionError, code="capacity", value=1000):
        check_sums(np.array([[2**70, 0]], dtype=object), Layout((100, 9), 10, 2))
