"""Kernels compiled from Python, called as targets. Expected values come from NumPy."""

from __future__ import annotations

import enum
import math as python_math
import subprocess
import sys

import numpy as np
import pytest

import callbox
from callbox import math
from callbox.types import f32, f64, i32, pred

TABLE = np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)


def twice(value):
    return value * 2


@callbox.jit(elementwise=True)
def gelu(x: f32) -> f32:
    return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))


@callbox.jit(elementwise=True)
def scaled(x: f32, *, by: f32 = 2.0) -> f32:
    """Multiplies each element."""
    return x * by


@callbox.jit(elementwise=True)
def sum_and_difference(a: f32, b: f32) -> tuple[f32, f32]:
    return a + b, a - b


@callbox.jit(rows=True)
def rms_norm(x: f32["..", n], weight: f32[n], y: f32["..", n], *, eps: f32):
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


@callbox.jit(rows=True)
def softmax(x: f32["..", n], y: f32["..", n]):
    for r in range(x.shape[0]):
        most = x[r, 0]
        for i in range(x.shape[1]):
            most = max(most, x[r, i])
        total = 0.0
        for i in range(x.shape[1]):
            y[r, i] = math.exp(x[r, i] - most)
            total += y[r, i]
        for i in range(x.shape[1]):
            y[r, i] /= total


@callbox.jit
def matmul(a: f32[m, k], b: f32[k, n], c: f32[m, n]):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[i, j] = 0
        for t in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, t] * b[t, j]


@callbox.jit
def polynomial(x: f64[n], y: f64[n], *, c: f64[k], negated: pred = False, shift: i32 = 3):
    for i in range(x.size):
        total = 0.0
        for t in range(c.size - 1, -1, -1):
            total = total * x[i] + c[t]
        y[i] = -(total + shift) if negated else total + shift


@callbox.jit
def through_others(x: f32["..", n], weight: f32[n], y: f32["..", n]):
    rms_norm(x, weight, y, 0.5)
    for r in range(y.shape[0]):
        row = y[r]
        for i in range(row.size):
            row[i] = twice(row[i]) + TABLE[2]


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(3).normal(size=(3, 5, 33)).astype(np.float32)


def test_elementwise(x):
    expected = 0.5 * x * (1 + np.vectorize(python_math.erf)(x.astype(np.float64) / np.sqrt(2)))
    np.testing.assert_allclose(gelu(x), expected, rtol=2e-6, atol=1e-7)
    gelu.test(x, rtol=0, atol=0)
    assert gelu.target.traits == ("pure", "elementwise")
    a, b = sum_and_difference(x, x[::-1].copy())
    np.testing.assert_array_equal(a, x + x[::-1])
    np.testing.assert_array_equal(b, x - x[::-1])
    assert gelu(np.float32(1.0)).shape == ()
    assert gelu(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_attributes_have_defaults(x):
    np.testing.assert_array_equal(scaled(x), 2 * x)
    np.testing.assert_array_equal(scaled(x, by=3), 3 * x)
    v, c = np.linspace(-1, 1, 7), np.array([1.0, -2.0, 0.5])
    expected = c[0] + c[1] * v + c[2] * v * v
    np.testing.assert_allclose(polynomial(v, c=c), expected + 3, rtol=1e-14)
    np.testing.assert_allclose(polynomial(v, c=c, shift=-4), expected - 4, rtol=1e-14)
    np.testing.assert_allclose(polynomial(v, c=c, negated=True), -expected - 3, rtol=1e-14)


def test_rows(x):
    weight = np.linspace(0.5, 1.5, 33, dtype=np.float32)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(rms_norm(x, weight, eps=1e-5), expected, rtol=2e-6)
    rms_norm.test(x, weight, eps=1e-5, rtol=1e-6)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(softmax(x), e / e.sum(-1, keepdims=True), rtol=2e-6)
    assert rms_norm.target.traits == ("pure", "rows")
    assert str(rms_norm.target.__doc__).endswith("Divides each row by its root mean square.")


def test_large_arrays_on_several_threads():
    big = np.random.default_rng(4).normal(size=(2048, 257)).astype(np.float32)
    np.testing.assert_array_equal(softmax(big), softmax(big, threads=1))


def test_matrices():
    chance = np.random.default_rng(5)
    a, b = (chance.integers(-8, 8, size=s).astype(np.float32) for s in ((7, 19), (19, 23)))
    np.testing.assert_array_equal(matmul(a, b), a @ b)


def test_kernels_call_functions_and_read_constants(x):
    weight = np.ones(33, np.float32)
    np.testing.assert_allclose(through_others(x, weight), 2 * rms_norm(x, weight, eps=0.5) + 3, rtol=2e-6, atol=1e-6)


class Factor(enum.IntEnum):
    TWO = 2
    FIVE = 5

    def __repr__(self) -> str:
        return "a factor"


def test_constants_are_known_by_their_values(x):
    def times(factor, default):
        def scaled(v, by=default):
            return v * by

        @callbox.jit(elementwise=True)
        def f(v: f32) -> f32:
            return scaled(v) * factor

        return f

    for factor in Factor:
        for default in (2.0, np.float32(3)):
            np.testing.assert_array_equal(times(factor, default)(x), x * default * int(factor))


def test_raise_is_a_failure_with_its_text(x):
    with pytest.raises(callbox.CallError, match='the guest says "eps must not be negative"') as raised:
        rms_norm(x, np.ones(33, np.float32), eps=-1)
    assert raised.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ValueError, match="eps must not be negative"):
        rms_norm.__wrapped__(x[0], np.ones(33), np.zeros((5, 33)), eps=-1)


def test_shapes_that_do_not_unify(x):
    with pytest.raises(ValueError, match=r"expected weight: \[n\] with n = 33 \(from x\) but got \[32\]"):
        rms_norm(x, np.ones(32, np.float32), eps=1.0)
    with pytest.raises(TypeError, match="expected dtype float32"):
        gelu(x.astype(np.float64))


@callbox.jit(rows=True)
def sums_of_pairs(x: f32["..", 2 * n], y: f32["..", n], least: f32["..", n // 2 + 1]):
    for r in range(x.shape[0]):
        for i in range(y.shape[1]):
            y[r, i] = x[r, 2 * i] + x[r, 2 * i + 1]
        for i in range(least.shape[1]):
            least[r, i] = x[r, i]


def test_dimensions_are_computed_from_others():
    x = np.arange(24, dtype=np.float32).reshape(2, 2, 6)
    y, least = sums_of_pairs(x)
    np.testing.assert_array_equal(y, x[..., ::2] + x[..., 1::2])
    np.testing.assert_array_equal(least, x[..., :2])
    sums_of_pairs.test(x, rtol=0, atol=0)
    assert [r.dimensions for r in sums_of_pairs.target.results] == [("..", "n"), ("..", "n/2+1")]
    with pytest.raises(ValueError, match=r"expected x: \[.., 2\*n\] but got \[2,2,5\]"):
        sums_of_pairs(x[..., :5])


def test_the_sizes_of_attributes_are_checked():
    @callbox.jit
    def weighted(x: f32[n], y: f32[n], *, a: f32[3], b: f32[n], c: f32[k], d: f32[k]):
        for i in range(x.size):
            y[i] = x[i] * a[2] + b[i] + c[0] + d[0]

    x = np.ones(2, np.float32)
    given = {name: np.ones(count, np.float32) for name, count in (("a", 3), ("b", 2), ("c", 1), ("d", 1))}
    np.testing.assert_array_equal(weighted(x, **given), [4, 4])
    for name, expected in (("a", "3 elements"), ("b", "n elements, as arrays have"), ("d", "k elements")):
        with pytest.raises(callbox.CallError, match=f"attribute `{name}`: expected {expected}") as raised:
            weighted(x, **given | {name: np.ones(7, np.float32)})
        assert raised.value.code == "INVALID_ARGUMENT"


def test_faults_fail_their_call_only():
    @callbox.jit(boundscheck=True)
    def beyond(x: f32[n], y: f32[n]):
        for i in range(x.size):
            y[i] = x[i + 1]

    @callbox.jit
    def far(x: f32[n], y: f32[n]):
        for i in range(x.size):
            y[i] = x[(i + 1) * 1_000_000_000]

    @callbox.jit
    def endless(x: f32[n], y: f32[n]):
        i = 0
        while i >= 0:
            y[0] = x[0] + i
            i = (i + 1) % 7

    ones = np.ones(4, np.float32)
    for kernel, code, options in (
        (beyond, "OUT_OF_RANGE", {}),
        (far, "OUT_OF_RANGE", {}),
        (endless, "DEADLINE_EXCEEDED", {"deadline": 0.2}),
    ):
        with pytest.raises(callbox.CallError) as raised:
            kernel(ones, **options)
        assert raised.value.code == code
    np.testing.assert_array_equal(scaled(ones), 2 * ones)


def test_divisions_by_zero_are_those_of_numpy():
    @callbox.jit(elementwise=True)
    def whole(x: i32, y: i32) -> tuple[i32, i32]:
        return x // y, x % y

    @callbox.jit(elementwise=True)
    def real(x: f32, y: f32) -> f32:
        return x / y

    for kernel, dtype, functions in (
        (whole, np.int32, (np.floor_divide, np.remainder)),
        (real, np.float32, (np.divide,)),
    ):
        x, y = np.array([[3, -3, 0, -7], [0, 0, 0, 2]], dtype)
        with np.errstate(all="ignore"):
            expected = [function(x, y) for function in functions]
        found = kernel(x, y)
        for one, other in zip(found if len(functions) > 1 else (found,), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_exceptions_are_caught():
    @callbox.jit
    def caught(x: f32[n], y: f32[n]):
        for i in range(x.size):
            try:
                y[i] = x[i]
                if x[i] > 1:
                    raise ValueError("too large")
            except Exception:  # noqa: BLE001 - others cannot be caught
                y[i] = -1

    np.testing.assert_array_equal(caught(np.float32([1, 2, 3, 0])), [1, -1, -1, 0])


def test_a_wrong_kernel_fails_its_test():
    @callbox.jit(elementwise=True)
    def noisy(x: f32) -> f32:
        return math.exp(x)

    noisy.test(np.float32([1.0, 2.0]), rtol=0, atol=0)
    noisy._function = lambda x: x
    with pytest.raises(AssertionError, match="y of noisy, and of plain Python"):
        noisy.test(np.float32([1.0, 2.0]))


def test_mathematics_has_the_bits_of_plain_python():
    names = sorted(set(math.__all__) - {"copysign"})
    x = np.float32(
        [0.0, -0.0, 1e-40, -1e-40, 0.3, -0.7, 1.0, 2.5, -3.5, 40.0, -90.0, 88.9, 1e6, np.inf, -np.inf, np.nan]
    )
    for name in names:
        function = getattr(math, name)

        def kernel(v: f32) -> f32:
            return function(v)  # noqa: B023

        compiled = callbox.jit(elementwise=True)(kernel)
        with np.errstate(all="ignore"):
            expected = np.array([function(v) for v in x], dtype=np.float32)
        np.testing.assert_array_equal(compiled(x), expected, err_msg=name)


def test_modules_are_small():
    assert len(scaled.wasm) < 2 << 10
    assert len(gelu.wasm) < 2 << 10
    assert len(rms_norm.wasm) < 4 << 10
    assert len(softmax.wasm) < 4 << 10
    assert len(matmul.wasm) < 4 << 10


def test_saved_modules_need_no_compiler(tmp_path, x):
    path = tmp_path / "softmax.wasm"
    softmax.save(path)
    np.save(tmp_path / "x.npy", x)
    program = (
        "import sys, numpy as np, callbox\n"
        "y = callbox.Host().load(sys.argv[1]).softmax(np.load(sys.argv[2]))\n"
        "assert not {'numba', 'llvmlite', 'callbox._jit'} & set(sys.modules)\n"
        "np.save(sys.argv[3], y)\n"
    )
    arguments = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), softmax(x))


def test_inspect():
    found = rms_norm.inspect()
    assert [o.name for o in found["operands"]] == ["x", "weight"]
    assert [r.dimensions for r in found["results"]] == [("..", "n")]
    assert found["bytes"] == len(rms_norm.wasm)


def test_the_same_source_is_timed_natively(x):
    for seconds in (gelu.time_natively(x), rms_norm.time_natively(x, np.ones(x.shape[-1], np.float32), eps=1e-6)):
        assert 0 < seconds < 10
    # What the kernel refuses is not run natively.
    with pytest.raises(ValueError, match="n"):
        rms_norm.time_natively(x, np.ones(x.shape[-1] + 1, np.float32), eps=1e-6)
