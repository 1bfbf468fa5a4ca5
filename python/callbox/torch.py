"""Targets as custom operators of PyTorch, on the CPU.

`op` turns a target into a function on tensors. It is an operator of `torch.library` and supports
autograd, `torch.compile`, `torch.export` and `torch.func`, except for forward mode. Each tensor is
copied once, into the guest or out of it.
"""

from __future__ import annotations

import hashlib
import inspect
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from ._callbox import StaticInfo, Target
from ._literals import attributes as attributes_of
from ._literals import literal

__all__ = ["op"]

#: The schema of all operators, because each target has its own number of operands and results. The
#: attributes are a Python literal. If `like` is not negative, the results have the types of those
#: of the first `like` operands that are not integers, as cotangents do.
_SCHEMA = "(Tensor[] operands, str attributes, int like) -> Tensor[]"

#: The dtypes that have the same name in PyTorch and in NumPy or ml_dtypes.
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

#: The integers with the same bits, for the dtypes of ml_dtypes that NumPy does not have.
_BITS = {
    dtype: torch.uint16 if name == "bfloat16" else torch.uint8
    for name, dtype in _DTYPES.items()
    if name.startswith(("bfloat", "float8"))
}

#: The dtype and shape of a result.
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
    """Makes a function of a target: ``function(*tensors, **attributes)``.

    The function is the operator ``torch.ops.callbox.NAME``. Make it once, where a module is
    imported, because operators stay until the process ends.

    Args:
        target: A module's target, such as ``module.rms_norm``.
        vjp: The gradients, as a target or a function. A target takes the operands and then the
            cotangents of the results, with the same attributes, and returns the cotangents of the
            operands, as for `callbox.jax.op`. A function is ``vjp(operands, results, cotangents,
            **attributes)``, with a tuple of operands, and with results and cotangents in the form
            in which the function returns its results. It returns one cotangent for each operand,
            and can itself be differentiated if it uses PyTorch's own operations. Integers have no
            cotangents: a target neither takes nor returns them, and a function gets None.
        result_shape_dtypes: The shape and dtype of the result, or a sequence of them: an object
            with ``shape`` and ``dtype`` (such as ``torch.empty(2, 3, device="meta")``) or a pair of
            shape and dtype. A function ``(*operands, **attributes)`` may return them. Default: the
            target's metadata infers them from the operands.
        name: The operator's name, after ``callbox::``. Default: the target's name with a digest of
            its module and options, which is the same in each process that makes the same operators
            in the same order.
        deadline: The time limit of a call, in seconds. Default: the policy's.
        opaque: The opaque bytes, for a target of XLA's older conventions.
        static_info: The static information, for a target of the JAX FFI proposal's convention.
        api_version: The convention, for a target that has several.

    Returns:
        The function. Its tensors must be on the CPU and have the dtypes and ranks that the target
        declares; tensors that are not contiguous are copied. It returns one tensor, or a tuple of
        tensors. Attributes are Python's numbers, strings, lists and dictionaries, or NumPy's
        scalars and arrays. Under `torch.compile` attributes are constants: each new value is
        compiled again, and NumPy's are not supported. Under `torch.func.vmap` the target is called
        once for each element of the batch. Forward-mode derivatives raise `NotImplementedError`.

    Raises:
        TypeError: `target` is not a target; `vjp` is neither a target nor a function.
        ValueError: `name` is not an identifier, or is taken.

    The function raises the same exceptions as a direct call of the target, and
    `NotImplementedError` for a tensor that is not on the CPU.

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
    vjp = getattr(target, "vjp", None) if vjp is None else vjp
    # Of a jitted function.
    target = getattr(target, "__callbox_target__", target)
    vjp = getattr(vjp, "__callbox_target__", vjp)
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
    """The functions that `torch.library` needs for one target."""

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
        self._transformable = _transformable(self)
        self._names = tuple(operand.name for operand in target.operands or ())
        self._derivative = None
        if isinstance(vjp, Target):
            self._derivative = _Operator(vjp, options, None, None, f"{name}_vjp" if name else None)

    def function(self) -> Callable[..., Any]:
        """The operator as a function of tensors and attributes, which `torch.compile` traces."""

        def function(*tensors: torch.Tensor, **attributes: Any) -> Any:
            operands = self._operands(tensors, attributes)
            return _packed(self._apply(operands, literal(attributes), -1))

        function.__name__ = self._target.__name__
        function.__qualname__ = self._target.__qualname__
        function.__doc__ = self._target.__doc__
        function.__signature__ = _signature(self._target)  # type: ignore[attr-defined]
        function.operator = self._overload  # type: ignore[attr-defined]
        return function

    def _operands(self, tensors: tuple[torch.Tensor, ...], attributes: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """The operands. Takes those that are passed by name out of `attributes`."""
        for name in self._names[len(tensors) :]:
            if name in attributes:
                tensors = (*tensors, attributes.pop(name))
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                name = f" ({self._names[position]})" if position < len(self._names) else ""
                raise TypeError(
                    f"target {self._target.name!r}: expected a tensor as operand {position}{name}, found "
                    f"{type(tensor).__name__}: torch.as_tensor makes a tensor of arrays and numbers"
                )
        return tensors

    def _apply(self, operands: tuple[torch.Tensor, ...], attributes: str, like: int) -> Sequence[torch.Tensor]:
        """Calls the operator in the way that the transformations in progress support."""
        if torch.compiler.is_compiling():
            return self._overload(operands, attributes, like)  # type: ignore[no-any-return]
        self._check_tangents(operands)
        # `torch.func.grad` does not support `torch.library` operators with derivatives.
        if torch._C._are_functorch_transforms_active():
            return self._transformable.apply(attributes, like, *operands)  # type: ignore[no-any-return]
        return self._overload(operands, attributes, like)  # type: ignore[no-any-return]

    def _check_tangents(self, operands: Sequence[torch.Tensor]) -> None:
        """Refuses forward mode, for which operators of `torch.library` silently have zeros."""
        if forward_ad._current_level < 0:
            return
        if any(forward_ad.unpack_dual(operand).tangent is not None for operand in operands):
            raise NotImplementedError(
                f"target {self._target.name!r} has no forward-mode derivatives in PyTorch (torch.func.jvp, jacfwd "
                "and hessian): use torch.func.vjp, grad or jacrev, or callbox.jax.op, which has jvp="
            )

    def _call(self, operands: Sequence[torch.Tensor], attributes: str, like: int) -> list[torch.Tensor]:
        self._check_device(operands)
        results = [torch.empty(shape, dtype=dtype) for dtype, shape in self._results(operands, attributes, like)]
        arrays = [_array(operand.contiguous()) for operand in operands]
        # A copy, because the cached attributes must not change.
        named = dict(attributes_of(attributes))
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
            given = given(*operands, **attributes_of(attributes))
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
            # NumPy knows the names of ml_dtypes only after that is imported.
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
        # The vjp of a target does not need the results.
        kept = () if self._derivative is not None else output
        ctx.dtypes = [result.dtype for result in output]
        ctx.save_for_backward(*operands, *kept)

    def _backward(
        self, ctx: Any, cotangents: Sequence[torch.Tensor | None]
    ) -> tuple[list[torch.Tensor | None], None, None]:
        # Under `torch.utils.checkpoint` this can be read only once.
        saved = ctx.saved_tensors
        operands, results = saved[: ctx.count], saved[ctx.count :]
        known = tuple(ct if _is_inexact(dtype) else None for ct, dtype in zip(cotangents, ctx.dtypes, strict=True))
        if self._vjp is None:
            raise RuntimeError(
                f"target {self._target.name!r} cannot be differentiated: it has no vjp. Pass vjp= to callbox.torch.op"
            )
        if self._derivative is not None:
            given: Sequence[Any] = self._call_vjp(operands, known, ctx.attributes)
        else:
            given = self._vjp(operands, _packed(results), _packed(known), **attributes_of(ctx.attributes))
            given = given if isinstance(given, (tuple, list)) else (given,)
        if len(given) != len(operands):
            raise ValueError(
                f"target {self._target.name!r}: expected vjp to return one tensor for each of the {len(operands)} operands, found {len(given)}"
            )
        return [ct if _is_inexact(x.dtype) else None for ct, x in zip(given, operands, strict=True)], None, None

    def _call_vjp(
        self, operands: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None], attributes: str
    ) -> list[torch.Tensor | None]:
        """Calls the target that is the vjp.

        It uses JAX's cotangents, which are the conjugates of PyTorch's.
        """
        given = (ct.conj() for ct in cotangents if ct is not None)
        found = iter(self._derivative._apply((*operands, *given), attributes, len(operands)))  # type: ignore[union-attr]
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
        calls = [self._apply(tuple(element(number)), attributes, like) for number in range(info.batch_size)]
        results = [torch.stack(each) for each in zip(*calls, strict=True)]
        return results, [0] * len(results)


def _transformable(operator: _Operator) -> type[torch.autograd.Function]:
    """The operator as a function that `torch.func` can transform."""

    class Transformable(torch.autograd.Function):
        @staticmethod
        def forward(attributes: str, like: int, *operands: torch.Tensor) -> Any:
            return tuple(operator._overload(operands, attributes, like))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            attributes, like, *operands = inputs
            operator._keep(ctx, (operands, attributes, like), output)

        @staticmethod
        def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
            given, _, _ = operator._backward(ctx, cotangents)
            return (None, None, *given)

        @staticmethod
        def vmap(info: Any, in_dims: Any, attributes: str, like: int, *operands: torch.Tensor) -> Any:
            results, dims = operator._map(info, (in_dims[2:],), operands, attributes, like)
            return tuple(results), tuple(dims)

    return Transformable


def _qualified(target: Target, options: Mapping[str, Any], name: str | None) -> str:
    """Reserves a unique name for the operator."""
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
    """The target's signature without the options of a direct call."""
    names = {a.name for a in target.attributes or ()}
    parameters = target.__signature__.parameters.values()
    return inspect.Signature([p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY or p.name in names])


def _packed(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory as a NumPy array."""
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
    """The sizes of a shape. One that is a variable of `torch.compile` becomes a constant."""
    return tuple(map(operator.index, shape))


def _without(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])
