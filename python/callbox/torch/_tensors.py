"""The dtypes, shapes and memory of tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from callbox._callbox import Target
from callbox._dimensions import evaluate, is_computed

#: The dtypes that have the same name in PyTorch and in NumPy or ml_dtypes.
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: The integers with the same bits, for the dtypes of ml_dtypes that NumPy does not have.
BITS = {
    dtype: torch.uint16 if name == "bfloat16" else torch.uint8
    for name, dtype in DTYPES.items()
    if name.startswith(("bfloat", "float8"))
}

#: The dtype and shape of a result.
Result = tuple[torch.dtype, tuple[int, ...]]


def symbolic_results(target: Target, operands: Sequence[torch.Tensor]) -> list[Result] | None:
    """Infers the results of operands whose sizes are variables of `torch.compile`.

    Returns None if that needs numbers. Errors are reported when the call is made.
    """
    declared, results = target.operands, target.results
    if declared is None or results is None or len(declared) != len(operands):
        return None
    sizes: dict[str, list[Any]] = {}
    for buffer, operand in zip(declared, operands, strict=True):
        dimensions, shape = list(buffer.dimensions or ()), list(operand.shape)
        if dimensions[:1] == [".."]:
            any_number = len(shape) - len(dimensions) + 1
            sizes.setdefault("..", shape[: max(any_number, 0)])
            dimensions, shape = dimensions[1:], shape[max(any_number, 0) :]
        if buffer.dimensions is None or len(dimensions) != len(shape):
            return None
        for dimension, size in zip(dimensions, shape, strict=True):
            sizes.setdefault(str(dimension), [size])
    # `..` stands for any number of sizes, and none.
    symbols = {name: size[0] for name, size in sizes.items() if name.isidentifier()}
    dtypes = {buffer.dtypes: operand.dtype for buffer, operand in reversed(list(zip(declared, operands, strict=True)))}
    known: list[Result] = []
    for buffer in results:
        dtype = DTYPES.get(buffer.dtypes[0]) if len(buffer.dtypes) == 1 else dtypes.get(buffer.dtypes)
        if dtype is None or buffer.dimensions is None or buffer.optional:
            return None
        try:
            shape = [size for d in buffer.dimensions for size in _sizes_of(d, sizes, symbols)]
        except LookupError:
            return None
        known.append((dtype, tuple(shape)))
    return known


def _sizes_of(declared: int | str, sizes: dict[str, list[Any]], symbols: dict[str, Any]) -> list[Any]:
    """The sizes of a declared dimension of a result."""
    if isinstance(declared, int):
        return [declared]
    if declared not in sizes and is_computed(declared):
        return [evaluate(declared, symbols)]
    return sizes[declared]


def packed(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def memory(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory as a NumPy array.

    A tensor that is not contiguous is copied, which PyTorch does on several threads. An expanded
    tensor may be of any size: the host copies it, after it has checked the size.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.nbytes <= tensor.untyped_storage().nbytes():
        tensor = tensor.contiguous()
    bits = BITS.get(tensor.dtype)
    if bits is None:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(bits).numpy().view(getattr(ml_dtypes, NAMES[tensor.dtype]))


def is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def is_dtype(value: Any) -> bool:
    return isinstance(value, (torch.dtype, np.dtype, str, type))


def sizes(shape: Any) -> tuple[int, ...]:
    """The sizes of a shape. One that is a variable of `torch.compile` becomes a constant."""
    return tuple(map(operator.index, shape))


def without(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])
