"""Calls that XLA partitions: each device computes its shard of a sharded call.

The dimensions over which a call can be cut follow from the declaration of the target: all of an
elementwise target, the rows of a target of the trait `rows`, the dimension `batch` of a target of
the trait `batched`, and the batch of any pure target. XLA gathers the others. A declared derivative
is cut like the call that it differentiates: the cotangent of an operand that all rows share is the
sum of those that the shards compute.

The rule is given to both partitioners, GSPMD and Shardy, by
`jax.experimental.custom_partitioning`, which has no rule for `jax.vmap` and cannot be exported for
several devices. Therefore a call is a primitive of its own, and its lowering decides.

Partitioners do not see the explicit axes of a mesh. A call over them is in a region where all axes
are automatic, and the types of its results follow from the rule and the types of the operands.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import SdyShardingRule, custom_partitioning
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from callbox._callbox import Target

from . import _axes
from ._operands import has_batch

#: For each dimension of an array, the name that it shares with those that are cut alike. None: it
#: cannot be cut.
Factors = tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class Derivative:
    """How the arrays of a derivative correspond to those of the call that it differentiates."""

    target: Target
    #: For each operand of the derivative, whether it is like a result, and that array's position.
    operands: tuple[tuple[bool, int], ...]
    #: The same for its results.
    results: tuple[tuple[bool, int], ...]

    def is_cut_alike(self, target: Target) -> bool:
        """Returns whether `target` is a derivative that the module declares for a cut target."""
        own = self.target
        return target in (own.vjp, own.jvp) and not _CUT.isdisjoint(own.traits) and _CUT.isdisjoint(target.traits)

    def factors(self, places: Sequence[tuple[bool, int]], ranks: Sequence[int]) -> tuple[Factors, ...]:
        """The factors of arrays of these ranks, as the declaration of the target has them."""
        pairs = zip(places, ranks, strict=True)
        declared = (self.target.operands, self.target.results)
        return tuple(_factors_of(self.target, _at(declared[is_result], i), rank) for (is_result, i), rank in pairs)


#: Traits of targets that are cut over dimensions of their own.
_CUT = frozenset(("elementwise", "rows"))


@dataclasses.dataclass(frozen=True)
class Site:
    """A call without a batch."""

    name: str
    ffi_target: str
    #: The attributes of the FFI call.
    attributes: tuple[tuple[str, str], ...]
    #: The shapes and dtypes of the results.
    results: tuple[tuple[tuple[int, ...], Any], ...]
    operand_factors: tuple[Factors, ...]
    result_factors: tuple[Factors, ...]
    #: For each operand, whether it must have the whole batch of `jax.vmap`.
    takes_batch: tuple[bool, ...]
    #: Whether a result without a factor is the sum of what the shards over it compute.
    has_sums: bool


def call(
    target: Target,
    ffi_target: str,
    attributes: Mapping[str, str],
    operands: Sequence[jax.Array],
    types: Sequence[jax.ShapeDtypeStruct],
    derivative: Derivative | None,
) -> list[jax.Array]:
    """Adds a call of a pure target to a program.

    Over the explicit axes of a mesh each result is sharded as the rule has it for the operands.
    """
    ranks = [x.ndim for x in operands], [len(x.shape) for x in types]
    has_sums = derivative is not None and derivative.is_cut_alike(target)
    if derivative is not None and has_sums:
        factors = derivative.factors(derivative.operands, ranks[0]), derivative.factors(derivative.results, ranks[1])
    else:
        factors = _factors(target, target.operands, ranks[0]), _factors(target, target.results, ranks[1])
    site = Site(
        target.name,
        ffi_target,
        tuple(sorted(attributes.items())),
        tuple((tuple(x.shape), x.dtype) for x in types),
        *factors,
        tuple("batched" in target.traits and has_batch(x) for x in target.operands or ()),
        has_sums,
    )
    if mesh := _axes.explicit_mesh(operands):
        rule = _Rule.of(site, (), [x.shape for x in operands])
        axes = rule.axes(zip(rule.operands, map(jax.typeof, operands), strict=True))
        shardings = rule.shardings(rule.results, axes, mesh)
        return _axes.in_auto_mode(lambda *operands: tuple(_bind(site, (), operands)), operands, shardings)
    return _bind(site, (), operands)


def _bind(site: Site, batch: tuple[int, ...], operands: Sequence[jax.Array]) -> list[jax.Array]:
    types = tuple((tuple(x.shape), x.dtype) for x in operands)
    partitioned = _traced(site, batch, types, bool(jax.config.jax_use_shardy_partitioner))  # type: ignore[attr-defined]
    found: list[jax.Array] = _primitive.bind(*operands, site=site, batch=batch, partitioned=partitioned)
    return found


@functools.lru_cache(maxsize=1024)
def _traced(
    site: Site, batch: tuple[int, ...], operands: tuple[tuple[tuple[int, ...], Any], ...], _is_shardy: bool
) -> Any:
    """The call as `custom_partitioning` has it, which depends on the partitioner.

    JAX looks for that in a program to tell the lowering the devices.
    """
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in operands]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(functools.partial(_partitioned, site, batch))(*types)


def _factors(target: Target, declared: Any, ranks: Sequence[int]) -> tuple[Factors, ...]:
    """The factors of all operands or all results, from their declaration and their ranks."""
    return tuple(_factors_of(target, _at(declared, i), rank) for i, rank in enumerate(ranks))


def _at(declared: Any, position: int) -> Any:
    return declared[position] if declared is not None and position < len(declared) else None


def _factors_of(target: Target, buffer: Any, rank: int) -> Factors:
    """The factors of an array that the target declares as this buffer. None: it does not."""
    traits = target.traits
    dimensions = () if buffer is None else buffer.dimensions or ()
    if buffer is not None and "elementwise" in traits:
        free = rank
    elif "rows" in traits and dimensions[:1] == ("..",):
        free = rank - (len(dimensions) - 1)
    elif buffer is not None and "batched" in traits and has_batch(buffer):
        free = 1
    else:
        free = 0
    return (*(f"d{i}" for i in range(free)), *(None,) * (rank - free))


def _ffi_call(site: Site, shapes: Sequence[tuple[int, ...]], operands: Sequence[Any]) -> tuple[jax.Array, ...]:
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, (_, dtype) in zip(shapes, site.results, strict=True)]  # type: ignore[no-untyped-call]
    with jax.named_scope(site.name):
        return tuple(jax.ffi.ffi_call(site.ffi_target, types)(*operands, **dict(site.attributes)))


def _plain(site: Site, batch: tuple[int, ...], *operands: Any) -> tuple[jax.Array, ...]:
    return _ffi_call(site, _shapes(site, batch), operands)


def _shapes(site: Site, batch: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [(*batch, *shape) for shape, _ in site.results]


def _partitioned(site: Site, batch: tuple[int, ...], *operands: Any) -> tuple[jax.Array, ...]:
    rule = _Rule.of(site, batch, [x.shape for x in operands])

    def function(*operands: Any) -> tuple[jax.Array, ...]:
        return _plain(site, batch, *operands)

    def infer(mesh: Any, operands: Any, _results: Any) -> Any:
        axes = rule.axes(zip(rule.operands, operands, strict=True))
        return rule.shardings(rule.results, axes, _mesh_of(operands, mesh))

    def partition(mesh: Any, operands: Any, results: Any) -> Any:
        mesh = _mesh_of((*operands, *results), mesh)
        # What the program wants of the results comes first.
        known = (*zip(rule.results, results, strict=True), *zip(rule.operands, operands, strict=True))
        axes = rule.axes(known)
        given = rule.shardings(rule.operands, axes, mesh)
        wanted = rule.shardings(rule.results, axes, mesh)
        shapes = [s.shard_shape(x.shape) for s, x in zip(wanted, results, strict=True)]

        def shard(*operands: Any) -> tuple[jax.Array, ...]:
            found = _ffi_call(site, shapes, operands)
            return tuple(map(rule.summed, found, rule.results, itertools.repeat(axes))) if site.has_sums else found

        return mesh, shard, wanted, given

    call = custom_partitioning(function)
    call.def_partition(partition=partition, infer_sharding_from_operands=infer, sharding_rule=rule.of_shardy())
    found: tuple[jax.Array, ...] = call(*operands)
    return found


def _mesh_of(arrays: Any, mesh: Any) -> Any:
    """The mesh of a call's arrays, or else that of the program.

    JAX may know neither: if all arrays are constants of the program, or, with GSPMD, if those that
    the call depends on have no sharding. Then it is all devices in a row, over which nothing is
    cut.
    """
    shardings = [array.sharding for array in arrays if array.sharding is not None]
    named = next((sharding for sharding in shardings if isinstance(sharding, NamedSharding)), None)
    if named is not None:
        return named.mesh
    if shardings:
        devices = sorted(shardings[0].device_set, key=lambda device: device.id)
    elif mesh is not None and not mesh.empty:
        return mesh
    else:
        devices = jax.devices()
    return Mesh(np.array(devices), ("devices",))


@dataclasses.dataclass(frozen=True)
class _Rule:
    """The factors of all dimensions, with those of the batch."""

    operands: tuple[Factors, ...]
    results: tuple[Factors, ...]
    #: Those of the operands. A result can have one that only an operand that was left out has.
    sizes: dict[str, int]

    @classmethod
    def of(cls, site: Site, batch: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> _Rule:
        sizes = {f"b{i}": size for i, size in enumerate(batch)}
        operands = []
        for factors, shape in zip(site.operand_factors, shapes, strict=True):
            # An operand that is the same for the whole batch has the size 1.
            own = (f"b{i}" if shape[i] == size else None for i, size in enumerate(batch))
            operands.append((*own, *factors))
            sizes.update({f: size for f, size in zip(factors, shape[len(batch) :], strict=True) if f})
        return cls(tuple(operands), tuple((*list(sizes)[: len(batch)], *f) for f in site.result_factors), sizes)

    def axes(self, known: Any) -> dict[str, tuple[str, ...]]:
        """The mesh axes that cut each factor: those of the first array that is sharded over it."""
        axes: dict[str, tuple[str, ...]] = {}
        for factors, array in known:
            sharding = array.sharding
            if not isinstance(sharding, NamedSharding):
                continue
            for factor, names in itertools.zip_longest(factors, sharding.spec):
                names = (names,) if isinstance(names, str) else tuple(names or ())
                taken = set().union(*axes.values())
                count = math.prod(sharding.mesh.shape[name] for name in names)
                # XLA would pad shards of different sizes, and the target would get the padding.
                is_even = factor in self.sizes and self.sizes[factor] % count == 0
                if names and is_even and factor not in axes and not taken & set(names):
                    axes[factor] = names
        return axes

    def shardings(self, wanted: Sequence[Factors], axes: Mapping[str, tuple[str, ...]], mesh: Any) -> Any:
        specs = (PartitionSpec(*(axes.get(f) if f else None for f in factors)) for factors in wanted)
        return tuple(NamedSharding(mesh, spec) for spec in specs)

    @staticmethod
    def summed(x: jax.Array, factors: Factors, axes: Mapping[str, tuple[str, ...]]) -> jax.Array:
        """Adds the shards of a result over the mesh axes that cut the call and not the result."""
        names = tuple(name for factor, names in axes.items() if factor not in factors for name in names)
        return jax.lax.psum(x, names) if names else x  # type: ignore[no-untyped-call]

    def of_shardy(self) -> SdyShardingRule:
        """The same as a rule of Shardy. Dimensions that cannot be cut have factors of their own."""
        whole: list[str] = []

        def named(factors: Factors) -> tuple[str, ...]:
            names = []
            for factor in factors:
                if factor is None:
                    whole.append(f"w{len(whole)}")
                names.append(factor or whole[-1])
            return tuple(names)

        operands, results = tuple(map(named, self.operands)), tuple(map(named, self.results))
        options: dict[str, Any] = {}
        if _KNOWS_REPLICATION and whole:
            options["need_replication_factors"] = tuple(whole)
        return SdyShardingRule(operands, results, **options)  # type: ignore[arg-type]  # it converts names


_KNOWS_REPLICATION = "need_replication_factors" in inspect.signature(SdyShardingRule.__init__).parameters


def _lower(ctx: Any, *values: Any, site: Site, batch: tuple[int, ...], partitioned: Any) -> Any:
    # Programs on one device and those within `jax.shard_map` have no devices.
    devices = getattr(ctx.module_context.axis_context, "device_assignment", None)
    # An exported program cannot ask this process how to cut the call.
    is_exported = ctx.module_context.lowering_parameters.for_export
    if devices is None or len(devices) == 1 or is_exported:
        function: Callable[..., Any] = functools.partial(_plain, site, batch)
    else:
        function = jaxpr_as_fun(partitioned)
    return mlir.lower_fun(function, multiple_results=True)(ctx, *values)


def _batched(operands: Any, dims: Any, *, site: Site, batch: tuple[int, ...], **_: Any) -> Any:
    pairs = list(zip(operands, dims, strict=True))
    size = next(x.shape[dim] for x, dim in pairs if dim is not None)
    moved = [x[None] if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs]
    for i, takes_batch in enumerate(site.takes_batch):
        if takes_batch and i < len(moved):
            moved[i] = jnp.broadcast_to(moved[i], (size, *moved[i].shape[1:]))
    found = _bind(site, (size, *batch), moved)
    return found, [0] * len(found)


@functools.lru_cache(maxsize=1024)
def _program(site: Site, batch: tuple[int, ...]) -> Callable[..., Any]:
    return jax.jit(lambda *operands: _bind(site, batch, operands))


def _types(*_operands: Any, site: Site, batch: tuple[int, ...], **_: Any) -> list[Any]:
    shapes = zip(_shapes(site, batch), site.results, strict=True)
    return [jax.core.ShapedArray(shape, dtype) for shape, (_, dtype) in shapes]


_primitive = Primitive("callbox")
_primitive.multiple_results = True
_primitive.def_impl(lambda *operands, site, batch, **_: _program(site, batch)(*operands))
_primitive.def_abstract_eval(_types)
batching.primitive_batchers[_primitive] = _batched
mlir.register_lowering(_primitive, _lower)
