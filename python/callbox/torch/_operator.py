"""One target as an operator of `torch.library`, with its derivatives."""

from __future__ import annotations

import hashlib
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from callbox._callbox import Target
from callbox._literals import attributes as attributes_of
from callbox._literals import literal

from . import _batch
from ._tensors import (
    BITS,
    DTYPES,
    NAMES,
    Result,
    is_dtype,
    is_inexact,
    memory,
    packed,
    sizes,
    symbolic_results,
    without,
)

#: The schema of all operators, because each target has its own number of operands and results. The
#: attributes are a Python literal. If `like` is not negative, the results have the types of those
#: of the first `like` operands that are not integers, as cotangents do.
_SCHEMA = "(Tensor[] operands, str attributes, int like) -> Tensor[]"

#: The most operators of derivatives, and of their own ones, that an operator has: declarations can
#: go on and on.
_MOST_DERIVATIVES = 16

_taken: set[str] = set()
_taken_lock = threading.Lock()


class Operator:
    """The functions that `torch.library` needs for one target."""

    def __init__(
        self,
        target: Target,
        options: Mapping[str, Any],
        result_shape_dtypes: Any,
        vjp: Target | Callable[..., Any] | None,
        jvp: Target | Callable[..., Any] | None,
        name: str | None,
        family: dict[Target, Operator] | None = None,
    ) -> None:
        self._target = target
        self._options = options
        self._seconds = _batch.seconds(target, options)
        self._result_shape_dtypes = result_shape_dtypes
        self._vjp, self._jvp = vjp, jvp
        # The operands of the last call whose results were inferred, and these. The elements of a
        # batch have one shape.
        self._inferred: tuple[list[Any] | None, list[Result]] = (None, [])
        qualified = _qualified(target, options, name)
        definition = torch.library.custom_op(qualified, self._call, mutates_args=(), schema=_SCHEMA)
        definition.register_fake(self._infer)
        definition.register_autograd(self._backward, setup_context=self._keep)
        definition.register_vmap(self._map)
        self._overload = getattr(torch.ops.callbox, qualified.removeprefix("callbox::")).default
        self._transformable = _transformable(self)
        self._names = tuple(operand.name for operand in target.operands or ())
        # The narrowest first.
        self._accepted = tuple(
            tuple(sorted((DTYPES[name] for name in operand.dtypes if name in DTYPES), key=lambda dtype: dtype.itemsize))
            for operand in target.operands or ()
        )
        self._scalars = _scalars(target)
        # The operators of the derivatives that modules declare. Declarations may be circular.
        self._family: dict[Target, Operator] = {} if family is None else family
        if family is not None:
            family[target] = self
        self._derivative = self._rule(vjp, f"{name}_vjp" if name else None)
        self._tangent = self._rule(jvp, f"{name}_jvp" if name else None)

    def _rule(self, rule: Target | Callable[..., Any] | None, name: str | None) -> Operator | None:
        """The operator of a rule that is a target or an op. None for a function.

        A target has the derivatives that its module declares.
        """
        if not isinstance(rule, Target):
            return None if rule is None else operators.get(rule)
        known = self._family.get(rule)
        if known is not None:
            return known
        rules = (rule.vjp, rule.jvp) if len(self._family) < _MOST_DERIVATIVES else (None, None)
        return Operator(rule, self._options, None, *rules, name, self._family)

    def function(self) -> Callable[..., Any]:
        """The operator as a function of tensors and attributes, which `torch.compile` traces."""

        def function(*tensors: torch.Tensor, **attributes: Any) -> Any:
            operands = self._operands(tensors, attributes)
            if torch.is_autocast_enabled("cpu"):
                operands = self._cast(operands)
            return packed(self._apply(operands, literal(attributes), -1))

        function.__name__ = self._target.__name__
        function.__qualname__ = self._target.__qualname__
        function.__doc__ = self._target.__doc__
        function.__signature__ = _signature(self._target)  # type: ignore[attr-defined]
        function.operator = self._overload  # type: ignore[attr-defined]
        return function

    def _operands(self, tensors: tuple[torch.Tensor, ...], attributes: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """The operands. Takes those that are passed by name out of `attributes`."""
        both = [name for _, name in self._scalars]
        for name in self._names[len(tensors) :]:
            if name in attributes and name not in both:
                tensors = (*tensors, attributes.pop(name))
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                name = f" ({self._names[position]})" if position < len(self._names) else ""
                raise TypeError(
                    f"target {self._target.name!r}: expected a tensor as operand {position}{name}, found "
                    f"{type(tensor).__name__}: torch.as_tensor makes a tensor of arrays and numbers"
                )
        for position, name in self._scalars:
            if len(tensors) == position and isinstance(attributes.get(name), torch.Tensor):
                tensors = (*tensors, attributes.pop(name))
        for position, tensor in enumerate(tensors):
            if tensor.device != tensors[0].device:
                raise ValueError(
                    f"target {self._target.name!r}: expected all operands on one device, found operand 0 on "
                    f"{tensors[0].device} and operand {position} on {tensor.device}"
                )
        return tensors

    def _cast(self, operands: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Under autocast, the operands in dtypes that the target takes."""
        cast = []
        for position, x in enumerate(operands):
            accepted = self._accepted[position] if position < len(self._accepted) else ()
            wider = [d for d in accepted if torch.promote_types(x.dtype, d) is d]
            if x.dtype.is_floating_point and x.dtype not in accepted and wider:
                x = x.to(wider[0])
            cast.append(x)
        return tuple(cast)

    def _apply(self, operands: tuple[torch.Tensor, ...], attributes: str, like: int) -> Sequence[torch.Tensor]:
        """Calls the operator in the way that the transformations in progress support."""
        if torch.compiler.is_compiling():
            return self._overload(operands, attributes, like)  # type: ignore[no-any-return]
        # `torch.func.grad` does not support `torch.library` operators with derivatives.
        if self._has_tangents(operands) or torch._C._are_functorch_transforms_active():
            return self._transformable.apply(attributes, like, *operands)  # type: ignore[no-any-return]
        return self._overload(operands, attributes, like)  # type: ignore[no-any-return]

    def _has_tangents(self, operands: Sequence[torch.Tensor]) -> bool:
        """Returns whether forward mode is in progress.

        Operators of `torch.library` silently have zeros for it.
        """
        if forward_ad._current_level < 0:
            return False
        if all(forward_ad.unpack_dual(operand).tangent is None for operand in operands):
            return False
        if self._jvp is None:
            raise NotImplementedError(
                f"target {self._target.name!r} has no forward-mode derivatives (torch.func.jvp, jacfwd and hessian): "
                "pass jvp= to callbox.torch.op, or use torch.func.vjp, grad or jacrev"
            )
        return True

    def _call(self, operands: Sequence[torch.Tensor], attributes: str, like: int) -> list[torch.Tensor]:
        self._check_device(operands)
        found = self._results(operands, attributes, like, runs=True)
        results = [torch.empty(shape, dtype=dtype) for dtype, shape in found]
        arrays = list(map(memory, operands))
        # A copy, because the cached attributes must not change.
        named = dict(attributes_of(attributes))
        options = _batch.within(self._options, self._seconds)
        self._target(*arrays, out=tuple(map(memory, results)), attributes=named, **options)
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

    def _results(
        self, operands: Sequence[torch.Tensor], attributes: str, like: int, *, runs: bool = False
    ) -> list[Result]:
        """The results of a call. If it runs, those that the module declares have a bound."""
        if like >= 0:
            return [(x.dtype, tuple(x.shape)) for x in operands[:like] if is_inexact(x.dtype)]
        given = self._result_shape_dtypes
        if given is None:
            if any(isinstance(size, torch.SymInt) for operand in operands for size in operand.shape):
                symbolic = symbolic_results(self._target, operands)
                if symbolic is not None:
                    return symbolic
            shapes = [(self._dtype_name(operand.dtype), sizes(operand.shape)) for operand in operands]
            kept, found = self._inferred
            if not runs or kept != shapes:
                found = [(self._dtype(name), tuple(shape)) for name, shape in self._target.infer(shapes, bounded=runs)]
            if runs:
                self._inferred = (shapes, found)
            return found
        if callable(given) and not hasattr(given, "shape"):
            given = given(*operands, **attributes_of(attributes))
        if hasattr(given, "shape") or (isinstance(given, tuple) and len(given) == 2 and is_dtype(given[1])):
            given = (given,)
        return [self._result(result, i) for i, result in enumerate(given)]

    def _result(self, given: Any, position: int) -> Result:
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
            dtype = self._dtype(dtype if dtype in DTYPES else np.dtype(dtype).name)
        return dtype, sizes(shape)

    def _dtype(self, name: str) -> torch.dtype:
        if name not in DTYPES:
            raise TypeError(f"target {self._target.name!r}: expected results of dtypes that PyTorch has, found {name}")
        return DTYPES[name]

    def _dtype_name(self, dtype: torch.dtype) -> str:
        if dtype not in NAMES:
            raise TypeError(
                f"target {self._target.name!r}: expected operands of dtypes that NumPy or ml_dtypes has, found {dtype}"
            )
        if dtype in BITS:
            # NumPy knows the names of these dtypes only after this.
            import ml_dtypes  # noqa: F401
        return NAMES[dtype]

    def _keep(self, ctx: Any, inputs: Any, output: Sequence[torch.Tensor]) -> None:
        operands, ctx.attributes, _ = inputs
        ctx.batch = _batch.current()
        ctx.count = len(operands)
        # Rules that are targets do not need the results.
        is_needed = self._derivative is None or (self._jvp is not None and self._tangent is None)
        kept = (*operands, *output) if is_needed else tuple(operands)
        ctx.dtypes = [result.dtype for result in output]
        ctx.shapes = [result.shape for result in output]
        ctx.save_for_backward(*kept)
        if self._jvp is not None:
            ctx.save_for_forward(*kept)

    def _forward(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
        """The tangents of the results."""
        saved = ctx.saved_tensors
        operands, results = saved[: ctx.count], saved[ctx.count :]
        known = tuple(
            (torch.zeros_like(x) if t is None else t) if is_inexact(x.dtype) else None
            for t, x in zip(tangents, operands, strict=True)
        )
        if self._tangent is not None:
            flat = (t for t in known if t is not None)
            found = iter(self._tangent._apply((*operands, *flat), ctx.attributes, -1))
            return tuple(next(found) if is_inexact(dtype) else None for dtype in ctx.dtypes)
        given = self._jvp(operands, packed(results), known, **attributes_of(ctx.attributes))  # type: ignore[misc]
        given = given if isinstance(given, (tuple, list)) else (given,)
        if len(given) != len(ctx.dtypes):
            raise ValueError(
                f"target {self._target.name!r}: expected jvp to return one tensor for each of the {len(ctx.dtypes)} "
                f"results, found {len(given)}"
            )
        return tuple(
            (torch.zeros(shape, dtype=dtype) if t is None else t) if is_inexact(dtype) else None
            for t, dtype, shape in zip(given, ctx.dtypes, ctx.shapes, strict=True)
        )

    def _backward(
        self, ctx: Any, cotangents: Sequence[torch.Tensor | None]
    ) -> tuple[list[torch.Tensor | None], None, None]:
        # Under `torch.utils.checkpoint` this can be read only once.
        saved = ctx.saved_tensors
        operands, results = saved[: ctx.count], saved[ctx.count :]
        known = tuple(ct if is_inexact(dtype) else None for ct, dtype in zip(cotangents, ctx.dtypes, strict=True))
        if self._vjp is None:
            raise RuntimeError(
                f"target {self._target.name!r} cannot be differentiated: it has no vjp. Pass vjp= to callbox.torch.op"
            )
        with _batch.of(ctx.batch):
            if self._derivative is not None:
                given: Sequence[Any] = self._call_vjp(operands, known, ctx.attributes)
            else:
                given = self._vjp(operands, packed(results), packed(known), **attributes_of(ctx.attributes))
                given = given if isinstance(given, (tuple, list)) else (given,)
        if len(given) != len(operands):
            raise ValueError(
                f"target {self._target.name!r}: expected vjp to return one tensor for each of the {len(operands)} operands, found {len(given)}"
            )
        return [ct if is_inexact(x.dtype) else None for ct, x in zip(given, operands, strict=True)], None, None

    def _call_vjp(
        self, operands: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None], attributes: str
    ) -> list[torch.Tensor | None]:
        """Calls the target that is the vjp.

        It uses JAX's cotangents, which are the conjugates of PyTorch's.
        """
        given = (ct.conj() for ct in cotangents if ct is not None)
        found = iter(self._derivative._apply((*operands, *given), attributes, len(operands)))  # type: ignore[union-attr]
        return [next(found).conj() if is_inexact(x.dtype) else None for x in operands]

    def _map(
        self, info: Any, in_dims: Any, operands: Sequence[torch.Tensor], attributes: str, like: int
    ) -> tuple[list[torch.Tensor], list[int]]:
        dims = in_dims[0]

        def element(number: int) -> list[torch.Tensor]:
            return [x if dim is None else x.select(dim, number) for x, dim in zip(operands, dims, strict=True)]

        if info.batch_size == 0:
            shapes = [
                x if dim is None else x.new_empty(without(x.shape, dim)) for x, dim in zip(operands, dims, strict=True)
            ]
            of_one = self._results(shapes, attributes, like)
            return [torch.empty((0, *shape), dtype=dtype) for dtype, shape in of_one], [0] * len(of_one)
        merged = self._merged(info.batch_size, dims, operands)
        if merged is not None:
            found = self._apply(merged, attributes, like)
            size = info.batch_size
            return [x.reshape(size, x.shape[0] // size, *x.shape[1:]) for x in found], [0] * len(found)
        with _batch.mapped(self._seconds):
            calls = [self._apply(tuple(element(number)), attributes, like) for number in range(info.batch_size)]
        results = [torch.stack(each) for each in zip(*calls, strict=True)]
        return results, [0] * len(results)

    def _merged(
        self, size: int, dims: Sequence[int | None], operands: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...] | None:
        """The operands of one call for a whole batch. None if each element takes a call."""
        given = self._result_shape_dtypes
        # Given shapes are those of one element.
        if "batched" not in self._target.traits or (given is not None and not callable(given)):
            return None
        declared = self._target.operands or ()
        merged = []
        for position, (x, dim) in enumerate(zip(operands, dims, strict=True)):
            if position >= len(declared) or (declared[position].dimensions or ())[:1] != ("batch",):
                if dim is not None:
                    return None
                merged.append(x)
                continue
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            merged.append(x.reshape(size * x.shape[1], *x.shape[2:]))
        return tuple(merged)


def _transformable(operator: Operator) -> type[torch.autograd.Function]:
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
        def jvp(ctx: Any, *tangents: torch.Tensor | None) -> Any:
            return operator._forward(ctx, tangents[2:])

        @staticmethod
        def vmap(info: Any, in_dims: Any, attributes: str, like: int, *operands: torch.Tensor) -> Any:
            results, dims = operator._map(info, (in_dims[2:],), operands, attributes, like)
            return tuple(results), tuple(dims)

    return Transformable


#: The operators of the functions that `op` returned, for ops as rules of others.
operators: weakref.WeakKeyDictionary[Callable[..., Any], Operator] = weakref.WeakKeyDictionary()


def _scalars(target: Target) -> tuple[tuple[int, str], ...]:
    """The positions and names of scalars that a target takes as operands or as attributes."""
    optional = {attribute.name for attribute in target.attributes or () if attribute.optional}
    operands = enumerate(target.operands or ())
    return tuple((i, x.name) for i, x in operands if x.optional and x.rank == 0 and x.name in optional)


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


def _signature(target: Target) -> inspect.Signature:
    """The target's signature without the options of a direct call."""
    names = {a.name for a in target.attributes or ()}
    parameters = target.__signature__.parameters.values()
    return inspect.Signature([p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY or p.name in names])
