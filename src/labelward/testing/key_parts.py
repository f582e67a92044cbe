"""The contract suite of engines that make keys of parts (:attr:`labelward.he.base.Engine.shares_keys`).

::

    class TestMyParts(KeyPartContract):
        bits, insecure = 512, True      # a small key: the suite tests arithmetic, not strength

        @classmethod
        def make(cls) -> Engine:
            return MyEngine()

Needs pytest and hypothesis.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelward.errors import EncryptionError
from labelward.he.base import CipherBlock, Engine, KeyPart, Layout
from labelward.rng import SecureRandom
from labelward.testing.strategies import SumCase, expected_sums, sum_cases

_GENERATED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
_LAYOUT = Layout((1 << 20, 5), 100, 2)


class KeyPartContract:
    """Subclass it as ``Test…`` and give :meth:`make`; see the module's docstring."""

    #: size of the key that the suite uses, and whether that needs ``insecure=True``
    bits: int = 2048
    insecure: bool = False
    parties: int = 3

    @classmethod
    def make(cls) -> Engine:
        """Return the engine under test; the suite closes it."""
        raise NotImplementedError("a subclass says which engine to test")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        """The engine, closed at the end."""
        engine = cls.make()
        assert engine.shares_keys
        yield engine
        engine.close()

    @pytest.fixture(scope="class")
    @classmethod
    def parts(cls, engine: Engine) -> tuple[KeyPart, ...]:
        """The parts of a key, each as its party opens it."""
        return cls.dealt(engine)

    @classmethod
    def dealt(cls, engine: Engine) -> tuple[KeyPart, ...]:
        """Return the parts of a new key."""
        material, parts = engine.deal_key(cls.bits, cls.parties, protection=SecureRandom(), insecure=cls.insecure)
        return tuple(
            engine.key_part(material, part, protection=SecureRandom(), insecure=cls.insecure) for part in parts
        )

    def opened(self, parts: tuple[KeyPart, ...], block: CipherBlock) -> np.ndarray:
        """Return what all parties open together; each of them could combine."""
        partials = [part.partial_decrypt(block) for part in parts]
        found = [part.combine(block, partials) for part in parts]
        assert all((each == found[0]).all() for each in found)
        return found[0]

    @given(case=sum_cases())
    @_GENERATED
    def test_all_parts_open_sums(self, parts: tuple[KeyPart, ...], case: SumCase) -> None:
        """One party encrypts, another sums, and all open."""
        rows = parts[1].public.rows(parts[0].public.encrypt(case.values, case.layout).block())
        sealed = rows.group_sums(case.groups, case.n_groups).rerandomize()
        np.testing.assert_array_equal(self.opened(parts, sealed), expected_sums(case))

    @given(case=sum_cases(), seed=st.integers(0, 100))
    @_GENERATED
    def test_selected_rows_are_kept_and_others_zero(self, parts: tuple[KeyPart, ...], case: SumCase, seed: int) -> None:
        """Also of rows that were selected before."""
        chosen = np.random.default_rng(seed).integers(2, size=(2, len(case.values))).astype(np.bool_)
        block = parts[0].public.encrypt(case.values, case.layout).block()
        for number, kept in enumerate(chosen):
            block = parts[number].public.select(block, kept)
        assert (block.kind, block.shape) == ("rows", (len(case.values),))
        expected = np.where(np.logical_and(chosen[0], chosen[1])[:, None], case.values, 0)
        np.testing.assert_array_equal(self.opened(parts, block)[0], expected)

    def test_masked_sums(self, parts: tuple[KeyPart, ...]) -> None:
        """Sums of a party's own are added to those of rows, which share ciphertexts."""
        values = np.arange(40).reshape(20, 2) % 5
        sums = parts[0].public.encrypt(values, _LAYOUT).group_sums(np.arange(20, dtype=np.int32)[:, None] % 7, 7)
        masks = np.random.default_rng(0).integers(0, 400, size=(1, 7, 2))
        mask = parts[1].public.encrypt_sums(masks, _LAYOUT)
        public = parts[0].public
        total = (public.sums(sums.rerandomize()) + public.sums(mask)).rerandomize()
        plain = np.zeros((1, 7, 2), np.int64)
        np.add.at(plain[0], np.arange(20) % 7, values)
        np.testing.assert_array_equal(self.opened(parts, total), plain + masks)

    def test_selection_hides_what_it_kept(self, engine: Engine, parts: tuple[KeyPart, ...]) -> None:
        """No ciphertext travels twice, chosen or not, zero or not."""
        if not engine.secure:
            pytest.skip("the engine hides nothing")
        public = parts[0].public
        block = public.encrypt(np.ones((6, 2), np.int64), _LAYOUT).block()
        size = len(block.data) // block.count
        seen = [block, *(public.select(block, np.full(6, kept)) for kept in (True, True, False, False))]
        cells = [each.data[at : at + size] for each in seen for at in range(0, len(each.data), size)]
        assert len(set(cells)) == len(cells)
        assert len({len(each.data) for each in seen}) == 1

    def test_too_few_parts_open_nothing(self, engine: Engine, parts: tuple[KeyPart, ...]) -> None:
        """A missing part, one twice, one of another key, of another block, or cut short."""
        public = parts[0].public
        values = np.array([[[3, 1], [7, 2]]])
        block, other = (public.encrypt_sums(values + more, _LAYOUT) for more in (0, 1))
        partials = [part.partial_decrypt(block) for part in parts]
        wrong = [partials[:1], [*partials[:-1], partials[-1][:-1]], [*partials[:-1], parts[-1].partial_decrypt(other)]]
        if engine.secure:  # otherwise all parts are alike
            another = self.dealt(engine)
            strange = another[0].partial_decrypt(another[0].public.encrypt_sums(values, _LAYOUT))
            wrong += [partials[:-1], [*partials, partials[0]], [*partials[:-1], strange]]
        for each in wrong:
            with _refused("ciphertext"):
                parts[0].combine(block, each)

    def test_a_part_stays_where_it_is(self, engine: Engine, parts: tuple[KeyPart, ...]) -> None:
        """It has no encoder and no copy."""
        if engine.secure:
            for copier in (pickle.dumps, copy.deepcopy):
                with pytest.raises(TypeError):
                    copier(parts[0])

    def test_what_is_no_part_or_no_choice(self, engine: Engine, parts: tuple[KeyPart, ...]) -> None:
        """Of another length; a key for one; a choice of other rows, or among sums."""
        with _refused("key"):
            engine.key_part(parts[0].public.material(), b"short", protection=SecureRandom(), insecure=self.insecure)
        with _refused("range"):
            engine.deal_key(self.bits, 1, protection=SecureRandom(), insecure=self.insecure)
        public = parts[0].public
        block = public.encrypt(np.zeros((3, 2), np.int64), _LAYOUT).block()
        sums = public.encrypt_sums(np.zeros((1, 3, 2), np.int64), _LAYOUT)
        choices: list[tuple[CipherBlock, Any]] = [(block, np.ones(2, np.bool_)), (block, np.ones(3, np.int64))]
        for bad, chosen in (*choices, (sums, np.ones(3, np.bool_))):
            with _refused("type"):
                public.select(bad, chosen)

    def test_weak_settings_need_the_flag(self, engine: Engine) -> None:
        """As in :meth:`Engine.generate`."""
        if self.insecure:
            with pytest.raises(EncryptionError):
                engine.deal_key(self.bits, 2, protection=SecureRandom())


@contextmanager
def _refused(code: str) -> Iterator[None]:
    with pytest.raises(EncryptionError) as caught:
        yield
    assert caught.value.code == code
