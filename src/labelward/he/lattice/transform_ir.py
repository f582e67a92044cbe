"""Transforms of eight lanes, written in LLVM's language as vectors of doubles.

The same code becomes AVX-512, AVX2 or NEON; nothing in it is particular to a processor. A fused multiply-add is part of
the method (``ring.py``), so no fast-math flag may be set; where the processor has none, LLVM calls the C library's.

One pass is three levels on eight vectors in registers. :func:`forward` makes the first pass from coefficients,
:func:`forward_signs` from bits at each place; both write [n/8, 8]. :func:`forward_add` is the latter with the product
by another polynomial and the sum in the last pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from labelward.he.llvm import insert, intrinsic_of

_LANES = 8
_alloca: Callable[..., Any] = cgutils.alloca_once_value
F64, I64, I32, I8 = ir.DoubleType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)
VECTOR = ir.VectorType(F64, _LANES)
_VECTORS, _NUMBERS, _BYTES = VECTOR.as_pointer(), F64.as_pointer(), I8.as_pointer()
_UNDEFINED = ir.Constant(VECTOR, ir.Undefined)


def _i64(number: Any) -> Any:
    return ir.Constant(I64, number) if isinstance(number, int) else number


class _Arithmetic:
    """Residues modulo q in vectors."""

    def __init__(self, builder: ir.IRBuilder, constants: Any) -> None:
        self.b = builder
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        self._fma = insert(builder.module, kind, "llvm.fma.v8f64")
        self._rint = insert(builder.module, ir.FunctionType(VECTOR, [VECTOR]), "llvm.rint.v8f64")
        self.q, self.inverse, self.scale = (self.splat(constants, i) for i in range(3))
        self.minus_q = builder.fneg(self.q)

    def splat(self, numbers: Any, index: int) -> Any:
        value = self.b.load(self.b.gep(numbers, [_i64(index)]))
        single = self.b.insert_element(_UNDEFINED, value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(single, _UNDEFINED, ir.Constant(ir.VectorType(I32, _LANES), [0] * _LANES))

    def round(self, x: Any) -> Any:
        return self.b.call(self._rint, [x])

    def product(self, x: Any, w: Any, plus: Any = None) -> Any:
        """Return x·w modulo q, or x·w + plus."""
        b = self.b
        high = b.fmul(x, w)
        low = b.call(self._fma, [x, w, b.fneg(high)])
        quotient = b.fmul(high, self.inverse)
        if plus is not None:
            quotient = b.call(self._fma, [plus, self.inverse, quotient])
            low = b.fadd(low, plus)
        quotient = self.round(quotient)
        return b.fadd(b.call(self._fma, [quotient, self.minus_q, high]), low)

    def reduce(self, x: Any) -> Any:
        quotient = self.round(self.b.fmul(x, self.inverse))
        return self.b.call(self._fma, [quotient, self.minus_q, x])

    def times(self, x: Any, w: Any) -> Any:
        """Return x·w modulo q, balanced; x may be a sum or a difference."""
        return self.reduce(self.product(self.reduce(x), w))

    def three_levels(self, v: list[Any], factors: Sequence[Any]) -> list[Any]:
        """Split eight values at distance 4, 2 and 1."""
        for down, half in enumerate((4, 2, 1)):
            for node in range(1 << down):
                for i in range(node * 2 * half, node * 2 * half + half):
                    high = self.product(v[i + half], factors[(1 << down) - 1 + node])
                    v[i], v[i + half] = self.b.fadd(v[i], high), self.b.fsub(v[i], high)
        return v

    def three_levels_back(self, v: list[Any], factors: Sequence[Any]) -> list[Any]:
        """Undo :meth:`three_levels` up to a factor of eight; what was only added is reduced at the end."""
        for down, half in reversed(list(enumerate((4, 2, 1)))):
            for node in range(1 << down):
                for i in range(node * 2 * half, node * 2 * half + half):
                    low, high = v[i], v[i + half]
                    v[i] = self.b.fadd(low, high)
                    v[i + half] = self.product(self.b.fsub(low, high), factors[(1 << down) - 1 + node])
        return [self.reduce(each) if i < 4 else each for i, each in enumerate(v)]


def _at(builder: ir.IRBuilder, pointer: Any, index: Any) -> Any:
    return builder.gep(pointer, [_i64(index)])


def _load(builder: ir.IRBuilder, pointer: Any, index: Any) -> Any:
    return builder.load(_at(builder, pointer, index), align=8)


def _store(builder: ir.IRBuilder, value: Any, pointer: Any, index: Any) -> None:
    builder.store(value, _at(builder, pointer, index), align=8)


def _loop(builder: ir.IRBuilder, count: Any) -> Any:
    return cgutils.for_range(builder, _i64(count), intp=I64)


def _transposed(builder: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    """Exchange lanes and rows of eight vectors."""
    rows = list(rows)
    for d in (1, 2, 4):
        low = [i ^ d | _LANES if i & d else i for i in range(_LANES)]
        high = [i | _LANES if i & d else i | d for i in range(_LANES)]
        orders = [ir.Constant(ir.VectorType(I32, _LANES), order) for order in (low, high)]
        for i in range(_LANES):
            if not i & d:
                pair = rows[i], rows[i | d]
                rows[i], rows[i | d] = (builder.shuffle_vector(*pair, order) for order in orders)
    return rows


def _define(module: ir.Module, name: str, arguments: Sequence[Any], write: Callable[..., None]) -> ir.Function:
    """Return a function of this module, which ``write(builder, *arguments)`` fills the first time."""
    function = insert(module, ir.FunctionType(ir.VoidType(), list(arguments)), f"labelward_lattice_{name}")
    if not function.basic_blocks:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        write(builder, *function.args)
        builder.ret_void()
    return function


def _pass(
    b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, blocks: Any, stride: Any, *,
    back: bool = False, sink: tuple[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Write one pass in place; with a ``sink`` (factor, sum) its results are multiplied and added there instead.

    The factors of a pass with B blocks, a power of eight, begin at block (B - 1)/7.
    """
    start = b.udiv(b.sub(blocks, _i64(1)), _i64(7))
    with _loop(b, blocks) as block:
        own = b.mul(b.add(block.index, start), _i64(7))
        twiddles = [_load(b, factors, b.add(own, _i64(i))) for i in range(7)]
        first = b.mul(block.index, b.shl(stride, _i64(3)))
        with _loop(b, stride) as place:
            base = b.add(first, place.index)
            places = [b.add(base, b.mul(stride, _i64(i))) for i in range(8)]
            values = [_load(b, data, each) for each in places]
            values = (a.three_levels_back if back else a.three_levels)(values, twiddles)
            for value, each in zip(values, places, strict=True):
                if sink is None:
                    _store(b, value, data, each)
                else:
                    factor, total = sink
                    added = a.product(value, _load(b, factor, each), _load(b, total, each))
                    _store(b, added, total, each)


def _passes(b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, eighth: Any, last: int) -> None:
    """Write the passes of strides eighth/8, eighth/64, ... as long as these are at least ``last``."""
    stride = _alloca(b, b.lshr(eighth, _i64(3)))
    blocks = _alloca(b, _i64(1))
    _while(
        b, lambda: b.icmp_unsigned(">=", b.load(stride), _i64(last)), lambda: _step(b, a, data, factors, blocks, stride)
    )


def _step(b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, blocks: Any, stride: Any) -> None:
    _pass(b, a, data, factors, b.load(blocks), b.load(stride))
    b.store(b.shl(b.load(blocks), _i64(3)), blocks)
    b.store(b.lshr(b.load(stride), _i64(3)), stride)


def _passes_back(b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, eighth: Any) -> None:
    """Write the passes in the opposite order."""
    stride = _alloca(b, _i64(1))

    def step() -> None:
        here = b.load(stride)
        _pass(b, a, data, factors, b.udiv(eighth, b.shl(here, _i64(3))), here, back=True)
        b.store(b.shl(here, _i64(3)), stride)

    _while(b, lambda: b.icmp_unsigned("<", b.load(stride), eighth), step)


def _while(b: ir.IRBuilder, condition: Callable[[], Any], body: Callable[[], None]) -> None:
    """Loop while the condition holds."""
    test, inside, after = (b.append_basic_block(name) for name in ("test", "inside", "after"))
    b.branch(test)
    b.position_at_end(test)
    b.cbranch(condition(), inside, after)
    b.position_at_end(inside)
    body()
    b.branch(test)
    b.position_at_end(after)


def _from_bits(b: ir.IRBuilder, data: Any, places: Any, bits: Any, tables: Any, minus: Any = None) -> None:
    """Write the first three levels of 0/1 coefficients; ``minus`` are bits of coefficients -1."""
    with _loop(b, places) as place:
        found = _load(b, tables, b.zext(b.load(_at(b, bits, place.index)), I64))
        if minus is not None:
            found = b.fsub(found, _load(b, tables, b.zext(b.load(_at(b, minus, place.index)), I64)))
        _store(b, found, data, place.index)


def _forward(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    factors = [a.splat(first, i) for i in range(7)]
    with _loop(b, b.lshr(eighth, _i64(3))) as place:
        j = b.shl(place.index, _i64(3))
        parts = [b.bitcast(_at(b, x, b.add(j, b.mul(eighth, _i64(i)))), _VECTORS) for i in range(8)]
        values = a.three_levels([b.load(each, align=8) for each in parts], factors)
        for i, value in enumerate(_transposed(b, values)):
            _store(b, value, out, b.add(j, _i64(i)))
    _passes(b, a, out, later, eighth, 1)


def _inverse(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    _passes_back(b, a, x, later, eighth)
    factors = [a.splat(first, i) for i in range(7)]
    with _loop(b, b.lshr(eighth, _i64(3))) as place:
        j = b.shl(place.index, _i64(3))
        values = _transposed(b, [_load(b, x, b.add(j, _i64(i))) for i in range(8)])
        for i, value in enumerate(a.three_levels_back(values, factors)):
            target = b.bitcast(_at(b, out, b.add(j, b.mul(eighth, _i64(i)))), _VECTORS)
            b.store(a.reduce(a.product(value, a.scale)), target, align=8)


def _inverse_few(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, later: Any) -> None:
    """Write the first eight coefficients: of every pass but the first one they take sums alone."""
    a, blocks = _Arithmetic(b, constants), b.lshr(n, _i64(6))
    totals = [_alloca(b, ir.Constant(VECTOR, [0.0] * _LANES)) for _ in range(8)]
    start = b.udiv(b.sub(blocks, _i64(1)), _i64(7))
    with _loop(b, blocks) as block:
        own = b.mul(b.add(block.index, start), _i64(7))
        twiddles = [_load(b, later, b.add(own, _i64(i))) for i in range(7)]
        base = b.shl(block.index, _i64(3))
        values = a.three_levels_back([_load(b, x, b.add(base, _i64(i))) for i in range(8)], twiddles)
        for total, value in zip(totals, values, strict=True):
            b.store(a.reduce(b.fadd(b.load(total), value)), total)
    lanes = _transposed(b, [b.load(total) for total in totals])
    while len(lanes) > 1:
        lanes = [b.fadd(low, high) for low, high in zip(lanes[::2], lanes[1::2], strict=True)]
    b.store(a.times(lanes[0], a.scale), b.bitcast(out, _VECTORS), align=8)


def _forward_signs(
    b: ir.IRBuilder, n: Any, plus: Any, minus: Any, out: Any, constants: Any, tables: Any, later: Any
) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    _from_bits(b, out, eighth, plus, tables, minus)
    _passes(b, a, out, later, eighth, 1)


def _forward_add(
    b: ir.IRBuilder, n: Any, bits: Any, scratch: Any, factor: Any, total: Any, constants: Any, tables: Any, later: Any
) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    _from_bits(b, scratch, eighth, bits, tables)
    _passes(b, a, scratch, later, eighth, 8)
    _pass(b, a, scratch, later, b.lshr(eighth, _i64(3)), _i64(1), sink=(factor, total))


def _multiply(b: ir.IRBuilder, n: Any, x: Any, w: Any, out: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        _store(b, a.product(_load(b, x, i), _load(b, w, i)), out, i)


def _add_product(b: ir.IRBuilder, n: Any, x: Any, w: Any, total: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        _store(b, a.product(_load(b, x, i), _load(b, w, i), _load(b, total, i)), total, i)


def _add_integers(b: ir.IRBuilder, n: Any, x: Any, whole: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    modulus = b.fptosi(a.q, _INTEGERS)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        value = _load(b, whole, i)
        # the quotient may be wrong by one; the difference is exact, since integers wrap around
        quotient = b.fptosi(a.round(b.fmul(b.sitofp(value, VECTOR), a.inverse)), _INTEGERS)
        value = b.sub(value, b.mul(quotient, modulus))
        _store(b, a.reduce(b.fadd(_load(b, x, i), b.sitofp(value, VECTOR))), x, i)


def _divide(b: ir.IRBuilder, n: Any, x: Any, y: Any, back: Any, out: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    factor = a.splat(back, 0)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        _store(b, a.times(b.fsub(_load(b, x, i), _load(b, y, i)), factor), out, i)


def _divide_noisy(
    b: ir.IRBuilder, n: Any, x: Any, y: Any, small: Any, back: Any, out: Any, constants: Any, seconds: Any
) -> None:
    a, second = _Arithmetic(b, constants), _Arithmetic(b, seconds)
    factor = a.splat(back, 0)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        error = b.sitofp(b.load(_at(b, small, i), align=1), VECTOR)
        low = second.reduce(b.fadd(_load(b, y, i), error))
        _store(b, a.times(b.fsub(b.fadd(_load(b, x, i), error), low), factor), out, i)


_INTEGERS = ir.VectorType(I64, _LANES)
_WHOLE, _SMALL = _INTEGERS.as_pointer(), ir.VectorType(I8, _LANES).as_pointer()
_WRITERS: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
    "forward": (_forward, (_NUMBERS, _VECTORS, _NUMBERS, _NUMBERS, _VECTORS)),
    "inverse": (_inverse, (_VECTORS, _NUMBERS, _NUMBERS, _NUMBERS, _VECTORS)),
    "inverse_few": (_inverse_few, (_VECTORS, _NUMBERS, _NUMBERS, _VECTORS)),
    "forward_signs": (_forward_signs, (_BYTES, _BYTES, _VECTORS, _NUMBERS, _VECTORS, _VECTORS)),
    "forward_add": (_forward_add, (_BYTES, _VECTORS, _VECTORS, _VECTORS, _NUMBERS, _VECTORS, _VECTORS)),
    "multiply": (_multiply, (_VECTORS, _VECTORS, _VECTORS, _NUMBERS)),
    "add_product": (_add_product, (_VECTORS, _VECTORS, _VECTORS, _NUMBERS)),
    "add_integers": (_add_integers, (_VECTORS, _WHOLE, _NUMBERS)),
    "divide": (_divide, (_VECTORS, _VECTORS, _NUMBERS, _VECTORS, _NUMBERS)),
    "divide_noisy": (_divide_noisy, (_VECTORS, _VECTORS, _SMALL, _NUMBERS, _VECTORS, _NUMBERS, _NUMBERS)),
}


def _generator(name: str) -> Callable[..., Any]:
    """Return the code generator of a function of arrays, of which the first argument is the degree."""
    writer, kinds = _WRITERS[name]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        degree, *values = arguments
        arrays = [context.make_array(kind)(context, builder, value).data
                  for kind, value in zip(signature.args[1:], values, strict=True)]  # fmt: skip
        function = _define(builder.module, name, [I64, *kinds], writer)
        pointers = [builder.bitcast(each, kind) for each, kind in zip(arrays, kinds, strict=True)]
        builder.call(function, [degree, *pointers])
        return context.get_dummy_value()

    return generate


@intrinsic_of
def forward(typing_context: Any, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> Any:
    """Transform coefficients ``x`` [n], at most q/2, to ``out`` [n/8, 8], which are below 12·q."""
    return types.void(types.int64, x, out, constants, first, later), _generator("forward")


@intrinsic_of
def inverse(typing_context: Any, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> Any:
    """Transform ``x`` [n/8, 8], at most 1.6·q and destroyed, back to balanced coefficients ``out`` [n]."""
    return types.void(types.int64, x, out, constants, first, later), _generator("inverse")


@intrinsic_of
def inverse_few(typing_context: Any, n: Any, x: Any, out: Any, constants: Any, later: Any) -> Any:
    """Write the first eight coefficients of what :func:`inverse` gives to ``out`` [8]; ``x`` stays."""
    return types.void(types.int64, x, out, constants, later), _generator("inverse_few")


@intrinsic_of
def forward_signs(
    typing_context: Any, n: Any, plus: Any, minus: Any, out: Any, constants: Any, tables: Any, later: Any
) -> Any:
    """Transform coefficients -1, 0 and 1, given as bits: bit i of ``plus[j]`` is the coefficient of X^(j + i·n/8)."""
    return types.void(types.int64, plus, minus, out, constants, tables, later), _generator("forward_signs")


@intrinsic_of
def forward_add(
    typing_context: Any, n: Any, bits: Any, scratch: Any, factor: Any, total: Any, constants: Any, tables: Any,
    later: Any,
) -> Any:  # fmt: skip
    """Transform 0/1 coefficients, multiply by ``factor`` (≤ q/2) and add to ``total``, which stays below 1.6·q."""
    return types.void(types.int64, bits, scratch, factor, total, constants, tables, later), _generator("forward_add")


@intrinsic_of
def multiply_values(typing_context: Any, n: Any, x: Any, w: Any, out: Any, constants: Any) -> Any:
    """Write x·w of ``n`` residues, a multiple of eight."""
    return types.void(types.int64, x, w, out, constants), _generator("multiply")


@intrinsic_of
def add_product(typing_context: Any, n: Any, x: Any, w: Any, total: Any, constants: Any) -> Any:
    """Add x·w of ``n`` residues to ``total``, which stays below 1.6·q."""
    return types.void(types.int64, x, w, total, constants), _generator("add_product")


@intrinsic_of
def add_integers(typing_context: Any, n: Any, x: Any, whole: Any, constants: Any) -> Any:
    """Add integers of any size to ``n`` residues ``x``, and balance them."""
    return types.void(types.int64, x, whole, constants), _generator("add_integers")


@intrinsic_of
def divide(typing_context: Any, n: Any, x: Any, y: Any, back: Any, out: Any, constants: Any) -> Any:
    """Write (x - y)·``back[0]`` modulo the first prime, balanced: balanced residues of a number, divided by q1."""
    return types.void(types.int64, x, y, back, out, constants), _generator("divide")


@intrinsic_of
def divide_noisy(
    typing_context: Any, n: Any, x: Any, y: Any, small: Any, back: Any, out: Any, constants: Any, seconds: Any
) -> Any:
    """Add ``small``, 8-bit integers, to a number given by balanced residues, and divide it like :func:`divide`.

    ``seconds`` are the constants of the second prime.
    """
    return types.void(types.int64, x, y, small, back, out, constants, seconds), _generator("divide_noisy")


def _scalar(name: str, count: int) -> Callable[..., Any]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        function = insert(builder.module, ir.FunctionType(F64, [F64] * count), f"llvm.{name}.f64")
        return builder.call(function, arguments)

    return generate


@intrinsic_of
def fma(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z, rounded once."""
    return types.float64(types.float64, types.float64, types.float64), _scalar("fma", 3)


@intrinsic_of
def rint(typing_context: Any, x: Any) -> Any:
    """Return the nearest integer, as a double."""
    return types.float64(types.float64), _scalar("rint", 1)
