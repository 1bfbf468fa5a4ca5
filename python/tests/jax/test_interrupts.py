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
