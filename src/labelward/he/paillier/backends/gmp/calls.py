"""Calls from numba's loops to C functions whose addresses are known only at run time.

An address is an argument like any other, so compiled code that is cached on disk holds none and is good for each
process, wherever its libraries lie. Words and numbers are given by address too. Who calls keeps the arrays alive: they
are to be parameters of the compiled function, since numba lets go of a local array after its last use by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from labelward.he.llvm import intrinsic_of, prefetch

_WORD = ir.IntType(64)


def _call(count: int, result: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the signature of a call with so many words, and what writes it; ``result`` is LLVM's type."""
    nothing = isinstance(result, ir.VoidType)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(result, [_WORD] * count).as_pointer())
        made = builder.call(function, arguments[1:])
        return context.get_dummy_value() if nothing else made

    return (types.void if nothing else types.int64)(*[types.int64] * (count + 1)), generate


@intrinsic_of
def call_3(typing_context: Any, function: Any, a: Any, b: Any, c: Any) -> Any:
    """Call a function of three words that returns nothing."""
    return _call(3, ir.VoidType())


@intrinsic_of
def call_4(typing_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call a function of four words that returns nothing."""
    return _call(4, ir.VoidType())


@intrinsic_of
def call_5(typing_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Call a function of five words whose result is not wanted."""
    return _call(5, ir.VoidType())


@intrinsic_of
def call_7(typing_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
    """Call a function of seven words that returns nothing."""
    return _call(7, ir.VoidType())


@intrinsic_of
def carry_of(typing_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call a function of four words that returns one."""
    return _call(4, _WORD)


@intrinsic_of
def at(typing_context: Any, array: Any) -> Any:
    """Return where the first word of a contiguous array lies."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, _WORD)

    return types.int64(array), generate


@intrinsic_of
def load_word(typing_context: Any, address: Any) -> Any:
    """Read the word at an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=8)

    return types.uint64(types.int64), generate


@intrinsic_of
def store_word(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a word to an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic_of
def prefetch_line(typing_context: Any, address: Any) -> Any:
    """Prefetch the line at an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        prefetch(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate
