"""Calls that several threads share, in programs of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox.jax


def rows():
    return jnp.asarray(np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32))


def test_any_number_of_threads_gives_the_same_bits(load):
    softmax = load("softmax").softmax
    x = rows()
    alone = jax.jit(lambda x: callbox.jax.call(softmax, x, threads=1))(x)
    np.testing.assert_allclose(alone, jax.nn.softmax(x), atol=1e-6)
    for threads in (None, 2, 8):
        shared = jax.jit(callbox.jax.op(softmax, threads=threads))
        for _ in range(20):
            np.testing.assert_array_equal(shared(x), alone)


def test_threads_share_a_batch(load):
    rms_norm = load("rms_norm").rms_norm
    x, weights = rows(), jnp.linspace(0, 1, 64 * 512, dtype=jnp.float32).reshape(64, 512)

    def mapped(threads):
        op = callbox.jax.op(rms_norm, threads=threads)
        return jax.jit(jax.vmap(lambda x, w: op(x, w, eps=1e-6)))(x.reshape(64, 16, 512), weights)

    np.testing.assert_array_equal(mapped(8), mapped(1))


def test_many_calls_share_threads(load):
    add_n = callbox.jax.op(load("add_n").add_n)
    x = jnp.arange(1 << 20, dtype=jnp.float32)

    @jax.jit
    def program(x):
        return sum(add_n(x * i, n=float(i)) for i in range(8))

    expected = sum(np.asarray(x) * i + np.float32(i) for i in range(8))
    for _ in range(10):
        np.testing.assert_allclose(program(x), expected, rtol=1e-6)


def test_the_number_is_at_least_one(load):
    with pytest.raises(ValueError, match="expected threads to be 1 or more, found 0"):
        callbox.jax.call(load("add_n").add_n, jnp.zeros(4), n=1.0, threads=0)


# XLA has a thread for each processor, and one program on two processors can take them all.
RUNS_ON = """
import sys
import threading
import time

import jax
import jax.numpy as jnp

import callbox
import callbox.jax

add_n = callbox.jax.op(callbox.Host().load(sys.argv[1]).add_n)
runs_on = callbox.Host().load(bytes.fromhex(sys.argv[2]))
x = jnp.ones(1 << 20, jnp.float32)
program = jax.jit(lambda x: tuple(add_n(x, n=float(i)) for i in range(16)))
jax.block_until_ready(program(x))
failures = []

def run_on():
    try:
        jax.block_until_ready(jax.jit(lambda x: callbox.jax.call(runs_on.f, x, deadline=5.0))(x))
    except Exception as failure:
        failures.append(callbox.errors.from_jax(failure).code)

thread = threading.Thread(target=run_on)
thread.start()
time.sleep(0.5)
jax.block_until_ready(program(x))
assert thread.is_alive(), failures
thread.join()
print(failures)
"""


def test_a_call_that_runs_on_keeps_no_other_program_waiting(guests, assemble, python):
    array = {"element_types": ["f32"], "dimensions": [".."]}
    arrays = {"operands": [{"name": "x", **array}], "results": [{"name": "y", **array}]}
    declared = {"name": "f", "traits": ["elementwise", "pure"], **arrays}
    module = assemble({"f": b"\x03\x40\x0c\x00\x0b\x00"}, [declared])  # loop br 0 end unreachable
    assert python(RUNS_ON, str(guests / "add_n.wasm"), module.hex()).strip() == "['DEADLINE_EXCEEDED']"
