"""One call of a target, with the arguments of `jax.ffi.ffi_call`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from callbox._callbox import FFI_TARGET, FFI_TARGET_COMMAND_BUFFER, StaticInfo, Target

from . import _axes, _eager, _partitioning
from ._derivatives import as_arrays, is_traced
from ._operands import as_operands, flattened, has_batch, with_named, with_traced
from ._symbolic import Sizes

#: The values of `vmap_method`.
VmapMethod = Literal["loop", "sequential", "sequential_unrolled"] | None
_VMAP_METHODS = ("loop", "sequential", "sequential_unrolled", None)

#: The dtypes whose elements XLA packs, and the first version of JAX that passes them to a call.
_PACKED = frozenset(("int4", "uint4", "int2", "uint2", "float4_e2m1fn"))
_PASSES_PACKED = (0, 6, 2)

#: The values of `on_error`.
OnError = Literal["raise", "status"]


def call(
    target: Target,
    *arrays: ArrayLike,
    result_shape_dtypes: Any = None,
    vmap_method: VmapMethod = "loop",
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    on_error: OnError = "raise",
    deadline: float | None = None,
    threads: int | None = None,
    promote: bool = False,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> Any:
    """Calls a target on arrays, inside or outside of `jax.jit`.

    Inside it can be differentiated if the module declares derivatives of the target.
    The whole call site is checked while JAX traces it, before any guest code runs.

    Args:
        target: A module's target, such as ``module.add_n``.
        *arrays: The operands, with the dtypes and ranks that the target declares. A Python number
            takes the declared dtype of its kind, if there is exactly one. Operands may be passed by
            the names that the target declares. A pytree of arrays stands for its leaves.
        result_shape_dtypes: The shape and dtype of the result, or a sequence or another pytree of
            them: objects with ``shape`` and ``dtype``, or pairs ``(dtype, shape)``. Default: the
            target's metadata infers them from the operands. 64-bit dtypes are taken as they are, as
            in `jax.ffi.ffi_call`. On a mesh with explicit axes the result is sharded as this object
            is. By default it is sharded over those dimensions over which the call is cut.
        vmap_method: The effect of `jax.vmap`. ``"loop"``: one call by XLA for the whole batch, in
            which the host calls the target for each element; correct for every target. A target of
            the trait ``batched`` gets the whole batch in one call, unless an operand without the
            dimension ``batch`` is mapped, too.
            ``"sequential"``, ``"sequential_unrolled"``, None: as in `jax.ffi.ffi_call`.
        input_output_aliases: ``{operand: result}``: which results take the memory of which
            operands. XLA copies an operand that is not donated.
        has_side_effect: Whether the call is made even if its results are not used.
        on_error: ``"raise"``: a failed call fails the program. ``"status"``: the call never fails,
            and has one more result, an int32 of shape ``()``: 0, or the status code. The results of
            a failed call are filled with bytes of 0xFF, which is NaN for floating point. Use it in
            programs with collectives, because XLA ends the process if one of several shards fails
            before a collective. See `check`. Under `jax.vmap` each element has the status of its
            call: where a target of the trait ``batched`` gets the whole batch in one call, all
            elements have the same.
        deadline: The time limit of XLA's call in seconds. Under `jax.vmap` it covers all elements
            of the batch together: the elements that remain when it has passed fail with
            DEADLINE_EXCEEDED. It replaces the policy's limit, which is for each element, and may be
            longer. Default: the policy's.
        threads: The most threads that share a large call, of a batch under `jax.vmap` if the target
            is pure, and of one call if the target is elementwise or has rows. Default: the policy's
            limit, which a greater number does not raise.
        promote: Whether operands are converted as by functions of `jax.numpy`: to a declared dtype
            that their common one is promoted to (never from float64 to float32, say), and, for an
            elementwise target, to their common shape.
        opaque: Bytes for targets of the conventions that have them.
        static_info: Static information for targets of the JAX FFI proposal's convention.
        api_version: The calling convention, such as ``"API_VERSION_TYPED_FFI"``, for targets that
            have several.
        attributes: Attributes whose names are those of other arguments.
        **attrs: Attributes by name: numbers, strings, NumPy arrays or dictionaries. They are part
            of the program and cannot be traced, except for those that the target declares as
            optional operands of rank 0, too.

    Returns:
        One array if `result_shape_dtypes` is one; a pytree if it is one; by default one array, or a
        tuple if there are several results. With ``on_error="status"`` always a tuple of the results
        and the status.

    Raises:
        TypeError: Wrong number or dtypes of operands; an operand that is not an array; attributes
            that are missing, undeclared, traced or of a wrong type; results without a shape and a
            dtype; aliases that are not a mapping of integers.
        ValueError: Wrong ranks or dimensions; results that cannot be inferred or that disagree with
            the metadata; an unknown option.
    """
    options = Options(
        vmap_method=vmap_method,
        input_output_aliases=checked_aliases(input_output_aliases),
        has_side_effect=has_side_effect,
        on_error=on_error,
        deadline=deadline,
        threads=threads,
        promote=promote,
        opaque=opaque,
        static_info=static_info,
        api_version=api_version,
    )
    target = as_target(target)
    check_target(target, "target")
    if attrs:
        arrays = with_named(target, arrays, attrs)
    arrays, _ = flattened(arrays)
    if attrs:
        arrays = with_traced(target, arrays, attrs)
    key = None if attributes or not _eager.is_constant(result_shape_dtypes) else _eager.frozen(attrs)
    if key is not None and _eager.are_concrete(arrays):
        return eager_call(target, result_shape_dtypes, key, options)(*arrays)
    named = merged(target, attributes, attrs)
    operands = _axes.agreed(as_operands(target, arrays, promote=promote))
    results = Results.of(target, operands, result_shape_dtypes)
    # That module imports this one.
    from ._rules import declared, with_rules

    flat_call = with_rules(target, *declared(target, options))
    return results.packed(flat_call(operands, results, named, options, None), options)


def traced(target: Target, arrays: Sequence[Any], options: Mapping[str, Any] | None) -> Any:
    """A direct call of a target on traced arrays, which becomes part of the program.

    Raises:
        TypeError: An option is only for calls outside of programs.
    """
    given = {name: value for name, value in (options or {}).items() if not (name == "out" and value is None)}
    for name in ("out", "platform"):
        if name in given:
            raise TypeError(
                f"{target.name}(): {name}= is for calls outside of jax.jit and other transformations: "
                "remove it, or use callbox.jax.op, which has input_output_aliases="
            )
    return call(target, *arrays, **given)


@_eager.kept
def eager_call(
    target: Target, result_shape_dtypes: Any, attributes: tuple[Any, ...], options: Options
) -> Callable[..., Any]:
    """The program of a call on concrete arrays, which nothing differentiates."""
    named = _eager.thawed(attributes)

    def function(*arrays: jax.Array) -> Any:
        operands = _axes.agreed(as_operands(target, arrays, promote=options.promote))
        results = Results.of(target, operands, result_shape_dtypes)
        return results.packed(bind(target, operands, results, named, options), options)

    return _eager.program(target.name, function)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a call site."""

    vmap_method: str | None = "loop"
    #: Pairs of an operand and a result.
    input_output_aliases: tuple[tuple[int, int], ...] = ()
    has_side_effect: bool = False
    on_error: str = "raise"
    deadline: float | None = None
    threads: int | None = None
    promote: bool = False
    opaque: bytes | None = None
    static_info: bytes | StaticInfo | None = None
    api_version: str | None = None
    #: The call that this one is a derivative of.
    derivative: _partitioning.Derivative | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "status"):
            raise ValueError(f"expected on_error to be 'raise' or 'status', found {self.on_error!r}")
        if self.vmap_method in ("expand_dims", "broadcast_all"):
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}: "
                "it hands the whole batch to the target, which computes something else then unless it is written for batches. "
                "A target that is declares the trait batched, and then gets the whole batch with the method 'loop'"
            )
        if self.vmap_method not in _VMAP_METHODS:
            raise ValueError(
                f"expected a vmap_method of 'loop', 'sequential', 'sequential_unrolled' or None, found {self.vmap_method!r}"
            )

    @property
    def has_status(self) -> bool:
        return self.on_error == "status"

    def ffi_vmap_method(self, target: Target) -> str | None:
        """The method by which `jax.ffi.ffi_call` passes a batch to the handler.

        With ``"expand_dims"`` an operand that is the same for the whole batch keeps its size. That
        is impossible for an operand that shares memory with a result, which has the batch, and
        keeps a target that takes batches from getting the whole one.
        """
        if self.vmap_method != "loop":
            return self.vmap_method
        takes_batch = "batched" in target.traits and all(map(has_batch, target.operands or ()))
        return "broadcast_all" if self.input_output_aliases or takes_batch else "expand_dims"

    def without_memory(self) -> Options:
        """The options for another target of the same program, which has other operands."""
        return dataclasses.replace(
            self, input_output_aliases=(), opaque=None, static_info=None, api_version=None, derivative=None
        )


@dataclasses.dataclass(frozen=True)
class Results:
    """The types of a call's results without the status, and the container of the arrays."""

    types: tuple[jax.ShapeDtypeStruct, ...]
    container: Callable[[Sequence[Any]], Any]
    #: The requested shardings over explicit mesh axes, each None for a result that is not sharded.
    #: None: they follow from the declaration of the target.
    shardings: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, target: Target, operands: Sequence[jax.Array], given: Any) -> Results:
        """The given results, or the inferred ones.

        Raises:
            TypeError: A given result has no shape and dtype.
            ValueError: The metadata does not determine the results.
        """
        if given is None:
            sizes = Sizes(target, operands)
            with sizes.in_messages():
                inferred = target.infer([sizes.of(x) for x in operands])
            shapes = sizes.results([shape for _, shape in inferred])
            types = tuple(array_type(shape, jnp.dtype(name)) for shape, (name, _) in zip(shapes, inferred, strict=True))
            return cls(types, only if len(types) == 1 else tuple)
        if isinstance(given, Sequence) and not isinstance(given, (str, tuple, list)):
            given = list(given)
        wanted, structure = jax.tree.flatten(given, is_leaf=None if _is_empty(given) else _is_result)
        types = tuple(_type_of(target, result, i) for i, result in enumerate(wanted))
        return cls(types, structure.unflatten, tuple(map(_axes.explicit_sharding, wanted)))

    def packed(self, arrays: Sequence[jax.Array], options: Options) -> Any:
        """The arrays as the caller gets them, with the status if there is one."""
        return tuple(arrays) if options.has_status else self.container(arrays)


def bind(
    target: Target,
    operands: Sequence[jax.Array],
    results: Results,
    attributes: Mapping[str, Any],
    options: Options,
) -> tuple[jax.Array, ...]:
    """Adds the call to the program that is being traced, or makes it now.

    The operands must vary over the same manual axes. A status comes last.
    """
    operands = as_arrays(operands)
    _check_packed(target, (*operands, *results.types))
    sizes = Sizes(target, operands)
    with sizes.in_messages():
        given = target.xla_attributes(
            [sizes.of(x) for x in operands],
            [sizes.of(x) for x in results.types],
            dict(attributes),
            on_error=options.on_error,
            deadline=options.deadline,
            threads=options.threads,
            aliases=dict(options.input_output_aliases),
            opaque=options.opaque,
            static_info=options.static_info,
            api_version=options.api_version,
        )
    if _is_partitionable(target, operands, results, options):
        ffi_target = _ffi_target(target)
        flat = _partitioning.call(target, ffi_target, given, operands, results.types, options.derivative)
        return tuple(map(_axes.sharded, flat, results.shardings) if results.shardings else flat)
    types = list(results.types)
    if options.has_status:
        types.append(array_type((), np.int32))
    function = jax.ffi.ffi_call(
        _ffi_target(target),
        types,
        has_side_effect=options.has_side_effect,
        vmap_method=options.ffi_vmap_method(target),
        input_output_aliases=dict(options.input_output_aliases) or None,
    )
    with jax.named_scope(target.name):
        flat = function(*operands, **given)
    shardings = results.shardings
    if shardings is None:
        common = _axes.common_sharding(operands) if "elementwise" in target.traits else None
        shardings = (common,) * len(results.types)
    # The status has no requested sharding.
    placed = [_axes.sharded(x, s) for x, s in itertools.zip_longest(flat, shardings)]
    return _axes.varying(placed, _axes.all_axes(operands))


def _check_packed(target: Target, arrays: Sequence[Any]) -> None:
    """Checks that this version of JAX passes the arrays.

    Raises:
        TypeError: One has elements of less than a byte, and the version is too old.
    """
    packed = next((x.dtype.name for x in arrays if x.dtype.name in _PACKED), None)
    if packed is not None and jax.__version_info__ < _PASSES_PACKED:
        oldest = ".".join(map(str, _PASSES_PACKED))
        raise TypeError(
            f"{target.name}(): arrays of {packed} need JAX {oldest} or newer, found {jax.__version__}, "
            "which does not pass their type to a call"
        )


def _is_partitionable(target: Target, operands: Sequence[jax.Array], results: Results, options: Options) -> bool:
    """Returns whether XLA may cut the call into shards, and whether it could have a reason to."""
    options_are_plain = (
        options.vmap_method == "loop"
        and not options.input_output_aliases
        and not options.has_side_effect
        and not options.has_status
    )
    return (
        options_are_plain
        and "pure" in target.traits
        and jax.device_count() > 1
        and not _axes.all_axes(operands)
        and (
            is_traced(operands) if _axes.explicit_mesh(operands) is None else _axes.are_cut(operands, results.shardings)
        )
        and all(isinstance(size, int) for x in (*operands, *results.types) for size in x.shape)
    )


def _ffi_target(target: Target) -> str:
    """The name by which XLA calls the target.

    On a GPU kernels that can be part of a CUDA graph have another handler than the others.
    """
    is_recordable = "command_buffer_compatible" in target.native_traits
    return FFI_TARGET_COMMAND_BUFFER if is_recordable else FFI_TARGET


def checked_aliases(given: Any) -> tuple[tuple[int, int], ...]:
    """Checks the aliases of a call.

    Raises:
        TypeError: They are not a mapping of integers to integers.
        ValueError: One of the integers is negative.
    """
    wrong = f"expected input_output_aliases to be a mapping of operands' numbers to results' numbers, found {given!r}"
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(wrong)
    numbers = [*given.keys(), *given.values()]
    if not all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in numbers):
        raise TypeError(wrong)
    if any(x < 0 for x in numbers):
        raise ValueError(wrong)
    return tuple((int(operand), int(result)) for operand, result in given.items())


def as_target(value: Any) -> Any:
    """The target of a jitted function, and any other value itself."""
    return getattr(value, "__callbox_target__", value)


def check_target(value: Any, name: str) -> None:
    """Checks that an argument is a target.

    Raises:
        TypeError: The argument is not a target.
    """
    if not isinstance(value, Target):
        raise TypeError(
            f"expected {name} to be a target of a module, such as module.add_n, found {type(value).__name__}"
        )


def merged(target: Target, attributes: Mapping[str, Any] | None, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the attributes of a call.

    Raises:
        TypeError: An attribute is given twice, or its value is not known while the program is
            traced.
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
    # A dtype such as numpy.float32 has attributes with these names.
    if isinstance(result, type) or not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise TypeError(
            f"target {target.name!r}: expected result {position} to be something with a shape and a dtype, such as "
            f"jax.ShapeDtypeStruct, or a pair (dtype, shape), found {result!r}"
        )
    return array_type(result.shape, result.dtype)


def _is_empty(given: Any) -> bool:
    return isinstance(given, (tuple, list)) and not given


def _is_result(given: Any) -> bool:
    # An empty tuple in a tuple is a mistake, and has no leaves.
    is_type = hasattr(given, "shape") and hasattr(given, "dtype")
    return given is None or _is_empty(given) or is_type or is_pair(given)


def is_pair(given: Any) -> bool:
    """Returns whether this is one result's ``(dtype, shape)``, not a sequence of two results."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    dtype, shape = given
    if not isinstance(dtype, (str, type, np.dtype)) or not isinstance(shape, (tuple, list)):
        return False
    return all(isinstance(size, (int, np.integer)) for size in shape)


def array_type(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """The type of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]  # JAX has not annotated it


def only(arrays: Sequence[Any]) -> Any:
    return arrays[0]
