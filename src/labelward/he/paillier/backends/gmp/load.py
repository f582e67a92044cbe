"""Finding libgmp, and trusting its functions only after they gave known results.

What is wanted are GMP's ``mpn`` functions, those of GMP itself for the low half of a product and for a product modulo
2^(64·k) - 1 among them. These are not part of its documented interface, though every build since version 5 has them
under these names; so each is looked for, called on numbers whose result gmpy2 knows, and the kernel stands aside if one
is missing or differs.
"""

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import gmpy2
import numpy as np
from gmpy2 import mpz
from llvmlite import binding  # type: ignore[import-untyped]
from numpy.typing import NDArray

#: A product of numbers of at least so many limbs pays for the detour over 2^(64·k) - 1.
WRAPPED_FROM = 20
_BASECASE_UP_TO = 64  # limbs up to which schoolbook's low half of a product is the fastest here
_SIZES = (1, 2, 5, 16, 24, 33, 64, 120)


class MissingError(Exception):
    """Something of libgmp is not as this kernel needs it."""


class Mpn(NamedTuple):
    """Addresses of functions on numbers of one size; all lengths are in limbs.

    Attributes:
        multiply: (result [2n], a, n, b, n).
        square: (result [2n], a, n).
        low: (result [n], a, b, n), the low half of a product.
        wrapped: (result [n], n, a, n, b, n, scratch), a product modulo 2^(64·n) - 1.
        add, subtract: (result [n], a, b, n), returning what is carried or borrowed.
    """

    multiply: int
    square: int
    low: int
    wrapped: int
    add: int
    subtract: int


def gmp_libraries() -> Iterator[tuple[str, Callable[[], ctypes.CDLL]]]:
    """Yield the names of places and how to open them: what gmpy2 itself uses comes first."""
    extension = getattr(getattr(gmpy2, "gmpy2", None), "__file__", None)
    if extension:
        # symbols are looked for in what a library depends on, too
        yield "gmpy2's extension", lambda: ctypes.CDLL(extension)
        beside = Path(extension).parent
        for folder in (beside.parent / "gmpy2.libs", beside / ".dylibs", beside):
            for path in sorted(folder.glob("*gmp-*")) + sorted(folder.glob("*gmp.*")):
                if path.suffix not in {".h", ".pxd", ".py"}:
                    yield path.name, lambda path=path: ctypes.CDLL(str(path))  # type: ignore[misc]
    found = ctypes.util.find_library("gmp")
    if found:
        yield found, lambda: ctypes.CDLL(found)


@cache
def _library() -> ctypes.CDLL:
    """Return the first library whose functions do what they should.

    Raises:
        MissingError: there is none; says what is wrong with each.
    """
    wrong = []
    for name, open_it in gmp_libraries():
        try:
            library = open_it()
            _check_limbs(library)
            for size in _SIZES:
                _check(_choose(library, size), size)
        except (OSError, AttributeError, ValueError, MissingError) as error:
            wrong.append(f"{name}: {error}")
        else:
            return library
    raise MissingError("; ".join(wrong) or "no libgmp was found")


@cache
def mpn_functions(size: int) -> Mpn:
    """Return what multiplies numbers of ``size`` limbs fastest.

    Raises:
        MissingError: no libgmp can be used here.
    """
    return _choose(_library(), size)


def forget_library() -> None:
    """Look for the library again."""
    _library.cache_clear()
    mpn_functions.cache_clear()


def _constants(library: ctypes.CDLL) -> tuple[str, int]:
    version = ctypes.c_char_p.in_dll(library, "__gmp_version").value or b""
    return version.decode(), ctypes.c_int.in_dll(library, "__gmp_bits_per_limb").value


def _check_limbs(library: ctypes.CDLL) -> None:
    version, bits = _constants(library)
    if int(version.partition(".")[0]) < 5:
        raise MissingError(f"version {version} is older than 5")
    if bits != 64 or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise MissingError(f"its limbs have {bits} bits, and addresses {8 * ctypes.sizeof(ctypes.c_void_p)}, not 64")


def _choose(library: ctypes.CDLL, size: int) -> Mpn:
    def address(*names: str) -> int:
        """Return the first function there is."""
        for name in names[:-1]:
            if hasattr(library, name):
                return address(name)
        return int(ctypes.cast(getattr(library, names[-1]), ctypes.c_void_p).value or 0)

    # libgmp chooses by the name of the processor, and takes the Zen of 2017 for each later one; where these two
    # instructions exist, the code that uses both is the fastest it has
    features = binding.get_host_cpu_features()
    quick = ["__gmpn_{}_basecase_coreibwl"] if features.get("adx") and features.get("bmi2") else []
    small, low = size < WRAPPED_FROM, size <= _BASECASE_UP_TO
    names = {
        kind: [pattern.format(kind) for pattern in [*quick, "__gmpn_{}_basecase"]] if wanted else []
        for kind, wanted in (("mul", small), ("mullo", low), ("sqr", small))
    }
    return Mpn(
        multiply=address(*names["mul"], "__gmpn_mul"),
        square=address(*names["sqr"], "__gmpn_sqr"),
        low=address(*names["mullo"], "__gmpn_mullo_n"),
        wrapped=address("__gmpn_mulmod_bnm1"),
        add=address("__gmpn_add_n"),
        subtract=address("__gmpn_sub_n"),
    )


def _check(mpn: Mpn, size: int) -> None:
    """Compare each function with integers, numbers of all ones among them."""
    radix = mpz(1) << (64 * size)
    drawn = gmpy2.mpz_urandomb(gmpy2.random_state(size), 128 * size)
    numbers = [radix - 1, drawn % radix, drawn >> (64 * size), mpz(1)]
    for a, b in product(numbers, numbers):
        x, y, scratch = _limbs(a, size), _limbs(b, size), np.zeros(4 * size + 64, dtype=np.uint64)
        wrapped, _ = _call(mpn.wrapped, size, size, x, size, y, size, scratch)
        total, carry = _call(mpn.add, size, x, y, size)
        rest, borrow = _call(mpn.subtract, size, x, y, size)
        right = (
            _call(mpn.multiply, 2 * size, x, size, y, size)[0] == a * b
            and _call(mpn.square, 2 * size, x, size)[0] == a * a
            and _call(mpn.low, size, x, y, size)[0] == a * b % radix
            and wrapped % (radix - 1) == a * b % (radix - 1)
            and total + carry * radix == a + b
            and rest - borrow * radix == a - b
        )
        if not right:
            raise MissingError(f"a product of {size} limbs is wrong")


def _call(address: int, limbs: int, *arguments: int | NDArray[np.uint64]) -> tuple[mpz, int]:
    """Call a function whose result has so many limbs; returns it and what the function returns."""
    result = np.zeros(limbs + 1, dtype=np.uint64)
    kinds = [ctypes.c_size_t if isinstance(each, int) else ctypes.c_void_p for each in arguments]
    given = [each if isinstance(each, int) else each.ctypes.data for each in arguments]
    returned = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, *kinds)(address)(result.ctypes.data, *given)
    if result[limbs]:
        raise MissingError("a function writes beyond its result")
    return mpz(int.from_bytes(result[:limbs].tobytes(), "little")), int(returned)


def _limbs(number: mpz, size: int) -> NDArray[np.uint64]:
    return np.frombuffer(int(number).to_bytes(8 * size, "little"), dtype=np.uint64).copy()
