"""Calls that several threads share, from NumPy."""

import os

import numpy as np
import pytest

import callbox


def test_any_number_of_threads_gives_the_same_bits(load):
    x = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
    add_n, softmax = load("add_n").add_n, load("softmax").softmax
    np.testing.assert_array_equal(add_n(x, n=1.5), x + np.float32(1.5))
    alone = softmax(x, threads=1)
    np.testing.assert_allclose(alone.sum(axis=-1), 1, rtol=1e-5)
    for threads in (None, 2, 100):
        np.testing.assert_array_equal(add_n(x, n=1.5, threads=threads), x + np.float32(1.5))
        np.testing.assert_array_equal(softmax(x, threads=threads), alone)


def test_the_number_is_at_least_one(load):
    x = np.zeros(4, np.float32)
    add_n = load("add_n").add_n
    for threads in (0, -1):
        with pytest.raises(ValueError, match=f"expected threads to be 1 or more, found {threads}"):
            add_n(x, n=1, threads=threads)
    with pytest.raises(TypeError):
        add_n(x, n=1, threads="2")


def test_the_policy_limits_the_number(guests):
    x = np.arange(1 << 20, dtype=np.float32)
    for threads in (0, 1, 3):
        host = callbox.Host(policy={"limits": {"threads": threads}})
        add_n = host.load(guests / "add_n.wasm").add_n
        np.testing.assert_array_equal(add_n(x, n=1, threads=8), x + 1)


def test_out_may_be_an_operand_or_overlap_one(load):
    add_n, softmax, rms_norm = load("add_n").add_n, load("softmax").softmax, load("rms_norm").rms_norm
    values = np.random.default_rng(1).normal(size=(1024, 512)).astype(np.float32)
    weight = values[7].copy()
    for threads in (1, 2):
        same = values.copy()
        add_n(same, n=1.5, out=same, threads=threads)
        np.testing.assert_array_equal(same, values + np.float32(1.5))
        for is_later in (False, True):
            memory = np.concatenate([values.ravel(), np.zeros(8, np.float32)])
            parts = memory[:-8], memory[8:]
            x, out = parts if is_later else parts[::-1]
            expected = x + np.float32(1.5)
            add_n(x, n=1.5, out=out, threads=threads)
            np.testing.assert_array_equal(out, expected)
        rows = values.copy()
        softmax(rows, out=rows, threads=threads)
        np.testing.assert_array_equal(rows, softmax(values, threads=1))
        rows = values.copy()
        rms_norm(values, rows[7], eps=1e-5, out=rows, threads=threads)
        np.testing.assert_array_equal(rows, rms_norm(values, weight, eps=1e-5, threads=1))


def _leb(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _leb(number >> 7)


def _sized(content: bytes) -> bytes:
    return _leb(len(content)) + content


#: In pseudocode: `if x[0] != 0: return FAILED_PRECONDITION`, else fill `y` with 7. The frame has
#: the operands at offset 8 and the results at offset 16; each begins with its data and size in
#: bytes.
_FILL = (
    b"\x00\x20\x00\x28\x02\x08\x28\x02\x00\x2d\x00\x00\x04\x40\x41\x09\x0f\x0b"
    b"\x20\x00\x28\x02\x10\x28\x02\x00\x41\x07\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0b\x00\x41\x00\x0b"
)

_TARGETS = b"""{"name": "fill", "traits": ["elementwise"],
    "operands": [{"name": "x", "element_types": ["u8"], "dimensions": [".."]}],
    "results": [{"name": "y", "element_types": ["u8"], "dimensions": [".."]}]}"""

#: The elementwise target `fill`, which fails where a piece begins with another number than 0.
_GUEST = b"\x00asm\x01\x00\x00\x00" + b"".join(
    bytes([number]) + _sized(content)
    for number, content in [
        (1, b"\x01\x60\x01\x7f\x01\x7f"),
        (3, b"\x01\x00"),
        (5, b"\x01\x00\x01"),
        (7, b"\x02\x04fill\x00\x00\x06memory\x02\x00"),
        (10, b"\x01" + _sized(_FILL)),
        (0, _sized(b"callbox.targets") + _TARGETS),
    ]
)


@pytest.mark.parametrize("threads", [1, 2, None])
def test_out_is_restored_when_a_later_piece_fails(host, threads):
    fill = host.load(_GUEST).fill
    before = np.random.default_rng(2).integers(256, size=1 << 20, dtype=np.uint8)
    x, out = np.zeros_like(before), before.copy()
    fill(x, out=out, threads=threads)
    assert (out == 7).all()
    # The target sees the first number of each piece alone, wherever a piece begins.
    x[len(x) // 2 :] = 1
    out[:] = before
    for _ in range(2):
        with pytest.raises(callbox.CallError, match="FAILED_PRECONDITION"):
            fill(x, out=out, threads=threads)
        np.testing.assert_array_equal(out, before)
    same = x.copy()
    with pytest.raises(callbox.CallError, match="FAILED_PRECONDITION"):
        fill(same, out=same, threads=threads)
    np.testing.assert_array_equal(same, x)
    x[:] = 0
    fill(x, out=out, threads=threads)
    assert (out == 7).all()


FORKS = """
import os, sys, threading, time, warnings
import numpy as np
import callbox

class Slow:
    def __array__(self, *args, **options):
        inside.set()
        is_over.wait()
        return np.ones(1, np.float32)

inside, is_over = threading.Event(), threading.Event()
add_n = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm").add_n
thread = threading.Thread(target=add_n, args=(Slow(),), kwargs={"n": 1.0})
thread.start()
inside.wait()
warnings.simplefilter("ignore")
times = []
for _ in range(4):
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    times.append(time.monotonic() - begun)
is_over.set()
thread.join()
# A child that waited would take this long at least.
print(min(times) < 2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_child_ends_without_waiting_for_calls_of_its_parent(python):
    assert python(FORKS) == "True\n"


IMPORTS = """
import builtins, os, signal, sys, threading, warnings
import numpy as np
import callbox

def slow(name, *args, **options):
    if name == "numpy" and threading.current_thread() is not threading.main_thread():
        inside.set()
        is_over.wait()
    return imports(name, *args, **options)

inside, is_over = threading.Event(), threading.Event()
add_n = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm").add_n
x = np.ones(1, np.float32)
imports, builtins.__import__ = builtins.__import__, slow
thread = threading.Thread(target=add_n, args=(x,), kwargs={"n": 1.0})
thread.start()
assert inside.wait(60)
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(add_n(x, n=1.0), flush=True)
    os._exit(0)
ended = os.waitpid(child, 0)[1]
is_over.set()
thread.join()
print(ended)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_child_does_not_wait_for_what_its_parent_imports(python):
    """Each first call needs NumPy, and a thread may be in the middle of finding it."""
    assert python(IMPORTS) == "[2.]\n0\n"
