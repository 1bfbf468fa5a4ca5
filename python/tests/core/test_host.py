"""Hosts: policies, loading, statistics and logs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import callbox

X = np.arange(4, dtype=np.float32)
EMPTY = b"\0asm\1\0\0\0"


def test_the_default_policy_grants_mathematics_alone_and_checks_explicitly(host):
    assert host.policy["traps"] == "explicit"
    assert host.policy["isolation"] == "executable"
    assert host.policy["limits"]["deadline_ms"] == 10_000
    grants = host.policy["grants"]
    assert grants.pop("maths") is True
    assert not any(grants.values())
    assert "explicit" in repr(host)


@pytest.mark.parametrize("form", [dict, json.dumps, lambda policy: json.dumps(policy).encode()])
def test_a_policy_is_a_mapping_or_json(form):
    policy = callbox.Host(policy=form({"limits": {"deadline_ms": 250}}), isolation="fresh", traps="signals").policy
    assert (policy["limits"]["deadline_ms"], policy["isolation"], policy["traps"]) == (250, "fresh", "signals")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"policy": {"nope": 1}}, ValueError, "unknown field `nope`"),
        ({"policy": {"limits": {"deadline_ms": "soon"}}}, ValueError, "soon"),
        ({"policy": "{"}, ValueError, "Expecting property name"),
        ({"policy": 3}, TypeError, "expected a policy as a mapping or as JSON text of an object, found int"),
        ({"policy": "[]"}, TypeError, "found list"),
        ({"traps": "none"}, ValueError, "`none`"),
        ({"isolation": "none"}, ValueError, "`none`"),
        ({"traps": "signals", "policy": {"traps": "explicit"}}, ValueError, "expected one traps"),
        ({"polcy": {}}, TypeError, "polcy"),
    ],
)
def test_a_policy_that_is_wrong_is_an_error(options, kind, message):
    with pytest.raises(kind, match=message):
        callbox.Host(**options)


def test_a_module_is_loaded_from_a_path_or_from_bytes(host, guests):
    path = guests / "add_n.wasm"
    modules = [host.load(path), host.load(str(path)), host.load(path.read_bytes())]
    assert {module.digest for module in modules} == {hashlib.sha256(path.read_bytes()).hexdigest()}
    assert modules[0] == modules[1] == modules[2]


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("/nowhere/kernels.wasm", FileNotFoundError, r"/nowhere/kernels\.wasm"),
        (b"junk", callbox.CallError, "expected a WebAssembly module"),
        (EMPTY, ValueError, "the module has no targets"),
        (3, TypeError, "expected the path of a .wasm file or its bytes, found int"),
        ("/", OSError, "/"),
    ],
)
def test_what_is_no_module_is_an_error(host, source, kind, message):
    with pytest.raises(kind, match=message):
        host.load(source)


def test_a_module_without_targets_is_named(host, tmp_path):
    path = tmp_path / "empty.wasm"
    path.write_bytes(EMPTY)
    with pytest.raises(ValueError, match=r"empty\.wasm: the module has no targets"):
        host.load(path)


def test_an_import_that_is_not_granted_is_refused(host, guests):
    with pytest.raises(callbox.CallError, match="not granted") as raised:
        host.load(guests / "table.wasm")
    assert raised.value.code == "PERMISSION_DENIED"


def test_native_code_takes_a_grant(host, guests, tmp_path):
    (tmp_path / "callbox.json").write_text("{}")
    with pytest.raises(callbox.CallError):
        host.load(guests / "add_n.wasm", native=tmp_path / "callbox.json")


def test_stats_count_calls_bytes_and_failures(host, guests):
    assert host.stats() == {"calls": 0, "bytes_in": 0, "bytes_out": 0, "failures": {}}
    add_n = host.load(guests / "add_n.wasm").add_n
    add_n(X, n=1.0)
    for _ in range(2):
        with pytest.raises(callbox.CallError):
            add_n(X, n=-1.0)
    # An operand that does not match the metadata is not counted as a call.
    with pytest.raises(TypeError):
        add_n(X)
    assert host.stats() == {"calls": 3, "bytes_in": 48, "bytes_out": 16, "failures": {"INVALID_ARGUMENT": 2}}


def test_logs_are_there_if_they_are_granted(guests):
    silent = callbox.Host()
    silent.load(guests / "faults.wasm").log_flood(X, result_shape_dtypes=X)
    assert silent.take_logs() == []
    heard = callbox.Host(policy={"grants": {"log": "info"}})
    heard.load(guests / "faults.wasm").log_flood(X, result_shape_dtypes=X)
    logs = heard.take_logs()
    assert 0 < len(logs) <= 1024
    assert logs[0] == {"level": "info", "message": "0123456789abcdef" * 64}
    assert heard.take_logs() == []


def test_a_cache_keeps_compiled_modules(guests, tmp_path):
    folder = tmp_path / "cache"
    for _ in range(2):
        module = callbox.Host(cache_dir=folder).load(guests / "add_n.wasm")
        np.testing.assert_array_equal(module.add_n(X, n=1.0), X + 1)
    assert list(folder.iterdir())


def test_a_limit_of_the_policy_holds(guests):
    module = callbox.Host(policy={"limits": {"memory_bytes": 4 << 20}}).load(guests / "faults.wasm")
    with pytest.raises(callbox.CallError, match="the limit is 4194304") as raised:
        module.grow_memory(X, result_shape_dtypes=X)
    assert raised.value.code == "RESOURCE_EXHAUSTED"


def test_a_guest_may_have_a_large_stack(guests):
    host = callbox.Host(policy={"limits": {"stack_bytes": 4 << 20}})
    assert host.load(guests / "add_n.wasm").add_n(np.ones(3, np.float32), n=1.0).tolist() == [2, 2, 2]


_LOGS = """
import logging, os, signal, sys, threading
import numpy as np
import callbox

host = callbox.Host(policy={"grants": {"log": "trace"}})
kernels = host.load(sys.argv[1])
x = np.zeros(4, np.float32)
is_over = False

def log():
    while not is_over:
        kernels.log_flood(x, result_shape_dtypes=x)

def fork():
    for number in range(30):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            kernels.log_flood(x, result_shape_dtypes=x)
            host.take_logs()
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        if ended:
            print(number, ended)
            break

threads = [threading.Thread(target=log) for _ in range(4)]
forking = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads + forking:
    thread.start()
for thread in forking:
    thread.join()
is_over = True
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_child_waits_for_no_thread_that_logs(guests):
    """It does not have that thread. Nor do forks wait for others, which `logging` delays."""
    arguments = [sys.executable, "-W", "ignore", "-c", _LOGS, guests / "faults.wasm"]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr[-2000:]
