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
#: 3·2^51: what is added to it, and is at most 2^51, is rounded to an integer. So one instruction multiplies and rounds.
_ROUNDING = ir.Constant(VECTOR, [float(3 << 51)] * _LANES)


def _i64(number: Any) -> Any:
    return ir.Constant(I64, number) if isinstance(number, int) else number


class _Arithmetic:
    """Residues modulo q in vectors; what they may be at most stands in ``ring.py``."""

    def __init__(self, builder: ir.IRBuilder, constants: Any) -> None:
        self.b = builder
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        self._fma = insert(builder.module, kind, "llvm.fma.v8f64")
        self.q, self.inverse, self.scale = (self.splat(constants, i) for i in range(3))
        self.minus_q = builder.fneg(self.q)

    def splat(self, numbers: Any, index: int) -> Any:
        value = self.b.load(self.b.gep(numbers, [_i64(index)]))
        single = self.b.insert_element(_UNDEFINED, value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(single, _UNDEFINED, ir.Constant(ir.VectorType(I32, _LANES), [0] * _LANES))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.b.call(self._fma, [x, y, z])

    def rest(self, x: Any, shifted: Any) -> Any:
        """Return x - k·q, of a quotient k that :data:`_ROUNDING` was added to."""
        return self.fma(self.b.fsub(shifted, _ROUNDING), self.minus_q, x)

    def reduce(self, x: Any) -> Any:
        return self.rest(x, self.fma(x, self.inverse, _ROUNDING))

    def product(self, x: Any, w: Any, plus: Any = None) -> Any:
        """Return x·w modulo q, or x·w + plus."""
        high = self.b.fmul(x, w)
        low, rounding = self.fma(x, w, self.b.fneg(high)), _ROUNDING
        if plus is not None:
            low, rounding = self.b.fadd(low, plus), self.fma(plus, self.inverse, _ROUNDING)
        return self.b.fadd(self.rest(high, self.fma(high, self.inverse, rounding)), low)

    def by(self, x: Any, factor: tuple[Any, Any]) -> Any:
        """Return x·w modulo q of a factor (w, w/q), whose quotient does not wait for the product."""
        w, part = factor
        high = self.b.fmul(x, w)
        low = self.fma(x, w, self.b.fneg(high))
        return self.b.fadd(self.rest(high, self.fma(x, part, _ROUNDING)), low)

    def factor(self, w: Any) -> tuple[Any, Any]:
        return w, self.b.fmul(w, self.inverse)

    def times(self, x: Any, w: Any) -> Any:
        """Return x·w modulo q, balanced."""
        return self.reduce(self.product(x, w))

    def level(self, v: list[Any], down: int, factors: Sequence[Any]) -> None:
        """Split eight values at distance 4, 2 or 1."""
        half = 4 >> down
        for node in range(1 << down):
            for i in range(node * 2 * half, node * 2 * half + half):
                high = self.by(v[i + half], factors[(1 << down) - 1 + node])
                v[i], v[i + half] = self.b.fadd(v[i], high), self.b.fsub(v[i], high)

    def three_levels(self, v: list[Any], factors: Sequence[Any]) -> list[Any]:
        """Split eight values at distance 4, 2 and 1."""
        for down in range(3):
            self.level(v, down, factors)
        return v

    def three_levels_of(self, found: Callable[[int, int], Any], factors: Sequence[Any]) -> list[Any]:
        """Split eight values as :meth:`three_levels` does; ``found(i, p)`` is value i times product p of ``ring.py``.

        The first two levels have no product then, and only the last four ``factors`` are read.
        """
        v = [_UNDEFINED] * 8
        for i in range(2):
            low, high = found(i, 0), found(i + 4, 1)
            near, far = self.b.fadd(found(i + 2, 2), found(i + 6, 3)), self.b.fsub(found(i + 2, 4), found(i + 6, 5))
            low, high = self.b.fadd(low, high), self.b.fsub(low, high)
            v[i], v[i + 2], v[i + 4], v[i + 6] = (
                self.b.fadd(low, near), self.b.fsub(low, near), self.b.fadd(high, far), self.b.fsub(high, far)
            )  # fmt: skip
        self.level(v, 2, factors)
        return v

    def three_levels_back(self, v: list[Any], factors: Sequence[Any], scale: Any = None) -> list[Any]:
        """Undo :meth:`three_levels` up to a factor of eight, and multiply by a ``scale``, which factor 0 contains.

        The sum of all eight would grow too large for a product, and the one next to it for the next pass.
        """
        for down, half in reversed(list(enumerate((4, 2, 1)))):
            if half == 4:
                v[0], v[4] = self.reduce(v[0]), self.reduce(v[4])
            for node in range(1 << down):
                for i in range(node * 2 * half, node * 2 * half + half):
                    low, high = v[i], v[i + half]
                    v[i] = self.b.fadd(low, high)
                    v[i + half] = self.by(self.b.fsub(low, high), factors[(1 << down) - 1 + node])
        if scale is not None:
            return [self.by(each, scale) if i < 4 else each for i, each in enumerate(v)]
        return [self.reduce(each) if i == 1 else each for i, each in enumerate(v)]


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
    b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, blocks: tuple[Any, Any], number: Any, stride: Any, *,
    back: bool = False, sink: tuple[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Write one pass over some blocks (first one, how many), in place.

    ``number`` is the place of the first block's factors. With a ``sink`` (factor, sum) the results are multiplied and
    added there instead.
    """
    first, count = blocks
    with _loop(b, count) as block:
        own = b.mul(b.add(block.index, number), _i64(7))
        twiddles = [a.factor(_load(b, factors, b.add(own, _i64(i)))) for i in range(7)]
        begin = b.mul(b.add(first, block.index), b.shl(stride, _i64(3)))
        with _loop(b, stride) as place:
            base = b.add(begin, place.index)
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


def _first_pass_of_bits(
    b: ir.IRBuilder, a: _Arithmetic, bits: Any, tables: Any, out: Any, factors: Any, eighth: Any, *, minus: Any = None
) -> None:
    """Write the pass of the largest stride of 0/1 coefficients; ``minus`` are bits of coefficients -1."""
    stride = b.lshr(eighth, _i64(3))
    twiddles = [a.factor(_load(b, factors, i)) for i in range(7)]
    with _loop(b, stride) as place:
        places = [b.add(place.index, b.mul(stride, _i64(i))) for i in range(8)]
        indexes = [[b.zext(b.load(_at(b, of, i)), I64) for i in places] for of in (bits, minus) if of is not None]

        def found(i: int, product: int) -> Any:
            of = [_load(b, _at(b, tables, product << 8), each[i]) for each in indexes]
            return b.fsub(*of) if minus is not None else of[0]

        if minus is None:
            values = a.three_levels_of(found, twiddles)
        else:  # four differences of products would leave the range
            values = a.three_levels([found(i, 0) for i in range(8)], twiddles)
        for each, at in zip(values, places, strict=True):
            _store(b, each, out, at)


def _parts(
    b: ir.IRBuilder, a: _Arithmetic, data: Any, factors: Any, eighth: Any, *,
    back: bool = False, sink: tuple[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Write all passes but that of the largest stride, one eighth after the other, which stays in the nearest cache.

    Degree 512 has the stride 1 alone, 4096 the stride 8 as well. The factors of a pass with B blocks begin at
    (B - 1)/7.
    """
    inner = b.lshr(eighth, _i64(6))  # blocks of stride 1 in an eighth
    number = b.udiv(b.sub(b.shl(inner, _i64(3)), _i64(1)), _i64(7))
    wide = b.icmp_unsigned("==", inner, _i64(8))
    with _loop(b, _i64(8)) as part:
        own = b.mul(part.index, inner)

        def of_stride_one() -> None:
            _pass(b, a, data, factors, (own, inner), b.add(number, own), _i64(1), back=back, sink=sink)

        if back:
            of_stride_one()
        with b.if_then(wide):
            _pass(b, a, data, factors, (part.index, _i64(1)), b.add(_i64(1), part.index), _i64(8), back=back)
        if not back:
            of_stride_one()


def _forward(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    factors = [a.factor(a.splat(first, i)) for i in range(7)]
    with _loop(b, b.lshr(eighth, _i64(3))) as place:
        j = b.shl(place.index, _i64(3))
        parts = [b.bitcast(_at(b, x, b.add(j, b.mul(eighth, _i64(i)))), _VECTORS) for i in range(8)]
        values = a.three_levels([b.load(each, align=8) for each in parts], factors)
        for i, value in enumerate(_transposed(b, values)):
            _store(b, value, out, b.add(j, _i64(i)))
    _pass(b, a, out, later, (_i64(0), _i64(1)), _i64(0), b.lshr(eighth, _i64(3)))
    _parts(b, a, out, later, eighth)


def _inverse(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    _parts(b, a, x, later, eighth, back=True)
    _pass(b, a, x, later, (_i64(0), _i64(1)), _i64(0), b.lshr(eighth, _i64(3)), back=True)
    factors = [a.factor(a.splat(first, i)) for i in range(7)]
    scale = a.factor(a.scale)
    with _loop(b, b.lshr(eighth, _i64(3))) as place:
        j = b.shl(place.index, _i64(3))
        values = _transposed(b, [_load(b, x, b.add(j, _i64(i))) for i in range(8)])
        for i, value in enumerate(a.three_levels_back(values, factors, scale)):
            target = b.bitcast(_at(b, out, b.add(j, b.mul(eighth, _i64(i)))), _VECTORS)
            b.store(a.reduce(value), target, align=8)


def _inverse_few(b: ir.IRBuilder, n: Any, x: Any, out: Any, constants: Any, later: Any) -> None:
    """Write the first eight coefficients: of every pass but the first one they take sums alone."""
    a, blocks = _Arithmetic(b, constants), b.lshr(n, _i64(6))
    totals = [_alloca(b, ir.Constant(VECTOR, [0.0] * _LANES)) for _ in range(8)]
    start = b.udiv(b.sub(blocks, _i64(1)), _i64(7))
    with _loop(b, blocks) as block:
        own = b.mul(b.add(block.index, start), _i64(7))
        twiddles = [a.factor(_load(b, later, b.add(own, _i64(i)))) for i in range(7)]
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
    _first_pass_of_bits(b, a, plus, tables, out, later, eighth, minus=minus)
    _parts(b, a, out, later, eighth)


def _forward_add(
    b: ir.IRBuilder, n: Any, bits: Any, scratch: Any, factor: Any, total: Any, constants: Any, tables: Any, later: Any
) -> None:
    a, eighth = _Arithmetic(b, constants), b.lshr(n, _i64(3))
    _first_pass_of_bits(b, a, bits, tables, scratch, later, eighth)
    _parts(b, a, scratch, later, eighth, sink=(factor, total))


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


def _add_four(b: ir.IRBuilder, n: Any, x: Any, x_apart: Any, w: Any, w_apart: Any, total: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        found = _load(b, total, i)
        for each in range(4):
            left, right = (b.add(i, b.mul(b.lshr(apart, _i64(3)), _i64(each))) for apart in (x_apart, w_apart))
            found = b.fadd(found, a.product(_load(b, x, left), _load(b, w, right)))
        _store(b, a.reduce(found), total, i)


def _add_integers(b: ir.IRBuilder, n: Any, x: Any, whole: Any, constants: Any) -> None:
    a = _Arithmetic(b, constants)
    modulus = b.fptosi(a.q, _INTEGERS)
    with _loop(b, b.lshr(n, _i64(3))) as place:
        i = place.index
        value = _load(b, whole, i)
        # the quotient may be wrong by one; the difference is exact, since integers wrap around
        quotient = b.fptosi(b.fsub(a.fma(b.sitofp(value, VECTOR), a.inverse, _ROUNDING), _ROUNDING), _INTEGERS)
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


def _sum_signed(b: ir.IRBuilder, n: Any, plus: Any, minus: Any, x: Any, out: Any) -> None:
    """A bit is added by a masked instruction; a product with -1, 0 or 1 would take a dozen times as long."""
    nothing, bits = ir.Constant(_INTEGERS, [0] * _LANES), ir.VectorType(ir.IntType(1), _LANES)
    totals = [_alloca(b, nothing) for _ in range(2)]
    with _loop(b, b.lshr(n, _i64(3))) as place:
        value = _load(b, x, place.index)
        for total, chosen in zip(totals, (plus, minus), strict=True):
            mask = b.bitcast(b.load(_at(b, chosen, place.index)), bits)
            b.store(b.add(b.load(total), b.select(mask, value, nothing)), total)
    _store(b, b.sub(b.load(totals[0]), b.load(totals[1])), out, 0)


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
    "add_four": (_add_four, (_VECTORS, I64, _VECTORS, I64, _VECTORS, _NUMBERS)),
    "add_integers": (_add_integers, (_VECTORS, _WHOLE, _NUMBERS)),
    "sum_signed": (_sum_signed, (_BYTES, _BYTES, _WHOLE, _WHOLE)),
    "divide": (_divide, (_VECTORS, _VECTORS, _NUMBERS, _VECTORS, _NUMBERS)),
    "divide_noisy": (_divide_noisy, (_VECTORS, _VECTORS, _SMALL, _NUMBERS, _VECTORS, _NUMBERS, _NUMBERS)),
}


def _generator(name: str) -> Callable[..., Any]:
    """Return the code generator of a function of arrays and integers, of which the first one is the degree."""
    writer, kinds = _WRITERS[name]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        degree, *values = arguments
        function = _define(builder.module, name, [I64, *kinds], writer)
        given = [
            value if kind is I64 else builder.bitcast(context.make_array(form)(context, builder, value).data, kind)
            for form, value, kind in zip(signature.args[1:], values, kinds, strict=True)
        ]
        builder.call(function, [degree, *given])
        return context.get_dummy_value()

    return generate


@intrinsic_of
def forward(typing_context: Any, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> Any:
    """Transform coefficients ``x`` [n], at most q/2, to ``out`` [n/8, 8], which are below 8·q."""
    return types.void(types.int64, x, out, constants, first, later), _generator("forward")


@intrinsic_of
def inverse(typing_context: Any, n: Any, x: Any, out: Any, constants: Any, first: Any, later: Any) -> Any:
    """Transform ``x`` [n/8, 8], at most 1.3·q and destroyed, back to balanced coefficients ``out`` [n]."""
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
    """Transform 0/1 coefficients, multiply by ``factor`` (≤ q/2) and add to ``total``, which stays below 1.3·q."""
    return types.void(types.int64, bits, scratch, factor, total, constants, tables, later), _generator("forward_add")


@intrinsic_of
def multiply_values(typing_context: Any, n: Any, x: Any, w: Any, out: Any, constants: Any) -> Any:
    """Write x·w of ``n`` residues, a multiple of eight."""
    return types.void(types.int64, x, w, out, constants), _generator("multiply")


@intrinsic_of
def add_product(typing_context: Any, n: Any, x: Any, w: Any, total: Any, constants: Any) -> Any:
    """Add x·w of ``n`` residues to ``total``, which stays below 1.3·q."""
    return types.void(types.int64, x, w, total, constants), _generator("add_product")


@intrinsic_of
def add_four(
    typing_context: Any, n: Any, x: Any, x_apart: Any, w: Any, w_apart: Any, total: Any, constants: Any
) -> Any:
    """Add four products x·w of ``n`` residues, so far apart, to ``total``, which becomes balanced."""
    kinds = types.void(types.int64, x, types.int64, w, types.int64, total, constants)
    return kinds, _generator("add_four")


@intrinsic_of
def add_integers(typing_context: Any, n: Any, x: Any, whole: Any, constants: Any) -> Any:
    """Add integers of any size to ``n`` residues ``x``, and balance them."""
    return types.void(types.int64, x, whole, constants), _generator("add_integers")


@intrinsic_of
def sum_signed(typing_context: Any, n: Any, plus: Any, minus: Any, x: Any, out: Any) -> Any:
    """Write by lane, ``out`` [8], the sum of ``n`` integers ``x`` where bits are set, less those of ``minus``."""
    return types.void(types.int64, plus, minus, x, out), _generator("sum_signed")


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
