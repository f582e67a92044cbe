"""What compiled code shares of LLVM's language, so that any of its users can be deleted without the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic

intrinsic_of = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", intrinsic)

insert: Callable[..., Any] = cgutils.get_or_insert_function


def prefetch(builder: ir.IRBuilder, address: Any) -> None:
    """Prefetch the line at an address; an address that is none does no harm."""
    byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
    hints = [ir.Constant(i32, value) for value in (0, 3, 1)]  # to read, keep it near, data
    builder.call(insert(builder.module, kind, "llvm.prefetch.p0"), [builder.inttoptr(address, byte), *hints])
