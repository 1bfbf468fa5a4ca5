"""One call of a target, with the arguments of `jax.ffi.ffi_call`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from callbox._callbox import StaticInfo, Target

from . import _axes, _eager
from ._bind import bind
from ._operands import as_operands, flattened, with_named, with_traced
from ._options import OnError, Options, VmapMethod, checked_aliases
from ._results import Results
from ._rules import declared, with_rules

# The depth to which dictionaries of attributes may nest.
_MAX_DEPTH = 64


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
            DEADLINE_EXCEEDED. It replaces the policy's limit, and may be longer. Default: the
            policy's.
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
        ValueError: Dictionaries nest too deep.
    """
    both = sorted(set(attributes or ()) & set(attrs))
    if both:
        raise TypeError(f"target {target.name!r}: expected each attribute once, found {both[0]!r} twice")
    everything = {**(attributes or {}), **attrs}
    known: _Known = {}
    return {name: _static(target, name, value, known) for name, value in everything.items()}


# The mappings that were read and the dictionaries made of them, by the mappings' identities.
_Known = dict[int, tuple[Mapping[str, Any], dict[str, Any]]]


def _static(target: Target, path: str, value: Any, known: _Known, depth: int = _MAX_DEPTH) -> Any:
    """An attribute as Python's values. A mapping that is the value of many fields is read once."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"target {target.name!r}: expected a value for the attribute {path!r} that is known when the program is traced, found {value}: "
            "attributes are part of the program (jax.jit has static_argnames for them)"
        )
    if isinstance(value, jax.Array):
        return np.asarray(value)
    if not isinstance(value, Mapping):
        return value
    if not depth:
        raise ValueError(
            f"target {target.name!r}: attribute {path.partition('.')[0]!r}: expected dictionaries that nest at most {_MAX_DEPTH} deep, found more"
        )
    if id(value) not in known:
        read = {name: _static(target, f"{path}.{name}", inner, known, depth - 1) for name, inner in value.items()}
        known[id(value)] = (value, read)
    return known[id(value)][1]
