"""Numba's rules of arithmetic, changed to those of NumPy 2 and of kernels.

Runs in the compiler's process only.

- Numbers in Python are weak: f32 and a size or an integer give f32, and so do f32 and a floating
  literal in kernels that have no f64. Numba alone gives f64.
- `callbox.math` is compiled from its source, or is an instruction.
"""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.core.extending import intrinsic, overload, register_jitable
from numba.core.typing.context import BaseContext

from callbox import math as kernel_math

_WEAK = {
    getattr(operator, name)
    for name in "add sub mul truediv floordiv mod eq ne lt le gt ge".split()
    + [f"i{name}" for name in "add sub mul truediv floordiv mod".split()]
} | {builtins.min, builtins.max}

_LLVM_NAMES = {
    "ceil": "llvm.ceil",
    "copysign": "llvm.copysign",
    "floor": "llvm.floor",
    "rint": "llvm.nearbyint",
    "sqrt": "llvm.sqrt",
    "trunc": "llvm.trunc",
}


class Numbers:
    """Whether floating literals are weak in the kernel that is being compiled."""

    floats_are_weak = False


def _is_weak(kind: Any) -> bool:
    if isinstance(kind, types.IntegerLiteral):
        return True
    return isinstance(kind, types.Integer) or (Numbers.floats_are_weak and kind == types.float64)


def _weakened(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if types.float32 in args and all(a == types.float32 or _is_weak(a) for a in args):
        return tuple(types.float32 for _ in args)
    return args


def install() -> None:
    """Changes Numba in this process."""
    resolve: Any = BaseContext.resolve_function_type

    def resolve_function_type(self: Any, func: Any, args: Any, kws: Any) -> Any:
        # Numba asks for an operator's type by Python's function or by its own type of that.
        operation = getattr(func, "typing_key", func)
        is_weak = not kws and len(args) > 1 and _is_hashable(operation) and operation in _WEAK
        return resolve(self, func, _weakened(tuple(args)) if is_weak else args, kws)

    context: Any = BaseContext
    context.resolve_function_type = resolve_function_type
    for name in kernel_math.__all__:
        function = getattr(kernel_math, name)
        if name in _LLVM_NAMES:
            _overload_instruction(name, function)
        else:
            _overload_source(name, function)
    _overload_bits(kernel_math._bits, types.int32)
    _overload_bits(kernel_math._float, types.float32)
    _overload_bits(kernel_math._bits_of_f64, types.int64)
    for name in ("_power_of_two", "_reduced", "_wave"):
        register_jitable(getattr(kernel_math, name))


def _overload_bits(function: Any, result: Any) -> None:
    def cast(context: Any, x: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.bitcast(values[0], context.get_value_type(result))

        return result(x), build

    call: Any = intrinsic(cast)

    @overload(function, strict=False)
    def typed(x: Any) -> Any:
        return lambda x: call(x)


def _is_hashable(func: Any) -> bool:
    try:
        hash(func)
    except TypeError:
        return False
    return True


def _float_of(name: str, kind: Any, *, has_f64: bool) -> Any:
    """The type in which a function computes."""
    if kind == types.float32 or isinstance(kind, types.Integer):
        return types.float32
    if kind == types.float64 and Numbers.floats_are_weak:
        return types.float32
    if kind == types.float64 and has_f64:
        return types.float64
    raise TypingError(f"callbox.math.{name} takes f32{' or f64' if has_f64 else ''}, found {kind}")


def _overload_source(name: str, function: Any) -> None:
    compiled = register_jitable(_copy(function))

    @overload(function, strict=False)
    def typed(x: Any) -> Any:
        _float_of(name, x, has_f64=False)
        return lambda x: compiled(np.float32(x))


def _copy(function: Any) -> Any:
    """The function without its registration, so that its overload can call it."""
    import types as python_types

    return python_types.FunctionType(function.__code__, function.__globals__, function.__name__)


def _overload_instruction(name: str, function: Any) -> None:
    if name == "copysign":

        @overload(function, strict=False)
        def typed_two(x: Any, y: Any) -> Any:
            kind = _float_of(name, x, has_f64=True)
            if _float_of(name, y, has_f64=True) != kind:
                raise TypingError(f"callbox.math.{name} takes two numbers of one type, found {x} and {y}")
            called = _two(kind)
            return lambda x, y: called(x, y)
    else:

        @overload(function, strict=False)
        def typed(x: Any) -> Any:
            kind = _float_of(name, x, has_f64=True)
            called, convert = _one(name, kind), np.float32 if kind == types.float32 else np.float64
            return lambda x: called(convert(x))


def _llvm_call(name: str, kind: Any, count: int) -> Any:
    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        llvm_type = context.get_value_type(kind)
        called = builder.module.declare_intrinsic(
            _LLVM_NAMES[name], [llvm_type], ir.FunctionType(llvm_type, [llvm_type] * count)
        )
        return builder.call(called, values)

    return kind(*[kind] * count), build


def _one(name: str, kind: Any) -> Any:
    @intrinsic
    def instruction(context: Any, x: Any) -> Any:
        return _llvm_call(name, kind, 1)

    return instruction


def _two(kind: Any) -> Any:
    @intrinsic
    def instruction(context: Any, x: Any, y: Any) -> Any:
        return _llvm_call("copysign", kind, 2)

    return instruction
