"""Targets and modules as Python objects: weak references, copies and pickles."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import re
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import callbox
from callbox._errors import retold

X = np.arange(3, dtype=np.float32)


@pytest.fixture
def kernels(host, guests) -> callbox.Module:
    return host.load(guests / "add_n.wasm")


def test_weak_references(kernels):
    for thing in (kernels, kernels.add_n):
        assert weakref.ref(thing)() is thing
    target = kernels["add_n"]
    by_target = weakref.WeakKeyDictionary({target: 1})
    assert by_target[kernels.add_n] == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_are_the_same_object(kernels, copied):
    assert copied(kernels) is kernels
    assert copied(kernels.add_n) is kernels.add_n


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_within_a_process(kernels, protocol):
    module, target = pickle.loads(pickle.dumps((kernels, kernels.add_n), protocol))
    assert module == kernels
    assert target == kernels.add_n
    np.testing.assert_array_equal(target(X, n=1.0), X + 1)


def test_pickles_of_modules_that_are_gone(guests):
    # A policy that no other module of this process has.
    module = callbox.Host(policy={"limits": {"deadline_ms": 4321}}).load(guests / "add_n.wasm")
    pickled = pickle.dumps(module.add_n)
    digest = module.digest
    del module
    gc.collect()
    with pytest.raises(callbox.CallError, match=f"NOT_FOUND: unpickling add_n.wasm: .*{digest}.*load the same file"):
        pickle.loads(pickled)


@pytest.mark.parametrize("policy", [None, {"limits": {"deadline_ms": 1234}, "grants": {"clock": True}}])
def test_an_unknown_pickle_tells_how_to_make_the_host(guests, tmp_path, policy):
    # With a custom section, it is a file that no other test loads.
    file = tmp_path / "add_n.wasm"
    file.write_bytes((guests / "add_n.wasm").read_bytes() + b"\x00\x02\x01p")
    module = callbox.Host(policy=policy).load(file)
    pickled = pickle.dumps(module)
    del module
    gc.collect()
    with pytest.raises(callbox.CallError) as raised:
        pickle.loads(pickled)
    host = re.search(r"keep the module: (callbox\.Host\(.*\))\.load\(\.\.\.\)", raised.value.message)
    assert host is not None
    assert len(host[1]) < 100
    again = eval(host[1]).load(file)
    assert pickle.loads(pickled) == again


def test_pickles_in_another_process(kernels, guests):
    program = """
import pickle, sys
import callbox
from callbox._errors import retold
import numpy as np
pickled = bytes.fromhex(sys.argv[2])
try:
    pickle.loads(pickled)
except callbox.CallError as error:
    print(error.code, error.module)
module = callbox.Host().load(sys.argv[1])
print(pickle.loads(pickled)(np.ones(2, np.float32), n=1.0))
"""
    arguments = [str(guests / "add_n.wasm"), pickle.dumps(kernels.add_n).hex()]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("NOT_FOUND add_n.wasm\n[2. 2.]\n", "")


def test_failures_name_module_and_target(host, guests):
    faults = host.load(guests / "faults.wasm")
    with pytest.raises(callbox.CallError) as raised:
        faults.panic(X, result_shape_dtypes=X)
    assert (raised.value.module, raised.value.target) == ("faults.wasm", "panic")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.module, again.target, again.backtrace) == ("faults.wasm", "panic", raised.value.backtrace)
    refused = callbox.CallError("ABORTED", "a message")
    assert (refused.module, refused.target) == (None, None)


def test_operands_by_name(host, guests):
    rms_norm = host.load(guests / "rms_norm.wasm").rms_norm
    x, weight = np.ones((2, 3), np.float32), np.full(3, 2, np.float32)
    expected = rms_norm(x, weight, eps=0.0)
    np.testing.assert_array_equal(rms_norm(x, weight=weight, eps=0.0), expected)
    np.testing.assert_array_equal(rms_norm(eps=0.0, weight=weight, x=x), expected)
    signature = inspect.signature(rms_norm)
    assert signature.bind(x, weight=weight, eps=0.0).arguments["weight"] is weight
    with pytest.raises(TypeError, match=r"expected the operand \"x\" before \"weight\", found none"):
        rms_norm(weight=weight, eps=0.0)
    with pytest.raises(TypeError, match=r"expected the operand \"x\" once, found it by position and by name"):
        rms_norm(x, weight, x=x, eps=0.0)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"TypeError: add_n\(\): expected the attributes \"n\", found another \"N\" and no \"n\"",
            lambda f: f(X, N=1.0),
        ),
        (
            r"TypeError: add_n\(\): expected out to be an array that can be written, or a tuple of them, found a list "
            "of 3 numbers",
            lambda f: f(X, n=1.0, out=[0, 0, 0]),
        ),
        (
            r"ValueError: add_n\(\): result 0 \(y\): expected shape \(3,\) for these operands, found shape \(4,\)",
            lambda f: f(X, n=1.0, result_shape_dtypes=("float32", (4,))),
        ),
        (
            r"TypeError: add_n\(\): result 0 \(y\): expected dtype float32, found float64",
            lambda f: f(X, n=1.0, result_shape_dtypes=("float64", (3,))),
        ),
    ],
)
def test_messages(kernels, message, call):
    kind, text = message.split(": ", 1)
    with pytest.raises({"TypeError": TypeError, "ValueError": ValueError}[kind], match=f"^{text}$"):
        call(kernels.add_n)


def test_the_signature_of_very_many_operands(host, assemble):
    # The time must not grow with the square of their number.
    operands = [{}] * 1021 + [{"name": "_1024"}, {"name": "x"}, {"name": "x"}]
    target = host.load(assemble({"t": b"\x41\x00"}, [{"name": "t", "operands": operands}])).t
    begun = time.monotonic()
    names = list(inspect.signature(target).parameters)
    assert time.monotonic() - begun < 10
    assert names[:2] == ["_0", "_1"]
    assert names[1021:1024] == ["_1024", "x", "_1021"]
    # A line is for people.
    assert "... 960 more" in repr(target)
    assert len(repr(target)) < 2000


def test_a_failure_in_other_words_keeps_its_details():
    given = {"recoverable": True, "blame": "host", "backtrace": ("f",), "module": "m.wasm", "target": "t"}
    for kind in [callbox.CallError, callbox.InvalidArgumentError]:
        told = retold(kind("ABORTED", "one", **given), "other")
        assert (type(told), told.code, told.message, str(told)) == (kind, "ABORTED", "other", "ABORTED: other")
        assert {name: getattr(told, name) for name in given} == given
