"""Annotations that do not describe a kernel. These tests need no Numba."""

import re
import subprocess
import sys

import pytest

import callbox
from callbox.types import f32, i32

REFUSED = {
    "def f(x, y: f32[...]): pass": "f: parameter 'x' needs a type such as f32[...] or f32['n']",
    "def f(x: f32, y: f32[...]): pass": "f: parameter 'x' is a scalar: put it after `*` to make it an attribute, or let"
    " an elementwise kernel return its result (`-> f32`)",
    "def f(x: f32[...] = 1): pass": "f: 'x' is an array, which has no default; attributes come after `*`",
    "def f(*x: f32[...]): pass": "f: a kernel takes named parameters only, but 'x' takes any number",
    "def f(x: int): pass": "f: parameter 'x': expected a type such as f32[...] or f32['n'], found <class 'int'>",
    "def f(x: f32[...], *, k: i32 = 1.5): pass": "f: attribute 'k': expected a default of type i32, found 1.5",
    "def f(x: f32[...], *, k: i32 = 2**31): pass": "f: attribute 'k': expected a default of type i32, found 2147483648",
    "def f(x: f32[...], *, k: f32['a', 'b']): pass": "f: attribute 'k': expected a scalar or an array of one dimension,"
    " a size or a name, found f32[a, b]",
    "def f(x: f32['n'], *, k: f32['2*n']): pass": "f: attribute 'k': expected a scalar or an array of one dimension, a"
    " size or a name, found f32[2*n]",
    "from __future__ import annotations\ndef f(x: f32[n], y: f32[2 ** n]): pass": "f: the annotation of 'y',"
    ' f32[2 ** n]: expected a dimension that is a size, a name, an expression of them such as "n/2" or'
    ' "2*(n+1)", or "..", found \'2 ** n\'',
    "def f(x: list[float], y: f32['n']): pass": "f: parameter 'x': expected a type such as f32[...] or f32['n'], found"
    " list[float]",
    "def f(x: 'f32[', y: f32['n']): pass": "f: the annotation of 'x', f32[: '[' was never closed (<unknown>, line 1)",
    "def f(x: 'g32[n]', y: f32['n']): pass": "f: the annotation of 'x', g32[n]: name 'g32' is not defined",
    "def f(x: f32) -> str: pass": "f: expected to return a scalar such as f32, or a tuple of them, found <class 'str'>",
    "def f(): pass": "f: a kernel needs at least one array, for its result",
    "def f(x: f32[...]) -> f32: pass": "f: a kernel writes its results into parameters; only with `elementwise=True`"
    " can it return scalars",
    "def _f(x: f32[...]): pass": "_f: a kernel cannot be named '_f'",
    "def memory(x: f32[...]): pass": "memory: a kernel cannot be named 'memory'",
}


@pytest.mark.parametrize("source", REFUSED)
def test_refused_signatures(source):
    names = {"f32": f32, "i32": i32}
    exec(compile(source, "kernel.py", "exec"), names)
    function = next(value for name, value in names.items() if name in ("f", "_f", "memory"))
    with pytest.raises(callbox.CompileError) as raised:
        callbox.jit(function)
    line = source.count("\n") + 1
    assert str(raised.value) == f"kernel.py:{line}: {REFUSED[source]}"
    assert raised.value.line == line


def test_an_elementwise_kernel_takes_scalars_or_arrays_of_any_shape():
    with pytest.raises(callbox.CompileError, match=r"expected f32\[...\], found f32\[n\]"):

        @callbox.jit(elementwise=True)
        def f(x: f32["n"], y: f32["n"]): ...


EXPECTED = 'expected a dimension that is a size, a name, an expression of them such as "n/2" or "2*(n+1)", or ".."'


def test_expressions_are_as_in_metadata():
    declared = f32["..", " n // 2 ", "2 * (n+1)", "6 * 7", "in", "(n)"]
    assert declared.dimensions == ("..", "n/2", "2*(n+1)", 42, "in", "n")


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        (("n", ".."), '".." must be the first dimension'),
        (-1, f"{EXPECTED}, found -1"),
        (1.5, f"{EXPECTED}, found 1.5"),
        (True, f"{EXPECTED}, found True"),
        ("ñ", f"{EXPECTED}, found 'ñ'"),
        ("n" * 65, f"{EXPECTED}, found '{'n' * 65}'"),
        ("", f"{EXPECTED}, found ''"),
        ("-n", f"{EXPECTED}, found '-n'"),
        ("2*(n", f"{EXPECTED}, found '2*(n'"),
        ("n%2", f"{EXPECTED}, found 'n%2'"),
        ("9**9**9**9", f"{EXPECTED}, found '9**9**9**9'"),
        ("n/0.5", f"{EXPECTED}, found 'n/0.5'"),
        ("f(n)", f"{EXPECTED}, found 'f(n)'"),
        ("1/0", f"{EXPECTED}, found '1/0'"),
        ("3-4", f"{EXPECTED}, found '3-4'"),
        (f"{1 << 64}*n", f"{EXPECTED}, found '{1 << 64}*n'"),
        (tuple("abcdefghi"), "expected at most 8 dimensions, found 9"),
    ],
)
def test_refused_dimensions(dimensions, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        f32[dimensions]


def test_callbox_alone_imports_no_compiler():
    program = "import sys, callbox; assert not {'callbox._jit', 'numba', 'llvmlite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
