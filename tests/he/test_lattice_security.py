"""What the steps of sealing hide: each one is left out, and the key owner finds out which rows a sum holds.

The attacker is the owner of the key: it knows all a_j, all errors e, s_k and e_pk, but not u, e1 and f. The ring is
small, of which the algebra is the same; what is shown here needs no lattice reduction.
"""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.he import engine
from labelward.he.base import Layout
from labelward.he.lattice import loops, sealing
from labelward.he.lattice.ciphertexts import LatticeRows, LatticeSums
from labelward.he.lattice.digits import digits_of, known_noise, places
from labelward.he.lattice.draws import Stream, signs
from labelward.he.lattice.keys import LatticePrivateKey
from labelward.he.lattice.ring import PRIMES, Q0, Q1, Reals, balanced
from labelward.rng import SecureRandom

N = 512
ROOT = Path(__file__).parents[2]
Q = Q0 * Q1


@pytest.fixture(scope="module")
def key() -> LatticePrivateKey:
    made = engine("lattice", parameters={"secrets": 1}).generate(N, protection=SecureRandom(), insecure=True)
    assert isinstance(made, LatticePrivateKey)
    return made


def summed(key: LatticePrivateKey, members: NDArray[np.bool_]) -> tuple[LatticeRows, LatticeSums]:
    """Return rows of the number 0, and the sum of those that are ``members``."""
    layout = Layout((1,), len(members), 1)
    rows = key.public.rows(key.encrypt(np.zeros((len(members), 1), np.int64), layout).block())
    sums = rows.group_sums(np.where(members, 0, -1).astype(np.int32)[:, None], 1)
    assert isinstance(rows, LatticeRows)
    assert isinstance(sums, LatticeSums)
    return rows, sums


def bare(key: LatticePrivateKey, sums: LatticeSums) -> Reals:
    """Return the polynomial of the one sum modulo q0 and q1, as values [2, n]: no mask."""
    found = sealing._Polynomials.undefined(1, 1, N)
    sealing._sum_polynomials(key.public.elements, sums.terms, [term.lists for term in sums.terms], found)
    total = found.values[0, 0].copy()
    if found.added[0]:
        more = np.stack([found.coefficients[0, 0, prime] % q for prime, q in enumerate(PRIMES)])
        more = np.where(more > Q0 // 2, more - np.array(PRIMES)[:, None], more).astype(np.float64)
        loops.to_values(key.public.elements.ring, more)
        total += more
    loops.reduce_all(total)
    return np.asarray(total)


def quotient(key: LatticePrivateKey, numerator: Reals, a: Reals) -> NDArray[np.int64]:
    """Divide values modulo q0, point by point; return balanced coefficients."""
    points = [balanced(int(x) * pow(int(y), -1, Q0) % Q0, Q0) for x, y in zip(numerator[0], a[0], strict=True)]
    values = np.array([points, points], dtype=np.float64)
    values[1] = 0
    out = np.empty_like(values)
    loops.to_coefficients(key.public.elements.ring, values, out)
    return out[0].astype(np.int64)


def test_without_a_mask_one_division_tells_who_is_in_a_sum(key: LatticePrivateKey) -> None:
    """A_S = a · Σ X^r within one block."""
    members = np.random.default_rng(0).random(N) < 0.3
    rows, sums = summed(key, members)
    recovered = quotient(key, bare(key, sums), rows._segments[0].a[0, 0])
    np.testing.assert_array_equal(recovered, members.astype(np.int64))


def test_with_the_mask_the_same_division_tells_nothing(key: LatticePrivateKey) -> None:
    """What is recovered is spread over all residues, and is as near to the members as to others."""
    members = np.random.default_rng(1).random(N) < 0.5
    rows, sums = summed(key, members)
    recovered = quotient(key, masked(key, bare(key, sums), Stream.secret(SecureRandom())), rows._segments[0].a[0, 0])
    assert np.abs(recovered).max() > Q0 // 4
    correlation = np.corrcoef(recovered.astype(np.float64), members)[0, 1]
    assert abs(correlation) < 4 / math.sqrt(N)


def masked(key: LatticePrivateKey, total: Reals, stream: Stream) -> Reals:
    """Return A + p1·u + e1, as values, before any division."""
    elements = key.public.elements
    bits = stream.ternary(1, N)
    values = np.empty((1, 2, N))
    loops.mask_values(elements.ring, bits, values)
    small = np.repeat(stream.errors((1, N))[:, None].astype(np.float64), 2, axis=1)
    loops.to_values(elements.ring, small)
    found = total + small[0]
    loops.add_products(elements.ring, values[0], elements.masks[0], found)
    loops.reduce_all(found)
    return np.asarray(found)


def test_one_mask_for_two_sums_cancels(key: LatticePrivateKey) -> None:
    """The difference is that of the bare sums: one division tells where the two groups differ."""
    rng = np.random.default_rng(2)
    first, second = rng.random(N) < 0.4, rng.random(N) < 0.4
    layout = Layout((1,), N, 1)
    rows = key.public.rows(key.encrypt(np.zeros((N, 1), np.int64), layout).block())
    assert isinstance(rows, LatticeRows)
    hidden = []
    for members in (first, second):
        sums = rows.group_sums(np.where(members, 0, -1).astype(np.int32)[:, None], 1)
        assert isinstance(sums, LatticeSums)
        hidden.append(masked(key, bare(key, sums), Stream(bytes(32))))  # the same draws
    difference = hidden[0] - hidden[1]
    recovered = quotient(key, difference, rows._segments[0].a[0, 0])
    np.testing.assert_array_equal(recovered, first.astype(np.int64) - second.astype(np.int64))


def test_no_mask_and_public_element_are_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 sums of two sets of secrets: every pair (u, p1) is a new one, and so is e1."""
    used, errors = [], []
    original = loops.seal_sums

    def noted(ring: Any, first: int, values: Any, *others: Any) -> None:
        _, _, _, pairs, _, masked, elements, _, drawn, *_ = others
        for at in range(first, first + len(values)):
            for (mask, element), error in zip(pairs[at], drawn[at], strict=True):
                used.append((masked[mask].tobytes(), elements[element].tobytes()))
                errors.append(error.tobytes())
        original(ring, first, values, *others)

    monkeypatch.setattr(loops, "seal_sums", noted)
    made = engine("lattice", parameters={"secrets": 1}).generate(N, protection=SecureRandom(), insecure=True)
    layout = Layout((1, 1), 100, 2)
    rows = made.public.rows(made.encrypt(np.zeros((100, 2), np.int64), layout).block())
    sums = rows.group_sums(np.arange(100, dtype=np.int32)[:, None], 100)
    for _ in range(2):
        sums.rerandomize()
    assert len(used) == len(set(used)) == len(set(errors)) == 2 * 100 * 2
    assert len({mask for mask, _ in used}) < len(used)


# -- flooding --------------------------------------------------------------------------------------------------------

_ROWS, _SUMS = 8_192, 400


def noise_of_words(key: LatticePrivateKey, *, flooded: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, of sums of random rows, the noise of what the owner decrypts modulo Q, and Σ e over the rows.

    That is the word before the division by q1: beta - [A·s]_0, of which the owner can compute Σ e for any set of rows.
    """
    rng, stream = np.random.default_rng(3), Stream.secret(SecureRandom())
    n_sets = _SUMS
    errors = stream.errors((_ROWS,))
    chosen = rng.random((n_sets, _ROWS)) < 0.5
    known = chosen @ errors
    u, small, of_key = signs(stream.ternary(n_sets, N)), stream.errors((n_sets, N)), stream.errors((N,))
    s = signs(stream.ternary(1, N))[0]
    hiding = u @ of_key - small @ s
    flood = stream.flood(digits_of(Layout((1,), _ROWS, 1), N).flood, n_sets) if flooded else 0
    return (known + hiding + flood).astype(np.float64), known.astype(np.float64)


def test_without_flooding_the_noise_tells_which_rows(key: LatticePrivateKey) -> None:
    """Statistical test on the owner's side: the noise of a sum goes with Σ e of its rows; with flooding it does not."""
    noise, known = noise_of_words(key, flooded=False)
    assert np.corrcoef(noise, known)[0, 1] > 0.8  # 8,192/2 rows against 2/3 · 2 · 512: sqrt(4096/(4096 + 683)) = .93
    noise, known = noise_of_words(key, flooded=True)
    assert abs(np.corrcoef(noise, known)[0, 1]) < 4 / math.sqrt(_SUMS)


def test_flooding_is_that_of_the_argument() -> None:
    """2^40 times the bound of all that the owner knows, for every number of rows; 2^-41 of statistical distance."""
    for rows in (1, 30_000, 1_000_000, 1 << 24):
        for n in (512, 4096):
            digits = digits_of(Layout((1 << 30,), rows, 1), n)
            assert known_noise(rows, n) / 2.0**digits.flood <= 2.0**-40


def test_sealed_words_do_not_go_with_the_errors(key: LatticePrivateKey) -> None:
    """Of the engine's own sums, as the owner decrypts them: the noise is not that of the rows' errors."""
    layout = Layout((1,), _ROWS, 1)
    stream = Stream(bytes(32))
    values = np.zeros((_ROWS, 1), np.int64)
    with pytest.MonkeyPatch.context() as patch:  # the owner notes the errors of its rows
        noted = []
        plain = Stream.errors

        def errors(self: Stream, shape: tuple[int, ...]) -> Any:
            found = plain(self, shape)
            noted.append(found)
            return found

        patch.setattr(Stream, "errors", errors)
        block = key.encrypt(values, layout).block()
    assert stream.words(1) is not None
    own = []  # row r of a block has the error of [X^r·e]_0
    for each in noted:
        own.append(np.concatenate([each[0, :1], -each[0, :0:-1]]))
    e = np.concatenate(own)
    assert len(e) == _ROWS
    rng = np.random.default_rng(4)
    groups = np.where(rng.random((_ROWS, 200)) < 0.5, 0, -1).astype(np.int32)
    sealed = key.public.rows(block).group_sums(groups, 1).rerandomize()
    digits = digits_of(layout, N)
    words, packed = open_sealed(sealed.data, 200)
    raw = np.empty((200, 1), dtype=np.int64)
    for i in range(len(packed)):
        part = slice(i * 32, (i + 1) * 32)
        loops.open_packed(
            key.public.elements.ring, packed[i], words[part], key._secrets.packing, places(N, 1), 1.0, raw[part]
        )
    known = (groups == 0).T @ e
    assert np.abs(raw).max() < digits.step / 2
    assert abs(np.corrcoef(raw[:, 0].astype(np.float64), known)[0, 1]) < 4 / math.sqrt(200)


def open_sealed(data: bytes, sums: int) -> tuple[Any, Any]:
    """Return words [sums, 1] and polynomials of a block of sums of one digit."""
    from labelward.he.lattice.row_data import HEAD_BYTES
    from labelward.he.lattice.words import packed_size, unpack

    batches = -(-sums // 32)
    view, size = memoryview(data)[HEAD_BYTES:], packed_size(batches * N)
    packed = unpack(view[:size], (batches * N,)).reshape(batches, N)
    return unpack(view[size:], (sums,)).reshape(sums, 1), packed


def test_two_seals_share_no_word_and_an_empty_group_is_like_any_other(key: LatticePrivateKey) -> None:
    """Words and coefficients of an empty sum and of a full one have the same spread."""
    layout = Layout((1,), 600, 1)
    rows = key.public.rows(key.encrypt(np.ones((600, 1), np.int64), layout).block())
    groups = np.where(np.arange(600) < 300, np.arange(600) % 32, 32).astype(np.int32)[:, None]
    sums = rows.group_sums(groups, 64)  # 32 full, one large, 31 empty
    first, second = (open_sealed(sums.rerandomize().data, 64) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert not np.intersect1d(one, other).size
    for polynomial in first[1]:
        centered = polynomial / Q0 - 0.5
        assert abs(centered.mean()) < 5 / math.sqrt(12 * N)
        assert centered.std() == pytest.approx(1 / math.sqrt(12), rel=0.1)


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_the_estimate_that_the_program_prints() -> None:
    """And what it says of the standard's bound: 98 bits of 109."""
    page = (ROOT / "docs" / "explanation-lattice-security.md").read_text()
    found = runpy.run_path(str(ROOT / "benchmarks" / "lattice_hardness.py"))
    for line in found["table"]():
        assert line in page
    assert found["estimate"](4096, 98.0).core_classical > found["estimate"](4096, 109.0).core_classical > 90
    assert math.log2(Q) < 98


def test_the_estimate_is_that_of_the_lattice_estimator() -> None:
    """Its block sizes of the primal attack (usvp) with the engine's modulus, and with the standard's bound."""
    estimate = runpy.run_path(str(ROOT / "benchmarks" / "lattice_hardness.py"))["estimate"]
    assert [estimate(4096, bits).block for bits in (98.0, 109.0)] == [382, 327]
    assert estimate(4096, 98.0).core_classical == pytest.approx(111.5, abs=0.1)
    assert estimate(4096, 98.0).classical == pytest.approx(143.9, abs=0.1)
