"""From import to call with 2 GiB of address space."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

LIMITED = """
import os, resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
# Each thread of a BLAS library reserves address space.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
"""

CALL = """
import numpy as np
import callbox
x = np.arange(4, dtype=np.float32)
module = callbox.Host().load(os.path.join(os.environ["CALLBOX_GUESTS"], "add_n.wasm"))
print(module.add_n(x, n=1).tolist())
"""

JAX = """
import jax
import jax.numpy as jnp
y = jax.jit(lambda x: x + 1)(jnp.arange(4, dtype=jnp.float32))
print(y.tolist())
"""

JITTED = """
import callbox.jax
module = callbox.Host().load(os.path.join(os.environ["CALLBOX_GUESTS"], "add_n.wasm"))
x = jnp.arange(4, dtype=jnp.float32)
print(jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=1))(x).tolist())
"""

EXPECTED = "[1.0, 2.0, 3.0, 4.0]\n"


def test_a_call(python):
    assert python(LIMITED + CALL) == EXPECTED


def test_a_jitted_call(python):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    plain = subprocess.run([sys.executable, "-c", LIMITED + JAX], capture_output=True, check=False)
    if plain.returncode != 0:
        pytest.skip(f"JAX itself does not start with 2 GiB: {plain.stderr[-200:]!r}")
    assert python(LIMITED + JAX + JITTED) == 2 * EXPECTED


def test_forks_beside_threads_that_claim(python):
    """A forked process must not wait for a lock of a thread that it does not have."""
    program = """
import signal, sys, threading, warnings
import numpy as np
import callbox
x = np.arange(4, dtype=np.float32)
host = callbox.Host(isolation="fresh")
module = host.load(os.path.join(os.environ["CALLBOX_GUESTS"], "add_n.wasm"))
ends = False
def work():
    while not ends:
        module.add_n(x, n=1)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
warnings.simplefilter("ignore")
for _ in range(8):
    child = os.fork()
    if child == 0:
        # A busy machine may take long. What waits for a lock waits for ever.
        signal.alarm(240)
        try:
            host.load(os.path.join(os.environ["CALLBOX_GUESTS"], "add_n.wasm")).add_n(x, n=1)
        except callbox.CallError:
            # Another lock that a thread held: a child does not wait for it for long.
            pass
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    if ended:
        print("a fork ended with", ended)
        break
ends = True
for thread in threads:
    thread.join()
print(module.add_n(x, n=1).tolist())
"""
    assert python(LIMITED + program, timeout=300) == EXPECTED
