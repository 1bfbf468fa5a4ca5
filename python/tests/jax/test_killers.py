"""Events that once ended the process. Each runs in a process of its own, which must survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

# Every fault, through JAX and directly. The environment names the folder of the guests.
FAULTS = """
import os
import numpy as np

CODES = {
    "unreachable": "ABORTED",
    "divide_by_zero": "ABORTED",
    "read_out_of_bounds": "OUT_OF_RANGE",
    "write_out_of_bounds": "OUT_OF_RANGE",
    "infinite_recursion": "RESOURCE_EXHAUSTED",
    "grow_memory": "RESOURCE_EXHAUSTED",
    "infinite_loop": "DEADLINE_EXCEEDED",
}
POLICY = {"limits": {"deadline_ms": 100, "memory_bytes": 4 << 20}}
X = np.arange(4, dtype=np.float32)

def load(**options):
    import callbox
    return callbox.Host(policy=POLICY, **options).load(os.environ["CALLBOX_GUESTS"] + "/faults.wasm")

def direct(module, name):
    import callbox
    try:
        return module[name](X, result_shape_dtypes=X)
    except callbox.CallError as error:
        return error.code

def jitted(module, name):
    import callbox.jax, jax
    program = jax.jit(lambda x: callbox.jax.call(module[name], x, result_shape_dtypes=x))
    def call():
        try:
            return np.asarray(program(X))
        except Exception as error:
            return str(error)
    return call

def check_all(module):
    good = jitted(module, "healthy")
    for name, code in CODES.items():
        assert direct(module, name) == code, name
        found = jitted(module, name)()
        assert code in found and name in found, (name, found)
        np.testing.assert_array_equal(direct(module, "healthy"), X)
        np.testing.assert_array_equal(good(), X)
"""


@pytest.mark.parametrize("when", ["before", "after the first load", "after the first call"])
def test_faulthandler(python, when):
    program = """
    import faulthandler, sys
    when = sys.argv[1]
    if when == "before":
        faulthandler.enable()
    module = load()
    if when == "after the first load":
        faulthandler.enable()
    direct(module, "read_out_of_bounds")
    if when == "after the first call":
        faulthandler.enable()
    check_all(module)
    print("alive")
    """
    assert python(FAULTS + textwrap.dedent(program), when) == "alive\n"


def test_signals_with_faulthandler_before(python):
    """Traps by signals work with a faulthandler that was enabled first. See the docs of `Host`."""
    program = """
    import faulthandler
    faulthandler.enable()
    check_all(load(traps="signals"))
    print("alive")
    """
    assert python(FAULTS + textwrap.dedent(program)) == "alive\n"


def test_threads_with_small_stacks(python):
    """Such a call raises an exception or succeeds, but never ends in a signal."""
    program = """
    import threading
    module = load()
    programs = {name: jitted(module, name) for name in [*CODES, "healthy"]}
    for call in programs.values():
        call()
    outcomes = []
    def work():
        for name in programs:
            outcomes.append(direct(module, name))
            outcomes.append(programs[name]())
    for kib in (128, 256, 640, 1024):
        threading.stack_size(kib << 10)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(outcomes) == 8 * len(programs)
    threading.stack_size(0)
    check_all(module)
    print("alive")
    """
    assert python(FAULTS + textwrap.dedent(program)) == "alive\n"


@pytest.mark.parametrize(("kib", "depth"), [(32, 1), (96, 63)])
def test_a_first_call_of_a_program_on_a_thread_with_a_small_stack(python, kib, depth):
    """XLA runs small programs on the caller's thread, and the first call prepares the call site."""
    program = """
    import sys, threading
    import callbox, callbox.jax, jax
    kib, depth = int(sys.argv[1]), int(sys.argv[2])
    target = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/typed_ffi.wasm").depth
    shape = jax.ShapeDtypeStruct((2,), np.int32)
    def compiled(depth):
        nested = {"leaf": np.int32(7)}
        for _ in range(depth - 1):
            nested = {"deeper": nested}
        return jax.jit(lambda: callbox.jax.call(target, nested=nested, result_shape_dtypes=shape)).lower().compile()
    # What JAX itself does in a first call takes more than 32 KiB.
    jax.block_until_ready(compiled(2)())
    program = compiled(depth)
    threading.stack_size(kib << 10)
    thread = threading.Thread(target=lambda: print(np.asarray(program()).tolist()))
    thread.start()
    thread.join()
    """
    assert python(FAULTS + textwrap.dedent(program), str(kib), str(depth)) == f"[{depth}, 7]\n"


@pytest.mark.newest
def test_a_trap_on_one_shard_before_a_collective(python):
    """Without a status the other shards would wait, and XLA would end the process."""
    program = """
    import functools, time
    import jax
    jax.config.update("jax_num_cpu_devices", 4)
    import callbox, callbox.jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/broadcast_add.wasm")
    faults = load()
    mesh = Mesh(np.array(jax.devices()), ("i",))
    def body(x):
        branches = [lambda x, name=name: callbox.jax.call(faults[name], x, result_shape_dtypes=x, on_error="status")
                    for name in ("healthy", "read_out_of_bounds")]
        y, status = jax.lax.cond(jax.lax.axis_index("i") == 2, branches[1], branches[0], x)
        return jax.lax.psum(y, "i"), jax.lax.pmax(status, "i")
    program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=(P(), P())))
    x = jax.device_put(np.ones(8, np.float32), NamedSharding(mesh, P("i")))
    jax.block_until_ready(program(x))
    began = time.monotonic()
    y, status = jax.block_until_ready(program(x))
    assert time.monotonic() - began < 2
    assert np.isnan(y).all()
    try:
        callbox.jax.check(status)
    except callbox.CallError as error:
        print(error.code)
    """
    assert python(FAULTS + textwrap.dedent(program)) == "OUT_OF_RANGE\n"


@pytest.mark.newest
@pytest.mark.parametrize("how", ["memory", "instantiate"])
def test_a_call_that_can_not_be_made_ready_on_one_shard_before_a_collective(python, how):
    """A failure before the first call must be a status too, or the other shards would wait."""
    program = """
    import sys
    import jax, jax.numpy as jnp
    jax.config.update("jax_num_cpu_devices", 4)
    import callbox, callbox.jax
    from jax.sharding import Mesh, PartitionSpec as P
    guests = os.environ["CALLBOX_GUESTS"]
    host, small = callbox.Host(), callbox.Host(policy={"limits": {"memory_bytes": 4 << 20}})
    good = callbox.jax.op(host.load(f"{guests}/softmax.wasm").softmax, on_error="status")
    if sys.argv[1] == "memory":
        bad = callbox.jax.op(small.load(f"{guests}/softmax.wasm").softmax, on_error="status")
    else:
        fails = host.load(f"{guests}/typed_ffi.wasm").fails_at
        bad = lambda x: callbox.jax.call(fails, x, stage="instantiate", result_shape_dtypes=x, on_error="status")
    def body(x, broken):
        y, status = jax.lax.cond(jax.lax.axis_index("i") == broken, bad, good, x)
        return jax.lax.psum(y.sum(), "i"), jax.lax.pmax(status, "i")
    mesh = Mesh(np.array(jax.devices()), ("i",))
    program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P("i"), P()), out_specs=(P(), P())))
    x = np.zeros(4 << 20, np.float32)
    for broken in (-1, 2, -1):
        y, status = jax.block_until_ready(program(x, broken))
        print(bool(np.isnan(y)), callbox.error_name(int(status)))
    """
    code = {"memory": "RESOURCE_EXHAUSTED", "instantiate": "FAILED_PRECONDITION"}[how]
    flags = (
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=5 --xla_cpu_collective_call_terminate_timeout_seconds=10"
    )
    printed = python(FAULTS + textwrap.dedent(program), how, XLA_FLAGS=flags)
    assert printed == f"False OK\nTrue {code}\nFalse OK\n"


def test_a_forked_child_calls_and_loads(python):
    """Direct calls, deadlines and loading work in the child, but no programs of JAX."""
    program = """
    import time
    module = load()
    np.testing.assert_array_equal(direct(module, "healthy"), X)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            np.testing.assert_array_equal(direct(module, "healthy"), X)
            began = time.monotonic()
            assert direct(module, "infinite_loop") == "DEADLINE_EXCEEDED"
            assert time.monotonic() - began < 1
            assert direct(module, "read_out_of_bounds") == "OUT_OF_RANGE"
            anew = load()
            np.testing.assert_array_equal(direct(anew, "healthy"), X)
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + 30
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    assert done == (child, 0), done
    np.testing.assert_array_equal(direct(module, "healthy"), X)
    assert direct(module, "infinite_loop") == "DEADLINE_EXCEEDED"
    print("alive")
    """
    assert python(FAULTS + textwrap.dedent(program)) == "alive\n"


def test_a_child_forked_while_threads_call(python):
    """The child must not wait forever for locks that other threads held at the fork."""
    program = """
    import threading, time
    module = load()
    stop = threading.Event()
    def work():
        while not stop.is_set():
            direct(module, "healthy")
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            found = direct(module, "healthy")
            os._exit(0 if isinstance(found, str) or (found == X).all() else 1)
        until = time.monotonic() + 20
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, 9)
        assert done == (child, 0), done
    stop.set()
    for thread in threads:
        thread.join()
    print("alive")
    """
    assert python(FAULTS + textwrap.dedent(program)) == "alive\n"


def test_children_that_are_spawned_jit_their_own_programs(python, tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, os

            def work(n):
                import callbox.jax, jax
                module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm")
                return float(jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=n))(1.0))

            if __name__ == "__main__":
                work(0.0)
                with multiprocessing.get_context("spawn").Pool(2) as pool:
                    print(pool.map(work, [1.0, 2.0]))
            """
        )
    )
    assert python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')") == "[2.0, 3.0]\n"


@pytest.mark.parametrize("how", ["direct", "jitted"])
def test_an_interrupt_waits_for_the_deadline_and_no_longer(guests, how):
    """Control-C does not reach a kernel, but its deadline of 3 seconds does."""
    program = """
    import signal
    import sys
    # A process in the background of a shell begins with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    POLICY["limits"]["deadline_ms"] = 3000
    module = load()
    direct(module, "healthy")
    call = {"direct": lambda: direct(module, "infinite_loop"), "jitted": jitted(module, "infinite_loop")}[sys.argv[1]]
    if sys.argv[1] == "jitted":
        jitted(module, "healthy")()
    print("ready", flush=True)
    try:
        call()
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", FAULTS + textwrap.dedent(program), how],
        env={**os.environ, "CALLBOX_GUESTS": str(guests), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        took = time.monotonic() - began
    finally:
        process.kill()
    assert (output, process.returncode) == ("interrupted\n", 0)
    assert took < 5.5


@pytest.mark.parametrize("fault", ["healthy", "infinite_loop"])
def test_the_interpreter_may_end_while_daemon_threads_call(python, fault):
    """The daemon threads are in direct calls when the main thread ends.

    With jitted programs in such threads JAX itself ends the process, even for ``x + 1``.
    """
    program = """
    import sys, threading, time
    POLICY["limits"]["deadline_ms"] = 1000
    module = load()
    def work():
        while True:
            direct(module, sys.argv[1])
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    print("ends", flush=True)
    """
    for _ in range(3):
        assert python(FAULTS + textwrap.dedent(program), fault, timeout=60) == "ends\n"


@pytest.mark.parametrize("fault", ["healthy", "infinite_loop"])
def test_the_interpreter_may_end_while_jitted_calls_are_under_way(python, fault):
    """Python waits for threads that are not daemons, but not for results that are never used."""
    program = """
    import sys, threading
    POLICY["limits"]["deadline_ms"] = 1000
    module = load()
    call = jitted(module, sys.argv[1])
    healthy = jitted(module, "healthy")
    healthy()
    def work():
        for _ in range(200 if sys.argv[1] == "healthy" else 1):
            call()
    for _ in range(4):
        threading.Thread(target=work).start()
    import jax, callbox.jax
    batch = jax.jit(jax.vmap(lambda x: callbox.jax.call(module.healthy, x, result_shape_dtypes=x)))(np.ones((10_000, 256), np.float32))
    print("ends", flush=True)
    """
    assert python(FAULTS + textwrap.dedent(program), fault, timeout=60) == "ends\n"


def test_the_interpreter_ends_well_with_everything_still_there(python):
    program = """
    import callbox.jax, jax
    module = load()
    program = jax.jit(lambda x: callbox.jax.call(module.healthy, x, result_shape_dtypes=x))
    kept = program(X)
    class Late:
        def __del__(self):
            print(direct(module, "healthy") is not None, flush=True)
    late = Late()
    """
    assert python(FAULTS + textwrap.dedent(program)) in ("True\n", "")
