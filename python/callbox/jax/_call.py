"""One call of a target, in the words of `jax.ffi.ffi_call`."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from callbox._callbox import FFI_TARGET, FFI_TARGET_COMMAND_BUFFER, StaticInfo, Target

from . import _axes
from ._derivatives import as_arrays, refused

#: What `vmap_method` can be.
_VMAP_METHODS = ("loop", "sequential", "sequential_unrolled", None)


def call(
    target: Target,
    *arrays: ArrayLike,
    result_shape_dtypes: Any = None,
    vmap_method: str | None = "loop",
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    on_error: str = "raise",
    deadline: float | None = None,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> Any:
    """Calls a target on arrays, inside of `jax.jit` or not.

    Everything about the call site is checked while JAX traces it, before any guest code runs.

    Args:
        target: A module's target, such as ``module.add_n``.
        *arrays: The operands, of the dtypes and ranks that the target declares. A number of Python's takes the dtype of its kind that
            the target declares, if there is one.
        result_shape_dtypes: The shape and dtype of the result, or a sequence of them: anything with ``shape`` and ``dtype``, or a pair
            ``(dtype, shape)``. Left out: as the target's metadata infer them from the operands. 64-bit dtypes are taken as they are,
            as `jax.ffi.ffi_call` takes them. Where a mesh has explicit axes, the result is sharded as this is: that of an elementwise
            target as its operands if this is left out, and others are whole on each device.
        vmap_method: What becomes of the call under `jax.vmap`. ``"loop"``: one call of XLA's for the whole batch, which the host makes
            one call of the target for each element; right for every target. ``"sequential"``, ``"sequential_unrolled"``, None: as in
            `jax.ffi.ffi_call`.
        input_output_aliases: ``{operand: result}``: which results take the memory of which operands. If such an operand is donated, its
            memory is the result's; otherwise XLA makes a copy of it.
        has_side_effect: Whether the call is made even if nothing needs its results.
        on_error: ``"raise"``: a failed call fails the program. ``"status"``: the call never fails, and has one result more, an int32 of
            shape ``()``: 0, or the status code. The results of a failed call are filled with bytes of 0xFF, which is NaN for floating
            point. This is for programs with collectives: XLA ends the process if one of several shards fails before a collective. See
            `check`. Under `jax.vmap` there is a status for each element.
        deadline: Seconds, for XLA's call: under `jax.vmap`, for all elements of the batch together. Once it has passed, the elements
            that are left are not called and fail with DEADLINE_EXCEEDED, each with that as its status if there are statuses. It takes
            the place of the policy's, which is for each element, and may be longer. Left out: the policy's.
        opaque: Bytes for targets of the conventions that have them.
        static_info: Static information for targets of the JAX FFI proposal's convention.
        api_version: The calling convention, such as ``"API_VERSION_TYPED_FFI"``, for targets that have several.
        attributes: Attributes by name, for names that are this function's own.
        **attrs: Attributes by name. They are part of the program: numbers, strings, NumPy arrays, dictionaries, but nothing that JAX
            traces.

    Returns:
        One array if `result_shape_dtypes` is one; a tuple or list, as it is; a tuple if it is left out and there are several results.
        With ``on_error="status"`` always a tuple of the results and the status.

    Raises:
        TypeError: Wrong number or dtypes of operands, or what is no array; missing, additional or traced attributes, or such of a wrong
            type; results without a shape and a dtype; aliases that are no mapping of integers.
        ValueError: Wrong ranks or dimensions; results that can't be inferred, or that disagree with the metadata; an unknown option.
    """
    options = Options(
        vmap_method=vmap_method,
        input_output_aliases=checked_aliases(input_output_aliases),
        has_side_effect=has_side_effect,
        on_error=on_error,
        deadline=deadline,
        opaque=opaque,
        static_info=static_info,
        api_version=api_version,
    )
    check_target(target, "target")
    named = merged(target, attributes, attrs)
    operands = _axes.agreed(as_operands(target, arrays))
    results = Results.of(target, operands, result_shape_dtypes)
    return results.packed(bind(target, refused(target, operands), results, named, options), options)


@dataclasses.dataclass(frozen=True)
class Options:
    """What a call site says besides its operands, results and attributes."""

    vmap_method: str | None = "loop"
    input_output_aliases: Mapping[int, int] = dataclasses.field(default_factory=dict)
    has_side_effect: bool = False
    on_error: str = "raise"
    deadline: float | None = None
    opaque: bytes | None = None
    static_info: bytes | StaticInfo | None = None
    api_version: str | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "status"):
            raise ValueError(f"expected on_error to be 'raise' or 'status', found {self.on_error!r}")
        if self.vmap_method in ("expand_dims", "broadcast_all"):
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}: "
                "it hands the whole batch to the target, which computes something else then unless it is written for batches, "
                "and no target can declare that it is"
            )
        if self.vmap_method not in _VMAP_METHODS:
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}"
            )

    @property
    def has_status(self) -> bool:
        return self.on_error == "status"

    @property
    def ffi_vmap_method(self) -> str | None:
        """The method by which `jax.ffi.ffi_call` gives the handler the batch that it loops over."""
        if self.vmap_method != "loop":
            return self.vmap_method
        # An operand that is the same for the whole batch stays as small as it is. One that a result takes the memory of can't: the
        # result has the batch.
        return "broadcast_all" if self.input_output_aliases else "expand_dims"

    def without_memory(self) -> Options:
        """For another target of the same program: the aliases are of this one's operands."""
        return dataclasses.replace(self, input_output_aliases={}, opaque=None, static_info=None, api_version=None)


@dataclasses.dataclass(frozen=True)
class Results:
    """The types of a call's results, the status not among them, and what holds the arrays."""

    types: tuple[jax.ShapeDtypeStruct, ...]
    container: Callable[[Sequence[Any]], Any]
    #: Over explicit mesh axes. None: on every device a whole, as results of FFI calls are. Without any: all None.
    shardings: tuple[Any, ...] = ()

    @classmethod
    def of(cls, target: Target, operands: Sequence[jax.Array], given: Any) -> Results:
        """As they are given, or inferred from the operands.

        Raises:
            TypeError: What is given has no shape and dtype.
            ValueError: They are not given and the metadata do not say.
        """
        if given is None:
            inferred = target.infer([described(target, x) for x in operands])
            types = tuple(array_type(shape, jnp.dtype(name)) for name, shape in inferred)
            sharding = _common_sharding(operands) if "elementwise" in target.traits else None
            return cls(types, _only if len(types) == 1 else tuple, (sharding,) * len(types))
        is_one = not isinstance(given, Sequence) or isinstance(given, str) or is_pair(given)
        wanted = (given,) if is_one else tuple(given)
        container = _only if is_one else tuple if isinstance(given, tuple) else list
        types = tuple(_type_of(target, result, i) for i, result in enumerate(wanted))
        return cls(types, container, tuple(map(_axes.explicit_sharding, wanted)))

    def packed(self, arrays: Sequence[jax.Array], options: Options) -> Any:
        """The arrays as the caller gets them: with the status, if there is one."""
        return tuple(arrays) if options.has_status else self.container(arrays)


def bind(
    target: Target,
    operands: Sequence[jax.Array],
    results: Results,
    attributes: Mapping[str, Any],
    options: Options,
) -> tuple[jax.Array, ...]:
    """Puts the call into the program that is being traced, or makes it now. The status, if there is one, comes last.

    The operands vary over the same manual axes.
    """
    operands = as_arrays(operands)
    given = target.xla_attributes(
        [described(target, x) for x in operands],
        [described(target, x) for x in results.types],
        dict(attributes),
        on_error=options.on_error,
        deadline=options.deadline,
        aliases=dict(options.input_output_aliases),
        opaque=options.opaque,
        static_info=options.static_info,
        api_version=options.api_version,
    )
    types = list(results.types)
    if options.has_status:
        types.append(array_type((), np.int32))
    function = jax.ffi.ffi_call(
        _ffi_target(target),
        types,
        has_side_effect=options.has_side_effect,
        vmap_method=options.ffi_vmap_method,
        input_output_aliases=dict(options.input_output_aliases) or None,
    )
    with jax.named_scope(target.name):
        flat = function(*operands, **given)
    shardings = results.shardings or (None,) * len(types)
    # The status, if there is one, is the one without a sharding that was asked for.
    placed = [_axes.sharded(x, s) for x, s in itertools.zip_longest(flat, shardings)]
    return _axes.varying(placed, _axes.all_axes(operands))


def _ffi_target(target: Target) -> str:
    """The name by which XLA calls the target: on a GPU, kernels that can be part of a CUDA graph have another handler than those that can't."""
    is_recordable = "command_buffer_compatible" in target.native_traits
    return FFI_TARGET_COMMAND_BUFFER if is_recordable else FFI_TARGET


def checked_aliases(given: Any) -> dict[int, int]:
    """The aliases of a call, as they are given.

    Raises:
        TypeError: They are no mapping of integers to integers.
        ValueError: One of the integers is negative.
    """
    wrong = f"expected input_output_aliases to be a mapping of operands' numbers to results' numbers, found {given!r}"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(wrong)
    numbers = [*given.keys(), *given.values()]
    if not all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in numbers):
        raise TypeError(wrong)
    if any(x < 0 for x in numbers):
        raise ValueError(wrong)
    return {int(operand): int(result) for operand, result in given.items()}


def check_target(value: Any, name: str) -> None:
    """Checks that an argument is a target.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(value, Target):
        raise TypeError(
            f"expected {name} to be a target of a module, such as module.add_n, found {type(value).__name__}"
        )


def as_operands(target: Target, arrays: Sequence[ArrayLike]) -> tuple[jax.Array, ...]:
    """The arrays as JAX's.

    Raises:
        TypeError: One of them is none: several arrays in a tuple or list are operands of their own.
    """
    return tuple(_operand(target, i, x) for i, x in enumerate(arrays))


def _operand(target: Target, position: int, value: Any) -> jax.Array:
    declared = target.operands or ()
    known = declared[position] if position < len(declared) else None
    name = f"operand {position}" if known is None else f"operand {position} ({known.name})"
    wrong = f"target {target.name!r}: expected an array of numbers as {name}, found "
    if isinstance(value, (tuple, list)):
        raise TypeError(
            f"{wrong}a {type(value).__name__}: pass each array as an operand of its own, or make one of them by jax.numpy.array"
        )
    if value is None or isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{wrong}{'None' if value is None else f'a {type(value).__name__}'}")
    names = () if known is None else known.dtypes
    if _is_number(value) or getattr(value, "weak_type", False) is True:
        return _of_weak_type(value, names)
    try:
        array: jax.Array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{wrong}{type(value).__name__}") from error
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) or array.dtype == jax.dtypes.float0:
        raise TypeError(f"{wrong}dtype {array.dtype.name}")
    return array


def _is_number(value: Any) -> bool:
    """Whether this is one of Python's. NumPy's have a dtype."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


#: A dtype of each kind of numbers that Python has.
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def _of_weak_type(value: Any, names: Sequence[str]) -> jax.Array:
    """A number of Python's, or what was computed of such: as everywhere in JAX its dtype gives way, here to the one that is declared."""
    found = jnp.result_type(type(value) if _is_number(value) else value)
    if found.name not in names:
        kind = next(kind for kind in _KINDS if jnp.issubdtype(found, kind))
        fitting = [name for name in names if jnp.issubdtype(jnp.dtype(name), kind)]
        if len(fitting) == 1:
            return jnp.asarray(value, jnp.dtype(fitting[0]))
    return jnp.asarray(value)


def described(target: Target, array: Any) -> tuple[str, tuple[int, ...]]:
    """The name of an array's dtype, and its shape.

    Raises:
        ValueError: A dimension is not known while the program is traced.
    """
    try:
        return array.dtype.name, tuple(map(operator.index, array.shape))
    except Exception as error:
        raise ValueError(
            f"target {target.name!r}: expected dimensions that are known when the program is traced, found {array.shape}"
        ) from error


def merged(target: Target, attributes: Mapping[str, Any] | None, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of a call.

    Raises:
        TypeError: One is there twice, or its value is not known while the program is traced.
    """
    both = sorted(set(attributes or ()) & set(attrs))
    if both:
        raise TypeError(f"target {target.name!r}: expected each attribute once, found {both[0]!r} twice")
    everything = {**(attributes or {}), **attrs}
    return {name: _static(target, name, value) for name, value in everything.items()}


def _static(target: Target, path: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"target {target.name!r}: expected a value for the attribute {path!r} that is known when the program is traced, found {value}: "
            "attributes are part of the program (jax.jit has static_argnames for them)"
        )
    if isinstance(value, jax.Array):
        return np.asarray(value)
    if isinstance(value, Mapping):
        return {name: _static(target, f"{path}.{name}", inner) for name, inner in value.items()}
    return value


def _type_of(target: Target, result: Any, position: int) -> jax.ShapeDtypeStruct:
    if is_pair(result):
        dtype, shape = result
        return array_type(tuple(shape), jnp.dtype(dtype))
    # The dtypes themselves, such as numpy.float32, have attributes of these names.
    if isinstance(result, type) or not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise TypeError(
            f"target {target.name!r}: expected result {position} to be something with a shape and a dtype, such as "
            f"jax.ShapeDtypeStruct, or a pair (dtype, shape), found {result!r}"
        )
    return array_type(result.shape, result.dtype)


def is_pair(given: Any) -> bool:
    """Whether this is one result's ``(dtype, shape)``, and not a sequence of two results."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    dtype, shape = given
    if not isinstance(dtype, (str, type, np.dtype)) or not isinstance(shape, (tuple, list)):
        return False
    return all(isinstance(size, (int, np.integer)) for size in shape)


def _common_sharding(operands: Sequence[jax.Array]) -> Any:
    """The one that all operands but numbers have, if they have one."""
    shardings = [_axes.explicit_sharding(x) for x in operands if x.ndim]
    return shardings[0] if shardings and all(s == shardings[0] for s in shardings) else None


def array_type(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """The type of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]  # JAX has not annotated it


def _only(arrays: Sequence[Any]) -> Any:
    return arrays[0]
