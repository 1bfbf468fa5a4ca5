"""Programs whose module is closed."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax


@pytest.fixture
def kernels(guests):
    """A module with a key of its own: no other test has its policy."""
    host = callbox.Host(policy={"limits": {"deadline_ms": 9876}})
    return host, host.load(guests / "add_n.wasm")


def test_a_program_fails_until_its_module_is_loaded_again(kernels, guests):
    host, module = kernels
    add_n = callbox.jax.op(module.add_n)
    program = jax.jit(lambda x: add_n(x, n=1.0) * 2)
    x = jnp.arange(3.0)
    expected = (np.arange(3) + 1) * 2
    np.testing.assert_array_equal(program(x), expected)
    np.testing.assert_array_equal(add_n(x, n=1.0), np.arange(3) + 1)
    module.close()
    with pytest.raises(Exception, match=r"FAILED_PRECONDITION: .* is closed: load the same file again"):
        program(x).block_until_ready()
    with pytest.raises(Exception, match="FAILED_PRECONDITION"):
        add_n(x, n=1.0).block_until_ready()
    with pytest.raises(callbox.CallError, match=r"FAILED_PRECONDITION: add_n\.wasm: the module is closed"):
        jax.jit(lambda x: add_n(x, n=3.0))(x)
    again = host.load(guests / "add_n.wasm")
    np.testing.assert_array_equal(program(x), expected)
    np.testing.assert_array_equal(callbox.jax.op(again.add_n)(x, n=1.0), np.arange(3) + 1)
    again.close()


def test_programs_go_on_with_another_module_of_the_file(kernels, guests):
    host, first = kernels
    second = callbox.Host(policy=host.policy).load(guests / "add_n.wasm")
    program = jax.jit(lambda x: callbox.jax.call(first.add_n, x, n=1.0))
    x = jnp.arange(3.0)
    program(x).block_until_ready()
    first.close()
    np.testing.assert_array_equal(program(x), np.arange(3) + 1)
    second.close()
    with pytest.raises(Exception, match="FAILED_PRECONDITION"):
        program(x).block_until_ready()


def test_reloaded_modules_are_closed(guests):
    """Each has a policy, and so a key, of its own."""
    for number in range(20):
        host = callbox.Host(policy={"limits": {"deadline_ms": 20_000 + number}})
        with host.load(guests / "add_n.wasm") as module:
            add_n = callbox.jax.op(module.add_n)
            y = jax.jit(lambda x, add_n=add_n: add_n(x, n=1.0))(jnp.zeros(2))
            np.testing.assert_array_equal(y, np.ones(2))
        assert module.closed


def test_idle_programs_go_on(guests):
    module = callbox.Host(idle_seconds=0.01, idle_bytes=0).load(guests / "add_n.wasm")
    program = jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=1.0))
    x = jnp.zeros(1 << 18)
    for _ in range(20):
        np.testing.assert_array_equal(program(x), np.ones(1 << 18))
        time.sleep(0.02)


MANY = """
import ctypes, gc, os
import jax
import jax.numpy as jnp
import callbox
import callbox.jax

def resident():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/conventions.wasm")
shape = jax.ShapeDtypeStruct((4,), jnp.uint8)

def call(number):
    opaque = b"%8d" % number + bytes(1_000_000)
    options = {"opaque": opaque, "result_shape_dtypes": shape}
    options["api_version"] = "API_VERSION_STATUS_RETURNING_UNIFIED"
    jax.jit(lambda: callbox.jax.call(module.echo_opaque, **options))().block_until_ready()

call(0)
before = resident()
for number in range(100):
    call(number)
module.close()
del module
jax.clear_caches()
gc.collect()
print(resident() - before)
"""


def test_closed_modules_leave_no_long_texts(python):
    """Each thread kept those of its last two thousand call sites, as 1.8 MB for each megabyte.

    The program's text itself, one megabyte for each call, stays with the traced call.
    """
    assert int(python(MANY)) < 150
