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
