"""Moving numbers between memory and lanes, beside ``montgomery_ir``'s products.

:func:`gather` and :func:`scatter` move numbers that lie one after the other into lanes and back, by transposing eight
limbs of eight numbers in registers.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from labelward.he.paillier.backends.ifma.montgomery_ir import I64, LANES, NUMBER, NUMBERS, i64, loop
from labelward.he.paillier.backends.llvm import intrinsic_of, prefetch


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
