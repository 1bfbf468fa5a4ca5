"""Jitted programs on a GPU: XLA calls the kernels beside the wasm on its own stream."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["granted", "fenced"])
def load(request):
    return request.getfixturevalue(request.param)


def test_a_jitted_program_runs_the_kernel(load, device):
    module = load("add_n")
    add_n = callbox.jax.op(module.add_n)
    found = jax.jit(lambda x: add_n(x * 2, n=1.5) + 1)(jax.device_put(X, device))
    assert found.device == device
    np.testing.assert_array_equal(found, X * 2 + 2.5)
    calls = [one["calls"] for one in callbox.stats() if (one["sha256"], one["platform"]) == (module.digest, "CUDA")]
    assert sum(calls) >= 1


def test_many_calls_in_a_loop(load, device):
    add_n = callbox.jax.op(load("add_n").add_n)

    @jax.jit
    def chain(x):
        return jax.lax.fori_loop(0, 100, lambda _, x: add_n(x, n=1.0), x)

    for _ in range(5):
        np.testing.assert_array_equal(chain(jax.device_put(X, device)), X + 100)


def test_unrolled_calls_that_xla_may_capture(load, device):
    """XLA makes command buffers, which are CUDA graphs, of such programs."""
    add_n = callbox.jax.op(load("add_n").add_n)

    @jax.jit
    def chain(x):
        for _ in range(16):
            x = add_n(x, n=1.0) * 1.0
        return x

    x = jax.device_put(X, device)
    for turn in range(8):
        np.testing.assert_array_equal(chain(x + turn), X + turn + 16)


def test_batches_and_gradients(load, device):
    softmax = callbox.jax.op(load("softmax").softmax)
    x = jax.device_put(np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32), device)
    found = jax.jit(jax.vmap(softmax))(x)
    np.testing.assert_allclose(found, jax.nn.softmax(x), rtol=1e-6)
    add_n = callbox.jax.op(load("add_n").add_n, vjp=lambda _operands, _result, cotangent, n: cotangent)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(add_n(x, n=1.0) ** 2)))(x)
    np.testing.assert_allclose(slope, 2 * (x + 1), rtol=1e-6)


def test_donated_operands(load, device):
    add_n = callbox.jax.op(load("add_n").add_n)
    step = jax.jit(lambda x: add_n(x, n=1.0), donate_argnums=0)
    x = jax.device_put(np.zeros(1 << 20, np.float32), device)
    for _ in range(10):
        x = step(x)
    np.testing.assert_array_equal(x, np.full(1 << 20, 10, np.float32))


def test_own_failures_are_statuses(load, device):
    add_n = callbox.jax.op(load("add_n").add_n)
    x = jax.device_put(X, device)
    with pytest.raises(Exception, match="Info must be >= 0"):
        jax.block_until_ready(jax.jit(lambda x: add_n(x, n=-1.0))(x))
    np.testing.assert_array_equal(jax.jit(lambda x: add_n(x, n=1.0))(x), X + 1)


def test_what_a_fenced_kernel_does_wrong_fails_its_program_alone(fenced, device, altered):
    manifest = altered("add_n", "st.global", "]", "+1048576]")
    bad = callbox.jax.op(fenced("add_n", manifest).add_n)
    good = callbox.jax.op(fenced("add_n").add_n)
    x = jax.device_put(X, device)
    for _ in range(3):
        with pytest.raises(Exception, match="OUT_OF_RANGE|out of range"):
            jax.block_until_ready(jax.jit(lambda x: bad(x, n=1.0))(x))
        np.testing.assert_array_equal(jax.jit(lambda x: good(x, n=1.0))(x), X + 1)


def test_an_endless_fenced_kernel_is_stopped(fenced, device, altered):
    manifest = altered("add_n", "ret;", "ret;", "AGAIN:\n\tbra AGAIN;\n\tret;")
    module = fenced("add_n", manifest, policy={"gpu": {"deadline_ms": 100}})
    endless = callbox.jax.op(module.add_n)
    x = jax.device_put(X, device)
    with pytest.raises(Exception, match="ran past its deadline"):
        jax.block_until_ready(jax.jit(lambda x: endless(x, n=1.0))(x))
    good = callbox.jax.op(fenced("add_n").add_n)
    np.testing.assert_array_equal(jax.jit(lambda x: good(x, n=1.0))(x), X + 1)


def test_statuses_of_elements(load, device):
    module = load("add_n")
    add_n = callbox.jax.op(module.add_n, on_error="status")
    x = jax.device_put(X, device)
    y, status = jax.jit(lambda x: add_n(x, n=1.0))(x)
    np.testing.assert_array_equal(y, X + 1)
    assert np.all(np.asarray(status) == 0)
    y, status = jax.jit(lambda x: add_n(x, n=-1.0))(x)
    assert np.all(np.asarray(status) == 3) and np.isnan(np.asarray(y)).all()


def test_a_program_for_the_cpu_runs_the_wasm(load):
    module = load("add_n")
    add_n = callbox.jax.op(module.add_n)
    cpu = jax.devices("cpu")[0]
    found = jax.jit(lambda x: add_n(x, n=1.0))(jax.device_put(X, cpu))
    np.testing.assert_array_equal(found, X + 1)
    assert found.device == cpu


def test_without_a_kernel_a_program_for_a_gpu_fails(guests, device):
    add_n = callbox.jax.op(callbox.Host().load(guests / "add_n.wasm").add_n)
    with pytest.raises(Exception, match="expected a CUDA kernel of that name, found none"):
        jax.block_until_ready(jax.jit(lambda x: add_n(x, n=1.0))(jax.device_put(X, device)))


def test_direct_calls(load):
    module = load("add_n")
    np.testing.assert_array_equal(module.add_n(X, n=1.0, platform="CUDA"), X + 1)


def test_shadowed_calls_agree_within_a_tolerance(fenced, device):
    module = fenced("softmax", policy={"shadow": {"share": 1.0, "fails": True}})
    softmax = callbox.jax.op(module.softmax)
    x = jax.device_put(np.random.default_rng(0).normal(size=(16, 100)).astype(np.float32), device)
    with pytest.raises(Exception, match="the native kernel and the wasm differ"):
        # exp of the device and of the guest differ in their last bits.
        jax.block_until_ready(jax.jit(softmax)(x))
    module = fenced("softmax", policy={"shadow": {"share": 1.0, "fails": True, "rtol": 1e-5, "atol": 1e-6}})
    softmax = callbox.jax.op(module.softmax)
    np.testing.assert_allclose(jax.jit(softmax)(x), jax.nn.softmax(x), rtol=1e-5)


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "gelu"])
def test_kernels_of_triton_run_fenced(name, fenced, device):
    wasm = {"gelu": "layers"}.get(name, name)
    module = fenced(wasm, Path(__file__).parents[3] / "guests" / "triton" / name / "callbox.json")
    kernel = callbox.jax.op(module[name])
    x = jax.device_put(np.random.default_rng(0).normal(size=(64, 1000)).astype(np.float32), device)
    if name == "rms_norm":
        weight = jnp.linspace(0.5, 2, 1000)
        found = jax.jit(lambda x: kernel(x, weight, eps=1e-5))(x)
        expected = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight
    elif name == "softmax":
        found, expected = jax.jit(kernel)(x), jax.nn.softmax(x)
    else:
        found, expected = jax.jit(kernel)(x), jax.nn.gelu(x, approximate=False)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)
