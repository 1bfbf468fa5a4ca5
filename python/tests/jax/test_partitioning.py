"""Calls that XLA partitions under plain `jax.jit`, beside `jax.shard_map`."""

from __future__ import annotations

import contextlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox
import callbox.jax

P = PartitionSpec

#: The instructions by which XLA moves data between devices.
COLLECTIVES = re.compile(r"\b(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\b")

X = np.random.default_rng(0).standard_normal((8, 6, 16), np.float32)
WEIGHT = np.linspace(1, 2, 16, dtype=np.float32)
EPS = 0.5


def norm_reference(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("i", "j"))


@pytest.fixture(params=["gspmd", "shardy"])
def partitioner(request):
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param == "shardy")
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.fixture
def norm(load):
    rms_norm = callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad)
    return lambda x, weight: rms_norm(x, weight, eps=EPS)


def put(mesh: Mesh, x: np.ndarray, *spec) -> jax.Array:
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def spec_of(x: jax.Array) -> tuple:
    spec = tuple(x.sharding.spec)
    return (*spec, *(None,) * (x.ndim - len(spec)))


def check(function, operands, expected, spec, *, moves=()):
    """Compares values, the result's sharding, and the collectives of the compiled program."""
    program = jax.jit(function)
    y = program(*operands)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    assert spec_of(y) == spec
    text = program.lower(*operands).compile().as_text()
    assert callbox.FFI_TARGET in text
    assert set(COLLECTIVES.findall(text)) == set(moves)


@pytest.mark.usefixtures("partitioner")
class TestPartitionedCalls:
    @pytest.mark.parametrize("spec", [("i", None, None), (None, "j", None), ("j", "i", None), (("i", "j"), None, None)])
    def test_rows_are_cut(self, norm, mesh, spec):
        check(norm, (put(mesh, X, *spec), WEIGHT), norm_reference(X, WEIGHT), spec)

    def test_the_elements_of_a_row_are_gathered(self, norm, mesh):
        operands = put(mesh, X, "i", None, "j"), put(mesh, WEIGHT, "j")
        check(norm, operands, norm_reference(X, WEIGHT), ("i", None, None), moves=["all-gather"])

    def test_elementwise_targets_are_cut_everywhere(self, load, mesh):
        add_n = callbox.jax.op(load("add_n").add_n)
        spec = ("i", None, "j")
        check(lambda x: 2 * add_n(add_n(x, n=1.0), n=2.0), (put(mesh, X, *spec),), 2 * (X + 3), spec)

    @pytest.mark.parametrize(
        "operand",
        [lambda x: x, lambda x: 2 * x / 2, lambda _: jnp.array(X)],
        ids=["a parameter", "computed", "a constant"],
    )
    def test_operands_without_a_sharding(self, load, mesh, operand):
        """With GSPMD, that ended the process."""
        add_n = callbox.jax.op(load("add_n").add_n)
        y = jax.jit(lambda x, z: add_n(operand(x), n=1.0) + z)(X, put(mesh, X, "i"))
        np.testing.assert_allclose(y, X + 1 + X, atol=1e-5)

    def test_an_operand_that_is_left_out_has_no_dimension_to_cut(self, assemble, mesh):
        weight = {"name": "weight", "element_types": ["f32"], "dimensions": ["n"]}
        x = {"name": "x", "element_types": ["f32"], "dimensions": ["..", "n"], "optional": True}
        y = {"name": "y", "element_types": ["f32"], "dimensions": ["..", "n"]}
        declared = {"name": "f", "operands": [weight, x], "results": [y], "traits": ["rows"]}
        module = callbox.Host().load(assemble({"f": b"\x41\x00"}, [declared]))
        like = jax.ShapeDtypeStruct(X.shape, np.float32)
        call = jax.jit(lambda weight, z: callbox.jax.call(module.f, weight, result_shape_dtypes=like) * 0 + z)
        np.testing.assert_array_equal(call(WEIGHT, put(mesh, X, "i")), X)

    def test_batches_are_cut(self, norm, mesh):
        operands = put(mesh, X, "i", "j"), WEIGHT
        of_batch = jax.vmap(norm, in_axes=(0, None))
        check(of_batch, operands, norm_reference(X, WEIGHT), ("i", "j", None))
        nested = jax.vmap(jax.vmap(norm, in_axes=(0, None)), in_axes=(1, None), out_axes=1)
        check(nested, operands, norm_reference(X, WEIGHT), ("i", "j", None))

    def test_batches_of_a_target_that_is_only_pure_are_cut(self, norm, mesh):
        def loss(norm):
            return lambda x, weight: jnp.sum(norm(x, weight) ** 2)

        def reference(x, weight):
            return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * weight

        expected = jax.grad(loss(reference))(X, WEIGHT)
        gradient = jax.vmap(jax.grad(loss(norm)), in_axes=(0, None))
        check(gradient, (put(mesh, X, "i"), WEIGHT), expected, ("i", None, None))
        # The gradient's results include one for the weight, which no row has alone.
        whole = jax.jit(jax.grad(loss(norm)))(put(mesh, X, "i"), WEIGHT)
        np.testing.assert_allclose(whole, expected, atol=1e-5)

    @pytest.mark.parametrize("spec", [("i", None, None), ("j", "i", None), (("i", "j"), None, None)])
    def test_gradients_of_weights_are_sums_of_the_shards(self, norm, mesh, spec):
        def loss(norm):
            return lambda x, weight: jnp.sum(jnp.tanh(norm(x, weight)))

        def reference(x, weight):
            return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * weight

        program = jax.jit(jax.grad(loss(norm), argnums=(0, 1)))
        operands = put(mesh, X, *spec), put(mesh, WEIGHT)
        found, expected = program(*operands), jax.grad(loss(reference), argnums=(0, 1))(X, WEIGHT)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)
        assert (spec_of(found[0]), spec_of(found[1])) == (spec, (None,))
        text = program.lower(*operands).compile().as_text()
        assert set(COLLECTIVES.findall(text)) == {"all-reduce"}

    def test_rules_that_are_not_declared_get_all_rows(self, load, mesh, guests):
        """A kernel as `vjp=` may be no derivative, so that its shards are not added."""
        other = callbox.Host(policy={"limits": {"deadline_ms": 8765}}).load(guests / "rms_norm.wasm")
        op = callbox.jax.op(load("rms_norm").rms_norm, vjp=other.rms_norm_grad)
        program = jax.jit(jax.grad(lambda x: jnp.sum(op(x, WEIGHT, eps=EPS))))
        text = program.lower(put(mesh, X, "i")).compile().as_text()
        assert "all-gather" in text

    def test_loops(self, norm, mesh):
        def program(x, weight):
            return jax.lax.scan(lambda x, _: (norm(x, weight), None), x, None, length=2)[0]

        expected = norm_reference(norm_reference(X, WEIGHT), WEIGHT)
        check(program, (put(mesh, X, "i"), WEIGHT), expected, ("i", None, None))

    def test_shards_of_different_sizes_are_gathered(self, norm, mesh):
        def program(x, weight):
            return norm(jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("i"))), weight)

        y = jax.jit(program)(put(mesh, X[:7]), put(mesh, WEIGHT))
        np.testing.assert_allclose(y, norm_reference(X[:7], WEIGHT), atol=1e-5)

    # In JAX 0.5.0 later programs on the same devices fail, too, whatever they call.
    @pytest.mark.newest
    def test_shards_fail_as_the_whole(self, load, mesh, failure):
        add_n = callbox.jax.op(load("add_n").add_n)
        message = failure(jax.jit(lambda x: add_n(x, n=-1.0)), put(mesh, X, "i"))
        assert message.startswith("INVALID_ARGUMENT: add_n.wasm")

    def test_the_same_as_in_shard_map(self, norm, mesh, shard_map):
        mapped = shard_map(norm, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
        operands = put(mesh, X, "i"), put(mesh, WEIGHT)
        check(mapped, operands, jax.jit(norm)(*operands), ("i", None, None))

    def test_constants(self, norm, mesh):
        """JAX knows no mesh where no operand is an argument of the program."""
        x, weight = put(mesh, X, "i"), put(mesh, WEIGHT)
        np.testing.assert_allclose(jax.jit(lambda: norm(x, weight))(), norm_reference(X, WEIGHT), atol=1e-5)
        batch = jax.jit(lambda: jax.vmap(norm, (0, None))(x, weight))
        np.testing.assert_allclose(batch(), norm_reference(X, WEIGHT), atol=1e-5)

    def test_calls_without_jit(self, norm, mesh):
        for function in (norm, jax.vmap(norm, in_axes=(0, None))):
            y = function(put(mesh, X, "i"), put(mesh, WEIGHT))
            np.testing.assert_allclose(y, norm_reference(X, WEIGHT), atol=1e-5)
            assert spec_of(y) == ("i", None, None)


@pytest.mark.parametrize(
    "options",
    [{"on_error": "status"}, {"vmap_method": "sequential"}, {"input_output_aliases": {0: 0}}],
)
def test_other_calls_get_the_whole_array(load, mesh, options):
    program = jax.jit(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.0, **options))
    y = program(put(mesh, X, "i"))
    y = y[0] if options.get("on_error") else y
    np.testing.assert_allclose(y, X + 1)
    assert spec_of(y) == (None, None, None)


@pytest.mark.newest  # JAX 0.5.0 cannot call programs that were exported with shardings.
def test_exported_programs_of_several_devices(load, mesh):
    from jax import export

    add_n = callbox.jax.op(load("add_n").add_n)
    sharding = NamedSharding(mesh, P("i"))
    program = jax.jit(lambda x: add_n(x, n=1.0), in_shardings=sharding, out_shardings=sharding)
    exported = export.export(program, disabled_checks=callbox.jax.export_checks())(X)
    assert "CustomSPMDPartitioning" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(put(mesh, X, "i")), X + 1)


@pytest.mark.newest  # Explicit axes are newer than JAX 0.5.
@pytest.mark.parametrize("context", [jax.set_mesh if hasattr(jax, "set_mesh") else None, contextlib.nullcontext])
class TestExplicitAxes:
    """The same cuts over the explicit axes of a mesh, which are part of the types."""

    @pytest.fixture
    def explicit(self):
        return jax.make_mesh((2, 2), ("i", "j"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)

    @pytest.mark.parametrize("spec", [("i", None, None), (None, "j", None), ("j", "i", None), (("i", "j"), None, None)])
    def test_rows_are_cut(self, norm, explicit, context, spec):
        with context(explicit):
            x = put(explicit, X, *spec)
            check(norm, (x, WEIGHT), norm_reference(X, WEIGHT), spec)
            for y in (norm(x, WEIGHT), jax.jit(norm)(x, WEIGHT)):
                assert tuple(jax.typeof(y).sharding.spec) == spec

    def test_the_elements_of_a_row_are_gathered(self, norm, explicit, context):
        with context(explicit):
            operands = put(explicit, X, "i", None, "j"), put(explicit, WEIGHT, "j")
            check(norm, operands, norm_reference(X, WEIGHT), ("i", None, None), moves=["all-gather"])

    def test_elementwise_targets_are_cut_everywhere(self, load, explicit, context):
        add_n, spec = callbox.jax.op(load("add_n").add_n), ("i", None, "j")
        with context(explicit):
            check(lambda x: 2 * add_n(add_n(x, n=1.0), n=2.0), (put(explicit, X, *spec),), 2 * (X + 3), spec)

    def test_batches_are_cut(self, norm, explicit, context):
        with context(explicit):
            operands = put(explicit, X, "i", "j"), WEIGHT
            check(jax.vmap(norm, in_axes=(0, None)), operands, norm_reference(X, WEIGHT), ("i", "j", None))
            nested = jax.vmap(jax.vmap(norm, in_axes=(0, None)), in_axes=(1, None), out_axes=1)
            check(nested, operands, norm_reference(X, WEIGHT), ("i", "j", None))

    def test_gradients_of_a_batch_are_cut(self, norm, explicit, context):
        expected = jax.vmap(jax.grad(lambda x: jnp.sum(norm(x, WEIGHT) ** 2)))(X)
        with context(explicit):
            gradient = jax.vmap(jax.grad(lambda x: jnp.sum(norm(x, WEIGHT) ** 2)))
            check(gradient, (put(explicit, X, "i"),), expected, ("i", None, None))

    def test_loops_have_one_type(self, norm, explicit, context):
        def program(x):
            return jax.lax.scan(lambda x, _: (norm(x, WEIGHT), None), x, None, length=2)[0]

        expected = norm_reference(norm_reference(X, WEIGHT), WEIGHT)
        with context(explicit):
            check(program, (put(explicit, X, "i", "j"),), expected, ("i", "j", None))

    def test_constants(self, norm, explicit, context):
        with context(explicit):
            x = put(explicit, X, "i")
            program = jax.jit(lambda y: norm(x, WEIGHT) + y)
            np.testing.assert_allclose(program(x), norm_reference(X, WEIGHT) + X, atol=1e-5)

    def test_axes_of_both_kinds(self, norm, explicit, context):
        kinds = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit
        mixed = jax.make_mesh((2, 2), ("i", "j"), axis_types=kinds)
        with context(mixed):
            check(norm, (put(mixed, X, "i", "j"), WEIGHT), norm_reference(X, WEIGHT), ("i", "j", None))


def test_eight_devices(python):
    output = python(
        """
        import os
        import jax
        jax.config.update("jax_num_cpu_devices", 8)
        import callbox, callbox.jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        kernels = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/rms_norm.wasm")
        rms_norm = callbox.jax.op(kernels.rms_norm)
        mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("i", "j"))
        x = np.random.default_rng(0).standard_normal((8, 4, 16), np.float32)
        weight = np.ones(16, np.float32)
        program = jax.jit(lambda x, weight: rms_norm(x, weight, eps=0.5))
        sharded = jax.device_put(x, NamedSharding(mesh, P("i", "j")))
        y = program(sharded, weight)
        np.testing.assert_allclose(y, x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5), atol=1e-5)
        text = program.lower(sharded, weight).compile().as_text()
        print(len(y.sharding.device_set), tuple(y.sharding.spec)[:2], "all-gather" in text, end=" ")
        print("f32[2,2,16]" in text)
        """
    )
    assert output.split("\n")[0] == "8 ('i', 'j') False True"
