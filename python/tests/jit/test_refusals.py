"""Python that cannot become a kernel: the message and the line."""

from __future__ import annotations

import functools
import math as cmath
import os
import sys
import textwrap

import numpy as np
import pytest

import callbox
from callbox._jit import _worker
from callbox.types import f32

# The body of a function of x and y, the line at fault in it, and the reason.
REFUSED = {
    "allocation": ("y[0] = 1\nt = np.zeros(3)\ny[0] = t[0]", 2, "it has no zeros() of these types"),
    "list": ("t = []\nt.append(x[0])\ny[0] = t[0]", None, "a kernel cannot allocate memory"),
    "string": ("y[0] = 1\nif x[0] > 1:\n    raise ValueError(f'{x[0]}')", 3, "a kernel cannot allocate memory"),
    "C library": ("for i in range(x.size):\n    y[i] = cmath.exp(x[i])", None, "use callbox.math.exp"),
    "no result": ("z = x[0]", None, "it writes to no parameter"),
    "object": ("y[0] = 1\ny[1] = thing.x", 2, "'thing' is a object; a kernel can use numbers"),
    # Elsewhere the name is an attribute's and a constant.
    "object of a late use": ("y[0] = x.thing\ny[1] = 'thing' == 'x'\ny[2] = thing.x", 3, "'thing' is a object"),
    "module": ("y[0] = os.getpid()", 1, "'os' is the module os: import the functions"),
    "unknown name": ("y[0] = 1\ny[1] = unknown", 2, "name 'unknown' is not defined"),
    "inner function": ("y[0] = (lambda v: v)(x[0])", None, "a kernel cannot define functions"),
    "generator": ("y[0] = 1\nyield x[0]", None, "a kernel cannot be a generator"),
    "large constant": ("y[0] = large[0]", 1, "an array of dtype float32 and 1000004 bytes (the most are 1000000)"),
    "masked array": ("y[0] = 1\ny[1] = masked[0]", 2, "'masked' is a masked array, whose mask a kernel would not see"),
    "large number": ("y[0] = number", 1, "an integer of more than 64 bits"),
    "deep tuple": ("y[0] = x[0]\ndeep", None, "what it uses nests too deep"),
    "returned value": ("y[0] = x[0]\nreturn x[0]", None, "it returns float32"),
    "recursion": ("y[0] = x[0]\nkernel(x, y)", 2, "a kernel has no recursion, and 'kernel' calls itself"),
    "recursion of others": ("y[0] = even(x[0])", -1, "a kernel has no recursion, and 'even' calls itself"),
    "print": ("y[0] = x[0]\nprint(y[0])", 2, "a kernel cannot print"),
    "with": ("y[0] = x[0]\nwith thing:\n    y[0] = 1", 2, "a kernel cannot use `with`"),
    "some exceptions": ("try:\n    y[0] = x[0]\nexcept ValueError:\n    y[0] = 1", 3, "(`except Exception`)"),
    "finally": ("try:\n    y[0] = x[0]\nfinally:\n    y[1] = 1", None, "has no `finally`"),
    "written operand": ("(x, y)[0][0] = 1\ny[0] = x[0]", 1, "an operand cannot be written to"),
    "filled operand": ("x.fill(1)\ny[0] = x[0]", 1, "an operand cannot be written to"),
    "index too many": ("y[0] = x[0, 0]", 1, "Numba cannot compile it: it has no getitem() of these types"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_functions(name, tmp_path):
    body, line, reason = REFUSED[name]
    path = tmp_path / "kernel.py"
    others = "def even(n): return odd(n - 1) if n > 0 else 1\n\ndef odd(n):\n    return even(n - 1) if n > 0 else 0\n"
    path.write_text(others + "def kernel(x: 'f32[...]', y: 'f32[...]'):\n" + textwrap.indent(body, "    ") + "\n")
    names = {
        "f32": f32,
        "np": np,
        "os": os,
        "cmath": cmath,
        "thing": object(),
        "masked": np.ma.masked_array(np.ones(2, np.float32), [True, False]),
        "number": 10**5000,
        "deep": functools.reduce(lambda inner, _: (inner,), range(5000), ()),
        "large": np.zeros(250_001, np.float32),
    }
    exec(compile(path.read_text(), str(path), "exec"), names)
    kernel = callbox.jit(names["kernel"])
    with pytest.raises(callbox.CompileError) as raised:
        kernel.wasm  # noqa: B018
    assert reason in raised.value.message
    assert raised.value.filename == str(path)
    if line is not None:
        assert raised.value.line == line + 5


def test_rows_without_rows():
    def kernel(x: f32["..", n], y: f32[n]):
        for i in range(y.size):
            y[i] = x[0, i]

    with pytest.raises(callbox.CompileError) as raised:
        callbox.jit(rows=True)(kernel).wasm  # noqa: B018
    assert raised.value.message == "kernel: the result 'y' of rows: expected \"..\", found f32[n]"
    assert raised.value.line == kernel.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("value", "line", "reason"),
    [
        ("missing", 7, "name 'missing' is not defined"),
        ("np.zeros(3)[0]", 7, "it has no zeros() of these types"),
        ("helper(x)", 10, "it has no zeros() of these types"),
        ("x.thing", 7, "Unknown attribute 'thing' of type float32"),
        ("cmath.exp(x)", 5, "use callbox.math.exp"),
    ],
)
def test_lines_of_scalar_functions(tmp_path, value, line, reason):
    # The loop around the function has no lines in the file.
    path = tmp_path / "kernel.py"
    path.write_text(
        f"\n\n\n\ndef kernel(x: f32) -> f32:\n    if x > 0:\n        return {value}\n    return x\n"
        "def helper(x):\n    return np.zeros(3)[0]\n"
    )
    names = {"f32": f32, "cmath": cmath, "np": np}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(callbox.CompileError) as raised:
        callbox.jit(elementwise=True)(names["kernel"]).wasm  # noqa: B018
    assert reason in raised.value.message
    assert (raised.value.filename, raised.value.line) == (str(path), line)


@pytest.fixture
def worker():
    worker = _worker.Worker()
    yield worker
    worker.stop()


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        (
            "import os, sys; os.write(2, b'LLVM ERROR: no such thing\\n'); os.abort()",
            "Aborted): LLVM ERROR: no such thing",
        ),
        ("import sys; sys.exit(3)", "exit status 3)"),
    ],
)
def test_a_compiler_that_ends(worker, monkeypatch, program, ending):
    monkeypatch.setattr(_worker, "PROGRAM", program)
    with pytest.raises(callbox.CompileError) as raised:
        worker.compile("f", None)
    assert raised.value.message == f"f: the compiler's process ended ({ending}"
    # The next request starts another process.
    monkeypatch.setattr(
        _worker,
        "PROGRAM",
        "from callbox._jit._child import *; send(sys.stdout.buffer, None);"
        " receive(sys.stdin.buffer); send(sys.stdout.buffer, b'module')",
    )
    assert worker.compile("f", None) == b"module"


def test_the_compiler_imports_nothing_of_the_working_folder(worker, monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    with pytest.raises(callbox.CompileError) as raised:
        worker.compile("f", None)
    assert "imported" not in raised.value.message


def test_a_compiler_that_takes_too_long(worker, monkeypatch):
    monkeypatch.setattr(_worker, "PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(_worker, "DEADLINE", 0.3)
    with pytest.raises(callbox.CompileError, match="ended"):
        worker.compile("f", None)


def test_no_numba(worker, monkeypatch):
    hidden = "import sys; sys.modules['numba'] = None; from callbox._jit._child import main; main()"
    monkeypatch.setattr(_worker, "PROGRAM", hidden)
    with pytest.raises(callbox.CompileError, match=r"needs Numba \(pip install 'callbox\[jit\]'\)"):
        worker.compile("f", None)


@pytest.mark.parametrize("how", ["os.abort()", "os.kill(os.getpid(), 9)", "os._exit(0)"])
def test_a_compiler_that_ends_while_it_compiles_a_kernel(worker, monkeypatch, tmp_path, how):
    def kernel(x: f32) -> f32:
        return x + 20

    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    monkeypatch.setattr(callbox._jit, "WORKER", worker)
    compiled = callbox.jit(elementwise=True)(kernel)
    ends = (
        "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); from callbox._jit import _child, _lower;"
        f" _lower.compile_module = lambda *_, **__: {how}; _child.main()"
    )
    monkeypatch.setattr(_worker, "PROGRAM", ends)
    with pytest.raises(callbox.CompileError, match="^kernel: the compiler's process ended "):
        compiled(np.ones(1, np.float32))
    assert os.listdir(tmp_path) == []
    monkeypatch.undo()
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path))
    np.testing.assert_array_equal(compiled(np.ones(1, np.float32)), [21])
