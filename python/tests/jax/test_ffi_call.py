"""The interface of the JAX FFI proposal, with the proposal's syntax."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
from callbox.jax import FFICall

_numbers = itertools.count()


def named(function: callbox.Target | None = None) -> FFICall:
    """Makes a call with a unique name."""
    call = FFICall(f"call{next(_numbers)}")
    if function is not None:
        call.register_function(function, platform="cpu")
    return call


def info(n: float) -> bytes:
    return struct.pack("<f", n)


def test_the_proposals_example(load):
    add_n = FFICall("add_one")
    add_n.register_function(load("jax_add_n").add_n, platform="cpu")

    def f(x):
        return add_n(x, static_info=info(4.0), out_shape_dtype=x)

    assert float(jax.jit(f)(4.0)) == 8.0
    assert float(f(4.0)) == 8.0


def test_names_are_unique_in_the_process():
    FFICall("unique")
    with pytest.raises(ValueError, match="expected a name that no FFI call has, found 'unique' for the second time"):
        FFICall("unique")


@pytest.mark.parametrize("name", ["", "$reserved"])
def test_names_that_can_not_be(name):
    with pytest.raises(ValueError, match="not empty and without a leading"):
        FFICall(name)


def test_a_function_is_checked_when_it_is_registered(load):
    call = named()
    typed = load("add_n").add_n
    proposed = load("jax_add_n").add_n
    with pytest.raises(ValueError, match="expected one of the platforms cpu, cuda, found 'tpu'"):
        call.register_function(proposed, platform="tpu")
    with pytest.raises(
        ValueError, match=r"\(api, status, static_info, outputs, inputs\) .*found 'add_n' of API_VERSION_TYPED_FFI"
    ):
        call.register_function(typed)
    with pytest.raises(ValueError, match="expected a function of the kind JAX_FFI_CALL_CUDA for the platform 'cuda'"):
        call.register_function(proposed, platform="cuda")
    with pytest.raises(TypeError, match="expected a target of a module, found builtin_function_or_method"):
        call.register_function(len)
    with pytest.raises(ValueError, match="expected a function for the platform cpu, found none"):
        call(1.0, return_shape_dtype=1.0)


def test_a_platform_has_one_function(load):
    call = named(load("jax_add_n").add_n)
    call.register_function(load("jax_add_n").add_n, platform="cpu")
    with pytest.raises(
        ValueError, match="expected one function for the platform cpu, which has 'add_n', found 'version'"
    ):
        call.register_function(load("jax_misc").version)
    assert "cpu=add_n" in repr(call)


def test_a_function_for_the_gpu_is_not_the_one_for_the_cpu(guests):
    """The module has a native kernel, but there is no GPU: only the CPU's function is called."""
    manifest = Path(__file__).parents[3] / "guests/add_n/callbox.json"
    with pytest.raises(callbox.CallError, match="is not sandboxed") as refused:
        callbox.Host(policy={"gpu": {"fenced": False}}).load(guests / "jax_add_n.wasm", native=manifest)
    digest = re.search("[0-9a-f]{64}", str(refused.value)).group()
    function = callbox.Host().load(guests / "jax_add_n.wasm", native=manifest, allow_native=digest).add_n
    assert function.has_native

    def add_n(call):
        return lambda x: call(x, static_info=info(4.0), return_shape_dtype=x)

    gpu, cpu, both = named(), named(function), named(function)
    gpu.register_function(function, platform="cuda")
    both.register_function(function, platform="cuda")
    with pytest.raises(ValueError, match="expected a function for the platform cpu, found cuda"):
        jax.jit(add_n(gpu))(1.0)
    for call in (cpu, both):
        assert float(jax.jit(add_n(call))(1.0)) == 5.0
        np.testing.assert_array_equal(jax.vmap(add_n(call))(jnp.ones(3)), np.full(3, 5))


def test_the_shape_of_the_result_has_to_be_given_once(load):
    call = named(load("jax_add_n").add_n)
    with pytest.raises(TypeError, match="expected return_shape_dtype or out_shape_dtype, found neither"):
        call(4.0, static_info=info(1.0))
    with pytest.raises(TypeError, match="found both"):
        call(4.0, static_info=info(1.0), return_shape_dtype=4.0, out_shape_dtype=4.0)


def test_static_information_by_reference(load):
    call = named(load("jax_add_n").add_n)
    made = callbox.StaticInfo.reference("make_info", "delete_info", info(2.5))
    program = jax.jit(lambda x: call(x, static_info=made, return_shape_dtype=x))
    # The guest has four objects: one for each executable, not for each call.
    assert [float(program(x)) for x in np.arange(8.0, dtype=np.float32)] == [x + 2.5 for x in range(8)]


def test_a_failure_has_the_functions_message(load, failure):
    call = named(load("jax_add_n").add_n)
    assert "Info must be >= 0" in failure(jax.jit(lambda x: call(x, static_info=info(-1.0), return_shape_dtype=x)), 4.0)


def test_several_results(load):
    call = named(load("jax_misc").sum_and_difference)
    a, b = jnp.arange(4.0), jnp.ones(4)
    total, difference = jax.jit(lambda a, b: call(a, b, return_shape_dtype=(a, a)))(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(difference, a - b)


def test_the_api_table_has_its_version(load):
    call = named(load("jax_misc").version)
    assert int(call(return_shape_dtype=jax.ShapeDtypeStruct((), np.int32))) == 1


def test_a_pure_function_has_batches_and_another_has_none(load):
    pure = named(load("jax_add_n").add_n)
    x = jnp.arange(3.0)
    mapped = jax.vmap(lambda x: pure(x, static_info=info(1.0), return_shape_dtype=x))
    np.testing.assert_array_equal(mapped(x), x + 1)


@pytest.mark.newest
def test_a_function_that_is_not_pure_has_no_batches(load):
    other = named(load("jax_misc").version)
    assert "pure" not in load("jax_misc").version.traits
    with pytest.raises(NotImplementedError, match="vmap"):
        call = named(load("jax_misc").sum_and_difference)
        jax.vmap(lambda a: call(a, a, return_shape_dtype=(a, a)))(jnp.ones((2, 4)))
    assert int(other(return_shape_dtype=jax.ShapeDtypeStruct((), np.int32))) == 1
