"""Eight Montgomery products at a time, written in LLVM's language for AVX-512 IFMA.

Numbers are *vertical*: an array uint64 [limbs, 8] holds eight numbers, one in each lane, in limbs of 52 bits, lowest
first. What is here are numba intrinsics, so that loops around them are plain numba, compiled without a compiler on the
user's machine and cached on disk.

The method is operand scanning (P. Montgomery, *Modular Multiplication Without Trial Division*, 1985), four limbs of y
at a time: four quotient digits are found from the four lowest columns, then each further column takes its sixteen
multiply-adds in four independent chains, with one load of x, one of the modulus, and one load and store of the
accumulator. Carries are settled once at the end: a column collects at most 4·t summands below 2^52, and t ≤ 512 keeps
it below 2^64. A product costs 4·k·t multiply-adds for k limbs of the modulus and t limbs of y. A square costs 3·k·t: of
the products of two different limbs, which occur twice, one is made and doubled; then all is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from labelward.he.llvm import insert, intrinsic_of, prefetch

LANES, LIMB_BITS, LINE = 8, 52, 64
#: The fewest limbs that a number may have here.
LEAST = 8

_alloca: Callable[..., Any] = cgutils.alloca_once_value

I64 = ir.IntType(64)
LANE = ir.VectorType(I64, LANES)
NUMBERS, NUMBER = LANE.as_pointer(), I64.as_pointer()


class _Writer:
    """Writes one block of quotient digits; ``x`` and ``y`` are None where there is only a reduction."""

    def __init__(self, builder: ir.IRBuilder, m: Any, inverse: Any, limbs: Any, x: Any, y: Any) -> None:
        self.b, self.m, self.limbs, self.x, self.y = builder, m, limbs, x, y
        self.inverse = self.splat(inverse)
        self.zero = ir.Constant(LANE, [0] * LANES)
        kind = ir.FunctionType(LANE, [LANE] * 3)
        self.low, self.high = (insert(builder.module, kind, f"llvm.x86.avx512.vpmadd52{half}.uq.512") for half in "lh")

    def splat(self, number: Any) -> Any:
        single = self.b.insert_element(ir.Constant(LANE, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.b.shuffle_vector(single, ir.Constant(LANE, ir.Undefined), order)

    def load(self, pointer: Any, index: Any) -> Any:
        return self.b.load(self.b.gep(pointer, [i64(index)]), align=8)

    def store(self, value: Any, pointer: Any, index: Any) -> None:
        self.b.store(value, self.b.gep(pointer, [i64(index)]), align=8)

    def modulus(self, index: Any) -> Any:
        return self.splat(self.b.load(self.b.gep(self.m, [i64(index)])))

    def total(self, terms: Sequence[tuple[Any, Any, Any]], start: Any) -> Any:
        """Add products to ``start`` in four chains."""
        chains = [start, self.zero, self.zero, self.zero]
        for index, (half, first, second) in enumerate(terms):
            chains[index % 4] = self.b.call(half, [chains[index % 4], first, second])
        return self.b.add(self.b.add(chains[0], chains[1]), self.b.add(chains[2], chains[3]))

    def terms(self, window: Sequence[Any], digits: Sequence[Any], top: int) -> list[tuple[Any, Any, Any]]:
        """Return the products of one column: low halves of window[i]·digits[top-i], high halves of those below.

        ``window[i]`` is limb i of a stretch of limbs; the column is the ``top``-th of that stretch.
        """
        found = []
        for s, digit in enumerate(digits):
            if 0 <= top - s < len(window):
                found.append((self.low, window[top - s], digit))
            if 0 <= top - 1 - s < len(window):
                found.append((self.high, window[top - 1 - s], digit))
        return found

    def block(self, acc: Any, row: Any, size: int) -> None:
        """Add x·y[row..row+size) and clear as many columns of ``acc``, which starts at ``row``."""
        b, multiplying = self.b, self.x is not None
        ys = [self.load(self.y, b.add(row, i64(s))) for s in range(size)] if multiplying else []
        xs = [self.load(self.x, s) for s in range(size)] if multiplying else []
        ms, carry = [self.modulus(s) for s in range(size)], self.zero
        qs: list[Any] = []
        mask, shift = self.splat(i64(2**LIMB_BITS - 1)), self.splat(i64(LIMB_BITS))
        started = [self.total(self.terms(xs[: c + 1], ys, c), self.load(acc, c)) for c in range(size)]
        for c, start in enumerate(started):
            w = self.total(self.terms(ms, qs, c), b.add(start, carry))
            qs.append(b.call(self.low, [self.zero, w, self.inverse]))
            if not multiplying:
                self.store(qs[-1], acc, c)
            # q clears the low bits of w: what is left is w's high part, and one more unless they were zero
            carry = b.lshr(b.add(w, mask), shift)
        self.store(b.add(self.load(acc, size), carry), acc, size)
        xs, ms = self._columns(acc, size, xs, ms, ys, qs)
        for e in range(size):  # the columns above the modulus
            index = b.add(self.limbs, i64(e))
            found = self.terms(xs, ys, size + e) + self.terms(ms, qs, size + e)
            self.store(self.total(found, self.load(acc, index)), acc, index)

    def triangle(self, acc: Any, row: Any, size: int) -> None:
        """Add x[j]·x[i] for i in row..row+size and all j above i to ``acc``, which starts at ``row``."""
        b = self.b
        ys = [self.load(self.x, b.add(row, i64(s))) for s in range(size)]
        within: dict[int, list[tuple[Any, Any, Any]]] = {}
        for first in range(size):
            for second in range(first + 1, size):
                for half, column in ((self.low, first + second), (self.high, first + second + 1)):
                    within.setdefault(column, []).append((half, ys[first], ys[second]))
        for column, terms in within.items():
            index = b.add(row, i64(column))
            self.store(self.total(terms, self.load(acc, index)), acc, index)
        before, body, after = b.block, b.append_basic_block("limb"), b.append_basic_block("last")
        start = b.add(row, i64(size))
        b.cbranch(b.icmp_unsigned("<", start, self.limbs), body, after)
        b.position_at_end(body)
        j = b.phi(I64)
        j.add_incoming(start, before)
        held = [b.phi(LANE) for _ in range(size)]
        for phi in held:
            phi.add_incoming(self.zero, before)
        window = [*held, self.load(self.x, j)]
        self.store(self.total(self.terms(window, ys, size), self.load(acc, j)), acc, j)
        following = b.add(j, i64(1))
        j.add_incoming(following, body)
        for phi, limb in zip(held, window[1:], strict=True):
            phi.add_incoming(limb, body)
        b.cbranch(b.icmp_unsigned("<", following, self.limbs), body, after)
        b.position_at_end(after)
        last = []
        for limb in window[1:]:
            phi = b.phi(LANE)
            phi.add_incoming(self.zero, before)
            phi.add_incoming(limb, body)
            last.append(phi)
        for e in range(size):  # what reaches beyond the last limb
            index = b.add(self.limbs, i64(e))
            self.store(self.total(self.terms(last, ys, size + e), self.load(acc, index)), acc, index)

    def _columns(
        self, acc: Any, size: int, xs: list[Any], ms: list[Any], ys: list[Any], qs: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Loop over the columns size..limbs-1; return the last ``size`` limbs of x and of the modulus."""
        b = self.b
        before, body, after = b.block, b.append_basic_block("column"), b.append_basic_block("above")
        b.branch(body)
        b.position_at_end(body)
        j = b.phi(I64)
        j.add_incoming(i64(size), before)
        held: list[list[Any]] = []
        for start in (xs, ms):
            phis = [b.phi(LANE) for _ in start]
            for phi, value in zip(phis, start, strict=True):
                phi.add_incoming(value, before)
            held.append(phis)
        x = [*held[0], self.load(self.x, j)] if xs else []
        m = [*held[1], self.modulus(j)]
        self.store(self.total(self.terms(x, ys, size) + self.terms(m, qs, size), self.load(acc, j)), acc, j)
        following = b.add(j, i64(1))
        j.add_incoming(following, body)
        for phis, limbs in zip(held, (x, m), strict=True):
            for phi, value in zip(phis, limbs[1:], strict=False):
                phi.add_incoming(value, body)
        b.cbranch(b.icmp_unsigned("<", following, self.limbs), body, after)
        b.position_at_end(after)
        return x[1:], m[1:]


def i64(number: Any) -> Any:
    """Return an integer of 64 bits; what is one already stays as it is."""
    return ir.Constant(I64, number) if isinstance(number, int) else number


_NOTHING_AHEAD = ir.Constant(NUMBER, None), i64(0)


def loop(builder: ir.IRBuilder, start: Any, stop: Any, step: int) -> Any:
    """Loop over range(start, stop, step)."""
    return cgutils.for_range_slice(builder, start, stop, i64(step), intp=I64)


def _settle(w: _Writer, acc: Any, out: Any) -> None:
    """Carry through all limbs of ``acc`` into ``out``; what leaves the highest is zero by the caller's bounds."""
    b, mask, shift = w.b, w.splat(i64(2**LIMB_BITS - 1)), w.splat(i64(LIMB_BITS))
    carry = _alloca(b, w.zero)
    with loop(b, i64(0), w.limbs, 1) as (j, _):
        value = b.add(w.load(acc, j), b.load(carry))
        w.store(b.and_(value, mask), out, j)
        b.store(b.lshr(value, shift), carry)


def _fetch(builder: ir.IRBuilder, ahead: Any, places: Any, row: Any) -> None:
    """Ask for one line of each of the places; that before row 0 for the first, before row 4 for the second."""
    with loop(builder, i64(0), places, 1) as (i, _):
        at = builder.gep(ahead, [builder.add(i, i)])
        address, lines = builder.load(at), builder.load(builder.gep(at, [i64(1)]))
        line = builder.lshr(row, i64(2))
        with builder.if_then(builder.icmp_signed("<", line, lines)):
            prefetch(builder, builder.add(address, builder.mul(line, i64(LINE))))


def _function(module: ir.Module, multiplying: bool) -> ir.Function:
    """Return ``f(acc, x, y, m, inverse, limbs, rows, out, ahead, places)``, defined in this module."""
    name = f"labelward_ifma_{'multiply' if multiplying else 'reduce'}"
    kind = ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS, NUMBERS, NUMBER, I64, I64, I64, NUMBERS, NUMBER, I64])
    function = insert(module, kind, name)
    if function.basic_blocks:
        return function
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    acc, x, y, m, inverse, limbs, rows, out, ahead, places = function.args
    acc.add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    w = _Writer(builder, m, inverse, limbs, *((x, y) if multiplying else (None, None)))
    if multiplying:
        with loop(builder, i64(0), builder.add(limbs, rows), 1) as (j, _):
            w.store(w.zero, acc, j)
    by_four = builder.and_(rows, i64(-4))
    for start, stop, size in ((i64(0), by_four, 4), (by_four, rows, 2)):
        with loop(builder, start, stop, size) as (row, _):
            _fetch(builder, ahead, places, row)
            w.block(builder.gep(acc, [row]), row, size)
    _settle(w, builder.gep(acc, [rows]), out)
    builder.ret_void()
    return function


def _square(module: ir.Module) -> ir.Function:
    """Return ``f(acc, x, limbs)``, defined in this module: x² in 2·limbs columns, which are not settled."""
    kind = ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS, I64])
    function = insert(module, kind, "labelward_ifma_square")
    if function.basic_blocks:
        return function
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    acc, x, limbs = function.args
    acc.add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    w = _Writer(builder, acc, i64(0), limbs, x, x)
    with loop(builder, i64(0), builder.add(limbs, limbs), 1) as (j, _):
        w.store(w.zero, acc, j)
    by_four = builder.and_(limbs, i64(-4))
    for start, stop, size in ((i64(0), by_four, 4), (by_four, limbs, 2)):
        with loop(builder, start, stop, size) as (row, _):
            w.triangle(builder.gep(acc, [row]), row, size)
    with loop(builder, i64(0), limbs, 1) as (j, _):
        limb, even = w.load(x, j), builder.add(j, j)
        for half, place in ((w.low, even), (w.high, builder.add(even, i64(1)))):
            column = w.load(acc, place)
            w.store(builder.call(half, [builder.add(column, column), limb, limb]), acc, place)
    builder.ret_void()
    return function


def _call(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, multiplying: bool) -> Any:
    """Call the function with the arrays' data and shapes."""
    arrays = [context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else value
              for kind, value in zip(signature.args, arguments, strict=True)]  # fmt: skip
    function = _function(builder.module, multiplying)

    def lanes(array: Any) -> Any:
        return builder.bitcast(array.data, NUMBERS)

    ahead, places = _NOTHING_AHEAD
    if multiplying:
        acc, x, y, m, inverse, out, *coming = arrays
        rows = builder.extract_value(y.shape, 0)
        if coming:
            ahead, places = coming[0].data, builder.extract_value(coming[0].shape, 0)
    else:
        acc, m, inverse, rows = arrays
        x = y = acc
    limbs = builder.extract_value(m.shape, 0)
    target = lanes(out) if multiplying else builder.gep(lanes(acc), [rows])
    builder.call(function, [lanes(acc), lanes(x), lanes(y), m.data, inverse, limbs, rows, target, ahead, places])
    return context.get_dummy_value()


@intrinsic_of
def multiply(typing_context: Any, acc: Any, x: Any, y: Any, m: Any, inverse: Any, out: Any) -> Any:
    """Write x·y·2^(-52·t) modulo m to ``out`` (which may be x or y), less than x·y·2^(-52·t) + m.

    Shapes: x and out [k, 8], y [t, 8], m [k] (one modulus for all lanes), acc [k+t, 8] for scratch; t is even and
    k ≥ 8. ``inverse`` is -1/m modulo 2^52. Limbs of x and y are below 2^52. Arrays of lanes
    had better lie on 64 bytes.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _call(context, builder, signature, arguments, multiplying=True)

    return types.void(acc, x, y, m, inverse, out), generate


@intrinsic_of
def multiply_ahead(typing_context: Any, acc: Any, x: Any, y: Any, m: Any, inverse: Any, out: Any, ahead: Any) -> Any:
    """Do what :func:`multiply` does, and bring near meanwhile what comes next.

    ``ahead`` int64 [p, 2] are addresses, and how many lines of 64 bytes are to be fetched from there: one for each four
    limbs of y, evenly over the product. Asked for all at once they would have to wait for each other, and the product
    for them.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _call(context, builder, signature, arguments, multiplying=True)

    return types.void(acc, x, y, m, inverse, out, ahead), generate


@intrinsic_of
def reduce(typing_context: Any, acc: Any, m: Any, inverse: Any, rows: Any) -> Any:
    """Replace ``acc`` [k+t, 8] = C by q in its t lowest limbs and (C + q·m) / 2^(52·t) in the others; t = ``rows``."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _call(context, builder, signature, arguments, multiplying=False)

    return types.void(acc, m, inverse, types.int64), generate


@intrinsic_of
def square(typing_context: Any, acc: Any, x: Any, m: Any, inverse: Any, out: Any) -> Any:
    """Write x²·2^(-52·t) modulo m to ``out`` [k, 8] (which may be part of x), as :func:`multiply` would with y = x.

    Shapes: x [t, 8], its limbs from k on zero; m [k]; acc [2·t, 8] for scratch; t is k, or k+1 if that is even.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        acc, x, m, inverse, out = (
            context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        scratch, number, target = (builder.bitcast(array.data, NUMBERS) for array in (acc, x, out))
        rows, limbs = builder.extract_value(x.shape, 0), builder.extract_value(m.shape, 0)
        builder.call(_square(builder.module), [scratch, number, rows])
        reduction = _function(builder.module, multiplying=False)
        builder.call(reduction, [scratch, scratch, scratch, m.data, inverse, limbs, rows, target, *_NOTHING_AHEAD])
        return context.get_dummy_value()

    return types.void(acc, x, m, inverse, out), generate


def _transpose(builder: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    """Exchange lanes and rows: blocks of one, two and four lanes cross the diagonal."""
    rows = list(rows)
    for d in (1, 2, 4):
        low = [i ^ d | LANES if i & d else i for i in range(LANES)]
        high = [i | LANES if i & d else i | d for i in range(LANES)]
        orders = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), order) for order in (low, high)]
        for i in range(LANES):
            if not i & d:
                pair = rows[i], rows[i | d]
                rows[i], rows[i | d] = (builder.shuffle_vector(*pair, order) for order in orders)
    return rows


def _move(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, gathering: bool) -> Any:
    """Move limbs between lanes and the eight numbers that start at words ``starts`` of an array."""
    lanes, starts, flat = (
        context.make_array(kind)(context, builder, value) for kind, value in zip(signature.args, arguments, strict=True)
    )
    limbs, numbers = builder.extract_value(lanes.shape, 0), builder.bitcast(lanes.data, NUMBERS)
    places = [builder.gep(flat.data, [builder.load(builder.gep(starts.data, [i64(i)]))]) for i in range(LANES)]
    last = builder.sub(limbs, i64(LANES))
    with loop(builder, i64(0), limbs, LANES) as (step, _):
        # the last block overlaps the one before where the limbs are no multiple of eight
        j = builder.select(builder.icmp_signed("<", step, last), step, last)
        rows = [builder.bitcast(builder.gep(place, [j]), NUMBERS) for place in places]
        columns = [builder.gep(numbers, [builder.add(j, i64(i))]) for i in range(LANES)]
        origin, target = (rows, columns) if gathering else (columns, rows)
        values = _transpose(builder, [builder.load(pointer, align=8) for pointer in origin])
        for value, pointer in zip(values, target, strict=True):
            builder.store(value, pointer, align=8)
    return context.get_dummy_value()


@intrinsic_of
def gather(typing_context: Any, lanes: Any, starts: Any, flat: Any) -> Any:
    """Fill ``lanes`` [limbs, 8] with the numbers that start at words ``starts`` (int64 [8]) of ``flat``."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _move(context, builder, signature, arguments, gathering=True)

    return types.void(lanes, starts, flat), generate


@intrinsic_of
def scatter(typing_context: Any, lanes: Any, starts: Any, flat: Any) -> Any:
    """Write ``lanes`` to where :func:`gather` would read them."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _move(context, builder, signature, arguments, gathering=False)

    return types.void(lanes, starts, flat), generate


@intrinsic_of
def prefetch_words(typing_context: Any, flat: Any, start: Any, words: Any) -> Any:
    """Prefetch ``words`` words of ``flat`` from ``start`` on."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        with loop(builder, i64(0), arguments[2], LANES) as (j, _):
            place = builder.gep(array.data, [builder.add(arguments[1], j)])
            prefetch(builder, builder.ptrtoint(place, I64))
        return context.get_dummy_value()

    return types.void(flat, types.int64, types.int64), generate


def _word(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
    """Return where the eight bytes lie that start at an index of a byte array."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), NUMBER)


@intrinsic_of
def read_word(typing_context: Any, data: Any, index: Any) -> Any:
    """Return the big-endian number in eight bytes of ``data`` from ``index`` on."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.bswap(builder.load(_word(context, builder, signature, arguments), align=1))

    return types.uint64(data, types.int64), generate


@intrinsic_of
def write_word(typing_context: Any, data: Any, index: Any, value: Any) -> Any:
    """Write ``value`` big-endian to eight bytes of ``data`` from ``index`` on."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        builder.store(builder.bswap(arguments[2]), _word(context, builder, signature, arguments), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate
