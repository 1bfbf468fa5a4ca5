"""Ctrl-C while a program runs, in processes of their own."""

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import os, signal, sys, threading, time
import jax
import jax.numpy as jnp
import numpy as np
import callbox
import callbox.jax

# Processes in the background of a shell ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)

host = callbox.Host(policy={"limits": {"deadline_ms": 600_000}})
spin = callbox.jax.op(host.load(sys.argv[1] + "/faults.wasm").infinite_loop, result_shape_dtypes=lambda x: x)
add_n = callbox.jax.op(host.load(sys.argv[1] + "/add_n.wasm").add_n)
x = jnp.ones(3)

# A spinning guest and a healthy one in one program, which has succeeded before.
program = jax.jit(lambda x, spins: jax.lax.cond(spins, spin, lambda x: add_n(x, n=1.0), x))
assert float(program(x, False)[0]) == 2

def interrupt_later():
    def send():
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()

def is_interrupted(run):
    interrupt_later()
    try:
        run()
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except Exception as error:
        # The next instruction may raise KeyboardInterrupt.
        return callbox.errors.from_jax(error).code
"""


def run(guests, program):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(guests)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["done"]), done.stdout + done.stderr


@pytest.mark.parametrize(
    "wait",
    [
        "program(x, True).block_until_ready()",
        "np.asarray(program(x, True))",
        "jax.block_until_ready(jax.vmap(program, (0, None))(jnp.ones((4, 3)), True))",
    ],
)
def test_a_program_is_cancelled(guests, wait):
    program = f"""
    for _ in range(2):
        try:
            print(is_interrupted(lambda: {wait}))
        except KeyboardInterrupt:
            print("late KeyboardInterrupt")
        assert float(program(x, False)[0]) == 2
    assert host.stats()["failures"].get("CANCELLED", 0) >= 1, host.stats()
    print("done")
    """
    run(guests, program)


def test_the_stage_instantiate_of_a_program_is_cancelled(guests, staged, tmp_path):
    path = tmp_path / "staged.wasm"
    path.write_bytes(staged(instantiate="runs on"))
    program = f"""
    f = callbox.jax.op(host.load({str(path)!r}).f, result_shape_dtypes=lambda x: x)
    program = jax.jit(f)
    try:
        print(is_interrupted(lambda: program(x).block_until_ready()))
    except KeyboardInterrupt:
        print("late KeyboardInterrupt")
    # The only call is the one of add_n before.
    assert host.stats()["calls"] == 1, host.stats()
    print("done")
    """
    run(guests, program)


#: Programs whose calls are short. They end for a count of 0.
LOOPS = {
    "fori_loop": "jax.lax.fori_loop(0, count, lambda i, x: add_n(x, n=1.0), x)",
    "while_loop": "jax.lax.while_loop(lambda x: x[0] < count, lambda x: add_n(x, n=0.0), x)",
    "scan": """jax.lax.cond(
        count > 0, lambda x: jax.lax.scan(lambda x, _: (add_n(x, n=1.0), None), x, length=1 << 30)[0], lambda x: x, x
    )""",
}

#: Sends the signal when a run has made calls.
INTERRUPT_CALLS = """
def interrupt_calls():
    begun = host.stats()["calls"]
    def send():
        while host.stats()["calls"] < begun + 100:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()
"""


@pytest.mark.newest
@pytest.mark.parametrize("loop", LOOPS)
def test_a_program_of_many_short_calls_is_cancelled(guests, loop):
    """XLA tells the run of a call, so that the calls after the interrupt are known."""
    program = f"""
short_calls = jax.jit(lambda x, count: {LOOPS[loop]})
short_calls(x, 0).block_until_ready()
{INTERRUPT_CALLS}
for number in range(1, 4):
    interrupt_calls()
    try:
        short_calls(x, 1 << 30).block_until_ready()
        print("not cancelled")
    except KeyboardInterrupt:
        pass
    except Exception as error:
        try:
            assert callbox.errors.from_jax(error).code == "CANCELLED", error
        except KeyboardInterrupt:
            pass
    # One call of the run failed, and ended it. The program's next runs have other numbers.
    assert host.stats()["failures"] == {{"CANCELLED": number}}, host.stats()
    for _ in range(20):
        short_calls(x, 0).block_until_ready()
        assert float(program(x, False)[0]) == 2
        assert float(add_n(x, n=1.0)[0]) == 2
# The numbers do not begin again when the program is compiled again.
jax.clear_caches()
for _ in range(200):
    short_calls(x, 0).block_until_ready()
    program(x, False).block_until_ready()
assert host.stats()["failures"] == {{"CANCELLED": 3}}, host.stats()
print("done")
"""
    run(guests, program)


@pytest.mark.newest
def test_a_program_in_the_background_is_cancelled(guests):
    """The interrupt comes while the main thread runs Python, which handles it at once."""
    program = f"""
loop = jax.jit(lambda x, count: {LOOPS["fori_loop"]})
loop(x, 1).block_until_ready()
found = []

def run_loop():
    try:
        loop(x, 1 << 30).block_until_ready()
    except Exception as error:
        found.append(callbox.errors.from_jax(error).code)

{INTERRUPT_CALLS}
interrupt_calls()
worker = threading.Thread(target=run_loop)
try:
    # On a busy machine the interrupt comes before this returns.
    worker.start()
    while True:
        pass
except KeyboardInterrupt:
    # New runs go on at once.
    assert float(loop(x, 5)[0]) == 6
worker.join()
assert found == ["CANCELLED"], found
assert host.stats()["failures"] == {{"CANCELLED": 1}}
print("done")
"""
    run(guests, program)


@pytest.mark.newest
def test_statuses_of_an_interrupted_run(guests):
    """A run that goes on with statuses has CANCELLED for each of its later calls."""
    program = f"""
guarded = callbox.jax.op(host.load(sys.argv[1] + "/add_n.wasm").add_n, on_error="status")

def step(carry):
    x, failed = carry
    y, status = guarded(x, n=1.0)
    return jnp.where(status == 0, y, x), failed + (status == 1)

def until(x, count):
    return jax.lax.while_loop(lambda carry: carry[1] < count, step, (x, jnp.int32(0)))[1]

until = jax.jit(until)
until(x, 0).block_until_ready()
{INTERRUPT_CALLS}
interrupt_calls()
try:
    until(x, 1000).block_until_ready()
except KeyboardInterrupt:
    pass
assert host.stats()["failures"] == {{"CANCELLED": 1000}}, host.stats()
assert int(guarded(x, n=1.0)[1]) == 0
print("done")
"""
    run(guests, program)
