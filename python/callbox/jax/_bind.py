"""Adds calls to the program that JAX traces."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from callbox._callbox import FFI_TARGET, FFI_TARGET_COMMAND_BUFFER, Target

from . import _axes, _partitioning
from ._derivatives import as_arrays, is_traced
from ._options import Options
from ._results import Results, array_type
from ._symbolic import Sizes

#: The dtypes whose elements XLA packs, and the first version of JAX that passes them to a call.
_PACKED = frozenset(("int4", "uint4", "int2", "uint2", "float4_e2m1fn"))
_PASSES_PACKED = (0, 6, 2)


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
            declared=results.are_unchecked,
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
        parts = _partitioning.call(target, ffi_target, given, operands, results.types, options.derivative)
        return tuple(map(_axes.sharded, parts, results.shardings) if results.shardings else parts)
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
    arrays: list[Any] = [*operands, *results.types]
    return (
        options_are_plain
        and "pure" in target.traits
        and jax.device_count() > 1
        and not _axes.all_axes(operands)
        and (
            is_traced(operands) if _axes.explicit_mesh(operands) is None else _axes.are_cut(operands, results.shardings)
        )
        and all(isinstance(size, int) for x in arrays for size in x.shape)
    )


def _ffi_target(target: Target) -> str:
    """The name by which XLA calls the target.

    On a GPU kernels that can be part of a CUDA graph have another handler than the others.
    """
    is_recordable = "command_buffer_compatible" in target.native_traits
    return FFI_TARGET_COMMAND_BUFFER if is_recordable else FFI_TARGET
