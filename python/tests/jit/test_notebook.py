"""The way of a new user: kernels in a notebook without a compiler, and a program without Numba."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("jax")

#: Cells of a notebook, and what each prints.
CELLS = [
    (
        """
import os, shutil
print([tool for tool in ("cc", "gcc", "clang", "rustc", "ld") if shutil.which(tool)])
""",
        "[]\n",
    ),
    (
        """
import callbox, numpy as np
from callbox import math
from callbox.types import f32

@callbox.jit(elementwise=True)
def gelu(x: f32) -> f32:
    return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))

print(gelu(np.float32([-1, 0, 1])).round(4))
""",
        "[-0.1587  0.      0.8413]\n",
    ),
    (
        '''
@callbox.jit
def rms_norm_grad(
    x: f32["m", "n"], weight: f32["n"], dy: f32["m", "n"], dx: f32["m", "n"], dweight: f32["n"], *, eps: f32 = 1e-6
):
    columns = x.shape[1]
    for i in range(columns):
        dweight[i] = 0
    for r in range(x.shape[0]):
        total = inner = 0.0
        for i in range(columns):
            total += x[r, i] * x[r, i]
            inner += dy[r, i] * weight[i] * x[r, i]
        scale = 1 / math.sqrt(total / columns + eps)
        for i in range(columns):
            dx[r, i] = scale * (dy[r, i] * weight[i] - x[r, i] * scale * scale * inner / columns)
            dweight[i] += dy[r, i] * x[r, i] * scale

@callbox.jit(rows=True, vjp=rms_norm_grad)
def rms_norm(x: f32["..", "n"], weight: f32["n"], y: f32["..", "n"], *, eps: f32 = 1e-6):
    """Divides each row by its root mean square."""
    if eps < 0:
        raise ValueError("eps must not be negative")
    rows, columns = x.shape
    for r in range(rows):
        total = 0.0
        for i in range(columns):
            total += x[r, i] * x[r, i]
        scale = 1 / math.sqrt(total / columns + eps)
        for i in range(columns):
            y[r, i] = x[r, i] * scale * weight[i]

rms_norm.test(np.float32([[3, 4], [1, 2]]), np.float32([1, 2]))
rms_norm.save("rms_norm.wasm")
rms_norm_grad.save("rms_norm_grad.wasm")
print(rms_norm.inspect()["doc"], sorted(name for name in os.listdir() if name.endswith(".wasm")))
''',
        "Divides each row by its root mean square. ['rms_norm.wasm', 'rms_norm_grad.wasm']\n",
    ),
    # The cell's source is known to Python, and the error names its line.
    (
        """
@callbox.jit(elementwise=True)
def wrong(x: f32) -> f32:
    if x > 0:
        return x + missing
    return x

try:
    wrong(np.float32([1]))
except callbox.CompileError as error:
    import linecache
    print(linecache.getline(error.filename, error.line).strip(), "|", error.message.split(":")[0])
""",
        "return x + missing | wrong\n",
    ),
    # A cell that is run again, changed, is another kernel.
    (
        """
@callbox.jit(elementwise=True)
def gelu(x: f32) -> f32:
    return x + 1

print(gelu(np.float32([1])), len(os.listdir(os.path.expanduser("~/.cache/callbox/jit"))))
""",
        "[2.] 4\n",
    ),
]

#: A program that has the modules alone.
PROGRAM = """
import sys
sys.modules.update(numba=None, llvmlite=None)
import callbox, callbox.jax, jax, jax.numpy as jnp, numpy as np

host = callbox.Host()
gradient = host.load("rms_norm_grad.wasm").rms_norm_grad
op = callbox.jax.op(host.load("rms_norm.wasm").rms_norm, vjp=gradient)

def expected(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * weight

x, weight = jnp.linspace(-2, 2, 24).reshape(2, 3, 4), jnp.arange(1.0, 5.0)

def compare(way):
    for one, other in zip(*(jax.tree.leaves(way(f)(x, weight)) for f in (op, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)

def mapped(f):
    return jax.vmap(f, (0, None))

compare(jax.jit)
compare(lambda f: jax.jit(mapped(f)))
compare(lambda f: jax.jit(jax.grad(lambda *a: jnp.sum(jnp.sin(mapped(f)(*a))), argnums=(0, 1))))
assert not {"callbox._jit"} & set(sys.modules)
print("passed")
"""


@pytest.fixture
def environment(tmp_path):
    """An empty home, and no compiler on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "home").mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "JUPYTER", "IPYTHON", "CALLBOX_JIT"))}
    return kept | {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}


def test_kernels_of_a_notebook_run_in_jax_without_numba(tmp_path, environment):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source, _ in CELLS])
    path = tmp_path / "kernels.ipynb"
    nbformat.write(notebook, path)
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute(env=environment)
    for cell, (_, printed) in zip(notebook.cells, CELLS, strict=True):
        assert "".join(output.get("text", str(output)) for output in cell.outputs) == printed
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
