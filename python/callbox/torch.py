"""Targets as custom operators of PyTorch, on the CPU.

`op` makes a function on tensors of a target: an operator of `torch.library`, with which autograd, `torch.compile`, `torch.export` and
`torch.func.vmap` work. Tensors are used in place: one copy is made into the guest, and one out.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ._callbox import StaticInfo, Target

__all__ = ["op"]

#: How all operators are called: the number of operands and results is the target's affair. The attributes are a literal of Python's. If `like`
#: is not negative, the results are like the first operands, as many as it says, without those of integers: so are cotangents.
_SCHEMA = "(Tensor[] operands, str attributes, int like) -> Tensor[]"

#: What PyTorch and NumPy, or ml_dtypes, call the same.
_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

#: What has the bits of the dtypes that ml_dtypes has, and NumPy does not.
_BITS = {
    dtype: torch.uint16 if name == "bfloat16" else torch.uint8
    for name, dtype in _DTYPES.items()
    if name.startswith(("bfloat", "float8"))
}

#: A result: its dtype and shape.
_Result = tuple[torch.dtype, tuple[int, ...]]

_taken: set[str] = set()
_taken_lock = threading.Lock()


def op(
    target: Target,
    *,
    vjp: Target | Callable[..., Any] | None = None,
    result_shape_dtypes: Any = None,
    name: str | None = None,
    deadline: float | None = None,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
) -> Callable[..., Any]:
    """A function of a target: ``function(*tensors, **attributes)``, an operator ``torch.ops.callbox.NAME``.

    Make it once, where a module is imported: operators stay for as long as the process lives.

    Args:
        target: A module's target, such as ``module.rms_norm``.
        vjp: The gradients. A target is called with the operands and then the cotangents of the results, with the same attributes, and its
            results are the cotangents of the operands; it is the one that `callbox.jax.op` takes. A function is
            ``vjp(operands, results, cotangents, **attributes)``, with a tuple of operands, and results and cotangents as the function
            returns its results; it returns a cotangent for each operand, or the one if there is one. It can be differentiated in turn
            if it is made of PyTorch's own operations. Integers have no cotangents: a target neither gets nor gives them, and for a
            function they are None.
        result_shape_dtypes: The shape and dtype of the result, or a sequence of them: anything with ``shape`` and ``dtype`` (such as
            ``torch.empty(2, 3, device="meta")``), or a pair of shape and dtype; or a function ``(*operands, **attributes)`` that returns that.
            Left out: as the target's metadata infer them from the operands.
        name: The operator's name, after ``callbox::``. Left out: the target's, and a digest of its module and the options, so that it is
            the same in each process that makes the same operators in the same order.
        deadline: How long a call may take, in seconds. Left out: as the policy says.
        opaque: The opaque bytes, for a target of XLA's older conventions.
        static_info: The static information, for a target of the JAX FFI proposal's convention.
        api_version: The convention, for a target that has several.

    Returns:
        The function. Its tensors are on the CPU, of the dtypes and ranks that the target declares; those that are not contiguous are copied. It
        returns one tensor, or a tuple of tensors. Attributes are Python's numbers, strings, lists and dictionaries, or NumPy's scalars and
        arrays; under `torch.compile` they are constants, each new value compiled anew, and not NumPy's. Under `torch.func.vmap` the target
        is called once for each element of the batch. `torch.func.grad` takes no operators with gradients of their own, PyTorch says so.

    Raises:
        TypeError: `target` is no target; `vjp` neither a target nor a function.
        ValueError: `name` is no identifier, or another operator's.

    The function raises what a direct call of the target does, and `NotImplementedError` for a tensor that is not on the CPU.

    >>> import torch
    >>> import callbox.torch
    >>> kernels = callbox.Host().load(guests / "activation.wasm")
    >>> squareplus = callbox.torch.op(kernels.squareplus, vjp=kernels.squareplus_grad)
    >>> x = torch.tensor([-3.0, 0.0, 3.0], requires_grad=True)
    >>> y = squareplus(x, beta=16.0)
    >>> y.detach()
    tensor([1., 2., 4.])
    >>> y.sum().backward()
    >>> x.grad
    tensor([0.2000, 0.5000, 0.8000])
    """
    if not isinstance(target, Target):
        raise TypeError(
            f"expected target to be a target of a module, such as module.add_n, found {type(target).__name__}"
        )
    if vjp is not None and not callable(vjp):
        raise TypeError(
            f"target {target.name!r}: expected vjp to be a target or a function, found {type(vjp).__name__}"
        )
    options = {"deadline": deadline, "opaque": opaque, "static_info": static_info, "api_version": api_version}
    given = {option: value for option, value in options.items() if value is not None}
    return _Operator(target, given, result_shape_dtypes, vjp, name).function()


class _Operator:
    """A target's operator, as the functions that `torch.library` asks for."""

    def __init__(
        self,
        target: Target,
        options: Mapping[str, Any],
        result_shape_dtypes: Any,
        vjp: Target | Callable[..., Any] | None,
        name: str | None,
    ) -> None:
        self._target = target
        self._options = options
        self._result_shape_dtypes = result_shape_dtypes
        self._vjp = vjp
        qualified = _qualified(target, options, name)
        definition = torch.library.custom_op(qualified, self._call, mutates_args=(), schema=_SCHEMA)
        definition.register_fake(self._infer)
        definition.register_autograd(self._backward, setup_context=self._keep)
        definition.register_vmap(self._map)
        self._overload = getattr(torch.ops.callbox, qualified.removeprefix("callbox::")).default
        self._vjp_overload = None
        if isinstance(vjp, Target):
            self._vjp_overload = _Operator(vjp, options, None, None, f"{name}_vjp" if name else None)._overload

    def function(self) -> Callable[..., Any]:
        """The operator as a function of tensors and attributes. `torch.compile` looks into it."""
        overload = self._overload

        def function(*tensors: torch.Tensor, **attributes: Any) -> Any:
            return _packed(overload(tensors, _literal(attributes), -1))

        function.__name__ = self._target.__name__
        function.__qualname__ = self._target.__qualname__
        function.__doc__ = self._target.__doc__
        function.__signature__ = _signature(self._target)  # type: ignore[attr-defined]
        function.operator = overload  # type: ignore[attr-defined]
        return function

    def _call(self, operands: Sequence[torch.Tensor], attributes: str, like: int) -> list[torch.Tensor]:
        self._check_device(operands)
        results = [torch.empty(shape, dtype=dtype) for dtype, shape in self._results(operands, attributes, like)]
        arrays = [_array(operand.contiguous()) for operand in operands]
        # A copy: what is known by its text stays as it is.
        named = dict(_attributes(attributes))
        self._target(*arrays, out=tuple(map(_array, results)), attributes=named, **self._options)
        return results

    def _infer(self, operands: Sequence[torch.Tensor], attributes: str, like: int) -> list[torch.Tensor]:
        self._check_device(operands)
        device = operands[0].device if operands else torch.device("cpu")
        return [
            torch.empty(shape, dtype=dtype, device=device) for dtype, shape in self._results(operands, attributes, like)
        ]

    def _check_device(self, operands: Sequence[torch.Tensor]) -> None:
        for i, operand in enumerate(operands):
            if operand.device.type not in ("cpu", "meta"):
                raise NotImplementedError(
                    f"target {self._target.name!r}: expected tensors on the CPU, found operand {i} on {operand.device}: "
                    "callbox.torch calls no native kernels (callbox.jax does)"
                )

    def _results(self, operands: Sequence[torch.Tensor], attributes: str, like: int) -> list[_Result]:
        if like >= 0:
            return [(x.dtype, tuple(x.shape)) for x in operands[:like] if _is_inexact(x.dtype)]
        given = self._result_shape_dtypes
        if given is None:
            if any(isinstance(size, torch.SymInt) for operand in operands for size in operand.shape):
                symbolic = _symbolic(self._target, operands)
                if symbolic is not None:
                    return symbolic
            shapes = [(self._dtype_name(operand.dtype), _sizes(operand.shape)) for operand in operands]
            return [(self._dtype(name), tuple(shape)) for name, shape in self._target.infer(shapes)]
        if callable(given) and not hasattr(given, "shape"):
            given = given(*operands, **_attributes(attributes))
        if hasattr(given, "shape") or (isinstance(given, tuple) and len(given) == 2 and _is_dtype(given[1])):
            given = (given,)
        return [self._result(result, i) for i, result in enumerate(given)]

    def _result(self, given: Any, position: int) -> _Result:
        if isinstance(given, tuple) and len(given) == 2:
            shape, dtype = given
        elif hasattr(given, "shape") and hasattr(given, "dtype"):
            shape, dtype = given.shape, given.dtype
        else:
            raise ValueError(
                f"target {self._target.name!r}: expected all elements of result_shape_dtypes to have a shape and a dtype, "
                f"found {given!r} at position {position}"
            )
        if not isinstance(dtype, torch.dtype):
            # NumPy knows ml_dtypes' names only where that was imported.
            dtype = self._dtype(dtype if dtype in _DTYPES else np.dtype(dtype).name)
        return dtype, _sizes(shape)

    def _dtype(self, name: str) -> torch.dtype:
        if name not in _DTYPES:
            raise TypeError(f"target {self._target.name!r}: expected results of dtypes that PyTorch has, found {name}")
        return _DTYPES[name]

    def _dtype_name(self, dtype: torch.dtype) -> str:
        if dtype not in _NAMES:
            raise TypeError(
                f"target {self._target.name!r}: expected operands of dtypes that NumPy or ml_dtypes has, found {dtype}"
            )
        return _NAMES[dtype]

    def _keep(self, ctx: Any, inputs: Any, output: Sequence[torch.Tensor]) -> None:
        operands, ctx.attributes, _ = inputs
        ctx.count = len(operands)
        # A target needs no results.
        kept = () if self._vjp_overload is not None else output
        ctx.dtypes = [result.dtype for result in output]
        ctx.save_for_backward(*operands, *kept)

    def _backward(
        self, ctx: Any, cotangents: Sequence[torch.Tensor | None]
    ) -> tuple[list[torch.Tensor | None], None, None]:
        operands, results = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        known = tuple(ct if _is_inexact(dtype) else None for ct, dtype in zip(cotangents, ctx.dtypes, strict=True))
        if self._vjp is None:
            raise RuntimeError(
                f"target {self._target.name!r} cannot be differentiated: nothing says what its gradients are. Pass vjp= to callbox.torch.op"
            )
        if self._vjp_overload is not None:
            given: Sequence[Any] = self._call_vjp(operands, known, ctx.attributes)
        else:
            given = self._vjp(operands, _packed(results), _packed(known), **_attributes(ctx.attributes))
            given = given if isinstance(given, (tuple, list)) else (given,)
        if len(given) != len(operands):
            raise ValueError(
                f"target {self._target.name!r}: expected vjp to return one tensor for each of the {len(operands)} operands, found {len(given)}"
            )
        return [ct if _is_inexact(x.dtype) else None for ct, x in zip(given, operands, strict=True)], None, None

    def _call_vjp(
        self, operands: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None], attributes: str
    ) -> list[torch.Tensor | None]:
        """Calls the target that is the vjp. Its cotangents are those of JAX, PyTorch's are their conjugates; for real numbers it is the same."""
        given = (ct.conj() for ct in cotangents if ct is not None)
        found = iter(self._vjp_overload((*operands, *given), attributes, len(operands)))  # type: ignore[misc]
        return [next(found).conj() if _is_inexact(x.dtype) else None for x in operands]

    def _map(
        self, info: Any, in_dims: Any, operands: Sequence[torch.Tensor], attributes: str, like: int
    ) -> tuple[list[torch.Tensor], list[int]]:
        dims = in_dims[0]

        def element(number: int) -> list[torch.Tensor]:
            return [x if dim is None else x.select(dim, number) for x, dim in zip(operands, dims, strict=True)]

        if info.batch_size == 0:
            shapes = [
                x if dim is None else x.new_empty(_without(x.shape, dim)) for x, dim in zip(operands, dims, strict=True)
            ]
            of_one = self._results(shapes, attributes, like)
            return [torch.empty((0, *shape), dtype=dtype) for dtype, shape in of_one], [0] * len(of_one)
        calls = [self._overload(element(number), attributes, like) for number in range(info.batch_size)]
        results = [torch.stack(each) for each in zip(*calls, strict=True)]
        return results, [0] * len(results)


def _qualified(target: Target, options: Mapping[str, Any], name: str | None) -> str:
    """The operator's name, which no other has."""
    with _taken_lock:
        if name is not None:
            if not (name.isascii() and name.isidentifier()):
                raise ValueError(
                    f"expected name to be an identifier of ASCII letters, digits and underscores, found {name!r}"
                )
            if name in _taken:
                raise ValueError(f"expected a name that no other operator has, found {name!r}")
            free = name
        else:
            digest = hashlib.sha256(repr((target.module.key, target.name, sorted(options.items()))).encode())
            plain = f"{re.sub(r'[^0-9A-Za-z_]', '_', target.name)}_{digest.hexdigest()[:12]}"
            numbered = (plain if number == 1 else f"{plain}_{number}" for number in range(1, len(_taken) + 2))
            free = next(candidate for candidate in numbered if candidate not in _taken)
        _taken.add(free)
    return f"callbox::{free}"


def _symbolic(target: Target, operands: Sequence[torch.Tensor]) -> list[_Result] | None:
    """The results by the metadata, of operands whose sizes are variables of `torch.compile`. None if they have to be numbers for that.

    What is wrong with the operands is said when the call is made.
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
    dtypes = {buffer.dtypes: operand.dtype for buffer, operand in reversed(list(zip(declared, operands, strict=True)))}
    known: list[_Result] = []
    for buffer in results:
        dtype = _DTYPES.get(buffer.dtypes[0]) if len(buffer.dtypes) == 1 else dtypes.get(buffer.dtypes)
        symbols = [d for d in buffer.dimensions or () if isinstance(d, str)]
        if dtype is None or buffer.dimensions is None or buffer.optional or not sizes.keys() >= set(symbols):
            return None
        shape = [size for d in buffer.dimensions for size in (sizes[d] if isinstance(d, str) else [d])]
        known.append((dtype, tuple(shape)))
    return known


def _signature(target: Target) -> inspect.Signature:
    """The target's signature without what only a direct call takes."""
    names = {attribute.name for attribute in target.attributes or ()}
    parameters = target.__signature__.parameters.values()
    return inspect.Signature([p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY or p.name in names])


def _packed(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory as an array of NumPy's."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    bits = _BITS.get(tensor.dtype)
    if bits is None:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(bits).numpy().view(getattr(ml_dtypes, _NAMES[tensor.dtype]))


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _is_dtype(value: Any) -> bool:
    return isinstance(value, (torch.dtype, np.dtype, str, type))


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape's numbers. One that `torch.compile` took for a variable becomes a constant."""
    return tuple(map(operator.index, shape))


def _without(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _literal(value: Any) -> str:
    """The value of an attribute as a literal of Python's, which `_attributes` reads: an operator takes no others.

    In it a tuple is what Python has no literal for: its kind, and what it is made of. `torch.compile` traces this function, for which it is as
    plain as it is: formatting a number makes it a constant of the program.
    """
    if isinstance(value, dict):
        return "{" + ", ".join([f"{name!r}: {_literal(inner)}" for name, inner in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([_literal(inner) for inner in value]) + "]"
    if isinstance(value, (np.ndarray, np.generic)):
        return f"('array', {value.dtype.name!r}, {value.shape!r}, {value.tobytes()!r})"
    if isinstance(value, float):
        return f"('float', '{value!r}')"
    if isinstance(value, complex):
        return f"('complex', '{value!r}')"
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return f"{value!r}"
    raise TypeError(
        f"expected a number, a string, a list, a dictionary or an array of NumPy's as an attribute, found {type(value).__name__}"
    )


@functools.lru_cache(maxsize=256)
def _attributes(literal: str) -> dict[str, Any]:
    """The attributes that `_literal` wrote. They are not to be changed."""
    read: dict[str, Any] = _value(ast.literal_eval(literal))
    return read


def _value(read: Any) -> Any:
    match read:
        case ("array", dtype, shape, data):
            array = np.frombuffer(data, _numpy_dtype(dtype)).reshape(shape)
            return array if shape else array[()]
        case ("float", text):
            return float(text)
        case ("complex", text):
            return complex(text)
        case dict():
            return {name: _value(inner) for name, inner in read.items()}
        case list():
            return [_value(inner) for inner in read]
    return read


def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
