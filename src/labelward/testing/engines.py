"""The contract suite of homomorphic engines; whoever writes an engine runs it on theirs.

::

    class TestMyEngine(EngineContract):
        bits, insecure = 512, True      # a small key: the suite tests arithmetic, not strength

        @classmethod
        def make(cls) -> Engine:
            return MyEngine()

Needs pytest and hypothesis. One key is made for each class; inputs are generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelward.errors import EncryptionError
from labelward.he.base import CipherBlock, Counts, Engine, Integers, Layout, PrivateKey, PublicKey, PublicMaterial
from labelward.rng import SecureRandom
from labelward.testing.strategies import SumCase, expected_sums, sum_cases

# each subclass runs the same generated tests, which keep nothing between examples
_GENERATED = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class EngineContract:
    """Subclass it as ``Test…`` and give :meth:`make`; see the module's docstring."""

    #: size of the key that the suite uses, and whether that needs ``insecure=True``
    bits: int = 2048
    insecure: bool = False

    @classmethod
    def make(cls) -> Engine:
        """Return the engine under test; the suite closes it."""
        raise NotImplementedError("a subclass says which engine to test")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        """The engine, closed at the end."""
        engine = cls.make()
        yield engine
        engine.close()

    @pytest.fixture(scope="class")
    @classmethod
    def private(cls, engine: Engine) -> PrivateKey:
        """The owner's key, one for the class."""
        return engine.generate(cls.bits, protection=SecureRandom(), insecure=cls.insecure)

    @pytest.fixture(scope="class")
    @classmethod
    def public(cls, engine: Engine, private: PrivateKey) -> PublicKey:
        """What a peer makes of the key's bytes."""
        material = msgspec.msgpack.decode(msgspec.msgpack.encode(private.public.material()), type=PublicMaterial)
        return engine.public(material, protection=SecureRandom(), insecure=cls.insecure)

    # -- values ------------------------------------------------------------------------------------------------

    @given(case=sum_cases())
    @_GENERATED
    def test_sums_equal_integer_sums(self, private: PrivateKey, public: PublicKey, case: SumCase) -> None:
        """Owner encrypts, a peer sums, the owner decrypts; everything passes through bytes."""
        rows = public.rows(_travel(private.encrypt(case.values, case.layout).block()))
        sealed = _travel(rows.group_sums(case.groups, case.n_groups).rerandomize())
        assert sealed.shape == (case.groups.shape[1], case.n_groups)
        decrypted = private.decrypt(sealed)
        assert decrypted.dtype == np.int64
        np.testing.assert_array_equal(decrypted, expected_sums(case))

    @given(case=sum_cases())
    @_GENERATED
    def test_rows_decrypt_to_what_was_encrypted(self, private: PrivateKey, public: PublicKey, case: SumCase) -> None:
        """With the secret and without it."""
        for key in (private, public):
            block = _travel(key.encrypt(case.values, case.layout).block())
            assert block.kind == "rows"
            np.testing.assert_array_equal(private.decrypt(block), case.values[None])

    @given(case=sum_cases())
    @_GENERATED
    def test_sum_of_sums_is_the_sum_of_both(self, private: PrivateKey, public: PublicKey, case: SumCase) -> None:
        """Two shards of the rows; the layout holds the total row count."""
        half = len(case.values) // 2
        shards = [
            public.rows(private.encrypt(case.values[part], case.layout).block()).group_sums(
                case.groups[part], case.n_groups
            )
            for part in (slice(0, half), slice(half, None))
        ]
        decrypted = private.decrypt((shards[0] + shards[1]).rerandomize())
        np.testing.assert_array_equal(decrypted, expected_sums(case))

    @given(case=sum_cases())
    @_GENERATED
    def test_own_sums_are_added_by_a_third_party(self, private: PrivateKey, public: PublicKey, case: SumCase) -> None:
        """Two parties encrypt sums of their own rows; who adds them sees neither, and decrypted is the total."""
        half = len(case.values) // 2
        parts = [
            expected_sums(replace(case, values=case.values[rows], groups=case.groups[rows]))
            for rows in (slice(0, half), slice(half, None))
        ]
        mine, theirs = (_travel(public.encrypt_sums(part, case.layout)) for part in parts)
        np.testing.assert_array_equal(private.decrypt(mine), parts[0])
        total = _travel((public.sums(mine) + public.sums(theirs)).rerandomize())
        np.testing.assert_array_equal(private.decrypt(total), expected_sums(case))

    def test_own_sums_share_ciphertexts(self, engine: Engine, private: PrivateKey, public: PublicKey) -> None:
        """As many as the format says, fresh each time; opened ones are re-randomized, and none can be taken out."""
        layout, count = Layout((1 << 20, 1 << 20), 1000, 2), 500
        sums = np.random.default_rng(0).integers(-(1 << 29), 1 << 29, size=(1, count, 2))
        public.counts = Counts()
        blocks = [public.encrypt_sums(sums, layout) for _ in range(2)]
        expected = engine.ciphertext_format(layout, private.public.bits).sealed(count)
        assert public.counts.encryptions == 2 * expected == 2 * blocks[0].count
        opened = public.sums(blocks[0])
        with _refused("unsupported"):
            opened.take(np.array([0]))
        sealed = opened.rerandomize()
        if engine.secure:
            assert len({blocks[0].data, blocks[1].data, sealed.data}) == 3
        np.testing.assert_array_equal(private.decrypt(sealed), sums)

    def test_a_key_for_sums_alone_is_enough_for_them(self, engine: Engine) -> None:
        """One party encrypts, another adds up and a third decrypts, whose key is no larger than that of rows."""
        private = engine.generate_for_sums(self.bits, protection=SecureRandom(), insecure=self.insecure)
        material = private.public.material()
        public = engine.public_for_sums(material, protection=SecureRandom(), insecure=self.insecure)
        assert len(material.data) <= engine.key_bytes(self.bits)
        layout, sums = Layout((1 << 20, 5), 1000, 2), np.array([[[1 << 29, -5], [-(1 << 29), 5000], [0, 7]]])
        mine, theirs = (_travel(public.encrypt_sums(part, layout)) for part in (sums // 2, sums - sums // 2))
        total = _travel((public.sums(mine) + public.sums(theirs)).rerandomize())
        np.testing.assert_array_equal(private.decrypt(total), sums)

    def test_own_sums_beyond_the_layout_or_of_another_shape(self, public: PublicKey) -> None:
        """Refused before anything is encrypted; sums of two shapes or kinds are not added."""
        layout = Layout((3,), 10, 1)
        for values in (np.array([[[31]]]), np.array([[[-31]]])):
            with _refused("capacity"):
                public.encrypt_sums(values, layout)
        for values in (np.array([[1]]), np.array([[[1, 2]]]), np.array([[[1.0]]])):
            with _refused("type"):
                public.encrypt_sums(values, layout)
        one, two = (public.sums(public.encrypt_sums(np.ones((1, n, 1), np.int64), layout)) for n in (1, 2))
        summed = public.encrypt(np.ones((1, 1), np.int64), layout).group_sums(np.zeros((1, 1), np.int32), 1)
        for other in (two, summed):
            with _refused("ciphertext"):
                _ = one + other

    @given(case=sum_cases(), size=st.integers(1, 10), cut=st.integers(0, 9))
    @_GENERATED
    def test_rows_in_blocks(self, private: PrivateKey, public: PublicKey, case: SumCase, size: int, cut: int) -> None:
        """Blocks one after the other, and the rows that have come summed before the others come."""
        n = len(case.values)
        rows, start = public.allocate_rows(case.layout, n), min(cut, n)
        sums, summed = (
            public.rows(private.encrypt(case.values[:0], case.layout).block()).group_sums(
                case.groups[:0], case.n_groups
            ),
            0,
        )
        for block in private.encrypt_blocks(case.values, case.layout, size):
            assert block.shape[0] <= size
            rows.add(_travel(block))
            if summed < start <= rows.have:
                sums, summed = sums + rows.group_sums(case.groups[:start], case.n_groups), start
        assert rows.have == rows.n == n
        sums = sums + rows.group_sums(case.groups[summed:], case.n_groups, summed)
        np.testing.assert_array_equal(private.decrypt(_travel(sums.rerandomize())), expected_sums(case))

    @given(case=sum_cases(), seed=st.integers(0, 2**32))
    @_GENERATED
    def test_picked_sums(self, private: PrivateKey, public: PublicKey, case: SumCase, seed: int) -> None:
        """Some of the sums, in any order, none or several times."""
        sums = public.rows(private.encrypt(case.values, case.layout).block()).group_sums(case.groups, case.n_groups)
        count = case.groups.shape[1] * case.n_groups
        cells = np.random.default_rng(seed).integers(0, count, size=seed % 8 if count else 0)
        picked = _travel(sums.take(cells).rerandomize())
        assert picked.shape == (1, len(cells))
        flat = expected_sums(case).reshape(count, case.values.shape[1])
        np.testing.assert_array_equal(private.decrypt(picked), flat[cells][None])

    def test_many_columns_at_once(self, private: PrivateKey, public: PublicKey) -> None:
        """More rows than cells, so that an engine may sum by several columns together; some rows absent from some."""
        rng, n = np.random.default_rng(3), 300
        values, layout = rng.integers(-5, 6, size=(n, 2)), Layout((5, 5), n, 2)
        rows = public.rows(private.encrypt(values, layout).block())
        for columns, n_groups in ((2, 4), (3, 3), (5, 2), (6, 3)):
            groups = rng.integers(-1, n_groups, size=(n, columns)).astype(np.int32)
            groups[:, -1] = np.minimum(groups[:, 0] + 1, n_groups - 1)  # two columns that hang together
            groups[rng.random(n) < 0.1] = -1
            expected = expected_sums(SumCase(layout, values, groups, n_groups))
            np.testing.assert_array_equal(private.decrypt(rows.group_sums(groups, n_groups).rerandomize()), expected)

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_all_rows_at_the_bound(self, private: PrivateKey, public: PublicKey, sign: int) -> None:
        """The extreme sum of each slot: every row in one group, at plus or minus its bound."""
        layout = Layout((2**30, 1, 2**50), 37, 2)
        values = np.tile(sign * np.array(layout.bounds, dtype=np.int64), (37, 1))
        groups = np.zeros((37, 1), dtype=np.int32)
        sums = public.rows(private.encrypt(values, layout).block()).group_sums(groups, 1)
        assert private.decrypt(sums.rerandomize()).tolist() == [[[37 * sign * bound for bound in layout.bounds]]]

    def test_many_numbers_a_row(self, private: PrivateKey, public: PublicKey) -> None:
        """More numbers than one plaintext may hold."""
        k = 90
        values = np.random.default_rng(1).integers(-(2**30), 2**30, size=(6, k))
        layout = Layout((2**30,) * k, 6, k)
        groups = np.array([[0, 1], [1, -1], [0, 1], [0, 2], [2, -1], [0, 2]], dtype=np.int32)
        sums = public.rows(_travel(private.encrypt(values, layout).block())).group_sums(groups, 4)
        expected = expected_sums(SumCase(layout, values, groups, 4))
        np.testing.assert_array_equal(private.decrypt(_travel(sums.rerandomize())), expected)

    # -- what travels --------------------------------------------------------------------------------------------

    def test_only_sealed_sums_have_bytes(self, private: PrivateKey, public: PublicKey) -> None:
        """An unsealed sum, unopened rows and the private key have no encoder."""
        rows = public.rows(private.encrypt(*_few()).block())
        sums = rows.group_sums(np.zeros((4, 1), np.int32), 1)
        for secret in (rows, sums, private):
            with pytest.raises(TypeError):
                msgspec.msgpack.encode(secret)

    def test_sealing_re_randomizes(self, engine: Engine, private: PrivateKey, public: PublicKey) -> None:
        """Twice sealed, different bytes; and the sum of one row is not that row's ciphertext."""
        if not engine.secure:
            pytest.skip("an engine that hides nothing has nothing to randomize")
        values, layout = _few()
        fresh = private.encrypt(values[:1], layout).block()
        sums = public.rows(fresh).group_sums(np.zeros((1, 1), np.int32), 1)
        first, second = sums.rerandomize(), sums.rerandomize()
        assert len({fresh.data, first.data, second.data}) == 3
        for block in (fresh, first, second):
            np.testing.assert_array_equal(private.decrypt(block), values[None, :1])

    def test_encryption_is_randomized(self, engine: Engine, private: PrivateKey, public: PublicKey) -> None:
        """Equal values never give equal ciphertexts."""
        if not engine.secure:
            pytest.skip("an engine that hides nothing has nothing to randomize")
        values, layout = np.zeros((8, 1), np.int64), Layout((1,), 8, 1)
        for key in (private, public):
            block = key.encrypt(values, layout).block()
            size = len(block.data) // block.count
            assert len({block.data[i * size : (i + 1) * size] for i in range(block.count)}) == block.count

    def test_counts(self, engine: Engine, private: PrivateKey) -> None:
        """Each side counts what it did itself; bytes and ciphertexts are those of the blocks."""
        public = engine.public(private.public.material(), protection=SecureRandom(), insecure=self.insecure)
        values, layout = _few()
        before = private.public.counts.as_dict()
        fresh = private.encrypt(values, layout).block()
        groups = np.array([[0, 1], [0, -1], [2, 1], [0, 1]], dtype=np.int32)
        sums = public.rows(fresh).group_sums(groups, 3)
        counts = public.counts
        assert counts.additions > 0
        assert (counts.encryptions, counts.ciphertexts, counts.bytes, counts.logical_sums) == (0, 0, 0, 0)
        assert counts.logical_rows == 0
        sealed = sums.rerandomize()
        assert (counts.ciphertexts, counts.bytes) == (sealed.count, len(sealed.data))
        assert counts.logical_sums == 2 * 3 * layout.logical
        earlier = counts.additions
        assert (sums + sums).shape == (2, 3)
        assert counts.additions > earlier
        private.decrypt(sealed)
        did = {name: value - before[name] for name, value in private.public.counts.as_dict().items()}
        assert did["encryptions"] == did["ciphertexts"] == fresh.count
        assert did["logical_rows"] == len(values) * layout.logical
        assert (did["bytes"], did["decryptions"]) == (len(fresh.data), sealed.count)
        assert did["additions"] == did["logical_sums"] == 0

    # -- figures -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("bounds", [(1,), (5, 7), (2**30, 2**30, 2**30), (2**40,) * 7, (1,) * 60], ids=len)
    def test_the_ciphertext_format_is_that_of_real_blocks(
        self, engine: Engine, private: PrivateKey, bounds: tuple[int, ...]
    ) -> None:
        """What a plan counts is what travels, of rows and of sums."""
        layout = Layout(bounds, 3, 1)
        form = engine.ciphertext_format(layout, self.bits)
        fresh = private.encrypt(np.zeros((3, len(bounds)), np.int64), layout)
        assert fresh.block().count == 3 * form.parts
        assert len(fresh.block().data) == form.row_bytes(3)
        sums = fresh.group_sums(np.zeros((3, 1), np.int32), 1)
        for count in (0, 1, 2, 3, 7):
            block = sums.take(np.zeros(count, np.int64)).rerandomize()
            assert (block.count, len(block.data)) == (form.sealed(count), form.sum_bytes(count))
        assert engine.prepared_row_bytes(layout, self.bits) >= form.parts * form.size

    def test_the_work_of_sums_is_what_is_counted(self, engine: Engine, private: PrivateKey) -> None:
        """Additions as a plan foresees them."""
        groups = np.random.default_rng(0).integers(-1, 3, (40, 4)).astype(np.int32)
        layout = Layout((1,), 40, 1)
        rows = private.public.rows(private.encrypt(np.ones((40, 1), np.int64), layout).block())
        before, parts = private.public.counts.additions, engine.ciphertext_format(layout, self.bits).parts
        rows.group_sums(groups, 3)
        work = engine.additions(groups, 3)
        assert private.public.counts.additions - before == work.number * parts
        assert work.effort >= work.number > 0

    # -- refusals --------------------------------------------------------------------------------------------------

    def test_weak_settings_need_the_flag(self, engine: Engine, private: PrivateKey) -> None:
        """No key below what is offered, and no engine that hides nothing, without ``insecure=True``."""
        assert bool(engine.insecure_reason(self.bits)) == self.insecure
        assert engine.secure or not engine.bits_offered
        if self.insecure:
            with pytest.raises(EncryptionError):
                engine.generate(self.bits, protection=SecureRandom())
            with pytest.raises(EncryptionError):
                engine.public(private.public.material(), protection=SecureRandom())
        for bits in engine.bits_offered:
            assert engine.security_level(bits) >= 112

    def test_material_of_another_engine(self, engine: Engine, private: PrivateKey) -> None:
        """A public key names its engine."""
        material = msgspec.structs.replace(private.public.material(), engine="other")
        with pytest.raises(EncryptionError) as caught:
            engine.public(material, protection=SecureRandom(), insecure=True)
        assert (caught.value.code, caught.value.value) == ("key", "other")

    @pytest.mark.parametrize(
        "values",
        [[[6, 0]], [[-6, 0]], [[0, 8]], [[0]], [[0, 0, 0]], [0, 0], [[0, 0]] * 5, [[0.0, 0.0]]],
        ids=["above", "below", "second", "few-columns", "many-columns", "flat", "many-rows", "floats"],
    )
    def test_values_out_of_the_layout(self, private: PrivateKey, public: PublicKey, values: list[Any]) -> None:
        """Nothing is encrypted that the slots cannot hold."""
        for key in (private, public):
            with pytest.raises(EncryptionError):
                key.encrypt(np.array(values), Layout((5, 7), 4, 2))

    @pytest.mark.parametrize("bad", [-2, 3, 2**31 - 1, -(2**31)])
    def test_groups_out_of_range(self, private: PrivateKey, public: PublicKey, bad: int) -> None:
        """A group is in range(n_groups), or -1."""
        groups = np.array([[0], [1], [bad], [2]], dtype=np.int32)
        rows = public.rows(private.encrypt(*_few()).block())
        with pytest.raises(EncryptionError):
            rows.group_sums(groups, 3)

    def test_positions_that_are_none(self, private: PrivateKey, public: PublicKey) -> None:
        """Beyond the sums, negative, or of another type."""
        sums = public.rows(private.encrypt(*_few()).block()).group_sums(np.zeros((4, 2), np.int32), 3)
        wrong: list[Any] = [np.array([6]), np.array([-1]), np.array([1], np.int32), np.zeros((1, 1), np.int64)]
        for cells in wrong:
            with pytest.raises(EncryptionError):
                sums.take(cells)

    def test_rows_that_are_not_due(self, private: PrivateKey, public: PublicKey) -> None:
        """Too many of them, of another layout, or summed before they have come."""
        values, layout = _few()
        first, second = private.encrypt_blocks(values, layout, 3)
        rows = public.allocate_rows(layout, 4)
        rows.add(first)
        other = private.encrypt(values[:1], Layout(layout.bounds, 5, 2)).block()
        for block in (first, other):
            with pytest.raises(EncryptionError):
                rows.add(block)
        assert rows.have == 3
        for start, count in ((0, 4), (3, 1), (-1, 1), (4, 0)):
            with pytest.raises(EncryptionError):
                rows.group_sums(np.zeros((count, 1), np.int32), 1, start)
        with pytest.raises(EncryptionError):
            rows.block()
        rows.add(second)
        assert private.decrypt(rows.group_sums(np.zeros((2, 1), np.int32), 1, 2).rerandomize()).tolist() == [[[-3, 10]]]
        for n in (-1, 5):
            with pytest.raises(EncryptionError):
                public.allocate_rows(layout, n)

    def test_groups_of_a_wrong_kind(self, private: PrivateKey, public: PublicKey) -> None:
        """More rows than there are, another type, another number of axes."""
        rows = public.rows(private.encrypt(*_few()).block())
        wrong: list[Any] = [np.zeros((5, 1), np.int32), np.zeros((4, 1), np.int64), np.zeros(4, np.int32)]
        for groups in wrong:
            with pytest.raises(EncryptionError):
                rows.group_sums(groups, 1)

    def test_blocks_of_another_key(self, engine: Engine, private: PrivateKey, public: PublicKey) -> None:
        """Rows, sums and sums of sums belong to one key."""
        other = engine.generate(self.bits, protection=SecureRandom(), insecure=self.insecure)
        fresh, foreign = private.encrypt(*_few()).block(), other.encrypt(*_few()).block()
        with pytest.raises(EncryptionError):
            public.rows(foreign)
        with pytest.raises(EncryptionError):
            private.decrypt(foreign)
        groups = np.zeros((4, 1), np.int32)
        with pytest.raises(EncryptionError):
            public.rows(fresh).group_sums(groups, 1) + other.public.rows(foreign).group_sums(groups, 1)

    def test_sums_that_do_not_match(self, private: PrivateKey, public: PublicKey) -> None:
        """Other shape, or other layout."""
        values, layout = _few()
        groups = np.zeros((4, 1), np.int32)
        rows = public.rows(private.encrypt(values, layout).block())
        wider = public.rows(private.encrypt(values, Layout(layout.bounds, 9, 2)).block())
        for other in (rows.group_sums(groups, 2), wider.group_sums(groups, 1)):
            with pytest.raises(EncryptionError):
                rows.group_sums(groups, 1) + other

    @pytest.mark.parametrize(
        "change",
        [
            {"engine": "other"},
            {"key": b"0" * 16},
            {"count": 3},
            {"count": 5},
            {"count": -1},
            {"shape": (3,)},
            {"shape": (5,)},
            {"shape": (-4,)},
            {"shape": ()},
            {"shape": (2, 2)},
            {"kind": "sums"},
            {"layout": Layout((), 4, 0)},
            {"layout": Layout((5, -7), 4, 2)},
            {"layout": Layout((5, 2**62), 4, 2)},
            {"layout": Layout((5, 7), 3, 2)},
        ],
        ids=str,
    )
    def test_altered_rows(self, private: PrivateKey, public: PublicKey, change: dict[str, Any]) -> None:
        """A block whose parts contradict each other is refused, by the peer and by the owner."""
        altered = msgspec.structs.replace(private.encrypt(*_few()).block(), **change)
        with pytest.raises(EncryptionError):
            public.rows(altered)
        with pytest.raises(EncryptionError):
            private.decrypt(altered)

    def test_altered_data(self, private: PrivateKey, public: PublicKey) -> None:
        """Truncated or longer data are refused, of rows and of sums."""
        fresh = private.encrypt(*_few()).block()
        sealed = public.rows(fresh).group_sums(np.zeros((4, 1), np.int32), 1).rerandomize()
        for block in (fresh, sealed):
            for data in (block.data[:-1], block.data + b"\0", b""):
                with pytest.raises(EncryptionError):
                    private.decrypt(msgspec.structs.replace(block, data=data))
        for data in (fresh.data[:-1], fresh.data + b"\0", b""):
            with pytest.raises(EncryptionError):
                public.rows(msgspec.structs.replace(fresh, data=data))

    def test_sums_are_no_rows(self, private: PrivateKey, public: PublicKey) -> None:
        """What was sealed goes to the owner, not into another sum."""
        sealed = public.rows(private.encrypt(*_few()).block()).group_sums(np.zeros((4, 1), np.int32), 1).rerandomize()
        with pytest.raises(EncryptionError):
            public.rows(sealed)

    def test_sums_beyond_the_layout(self, private: PrivateKey, public: PublicKey) -> None:
        """More rows than the layout's cannot hide in a sum: its digits would leave their slots."""
        values, layout = np.full((4, 1), 5, np.int64), Layout((5,), 4, 1)
        sums = public.rows(private.encrypt(values, layout).block()).group_sums(np.zeros((4, 1), np.int32), 1)
        with pytest.raises(EncryptionError):
            private.decrypt((sums + sums).rerandomize())


@contextmanager
def _refused(code: str) -> Iterator[None]:
    with pytest.raises(EncryptionError) as caught:
        yield
    assert caught.value.code == code


def _travel(block: CipherBlock) -> CipherBlock:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(block), type=CipherBlock)


def _few() -> tuple[Integers, Layout]:
    """Four rows of two numbers."""
    return np.array([[1, -7], [5, 0], [-5, 7], [2, 3]], dtype=np.int64), Layout((5, 7), 4, 2)
