"""Children that a process forks beside programs that fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
import jax
import numpy as np
import callbox
import callbox.jax

host = callbox.Host()
kernels = host.load(sys.argv[1])
# Too long for the call site to be known by its text.
message = "m" * 20_000

def fail(x):
    return callbox.jax.call(
        kernels.fail, x, result_shape_dtypes=x, on_error="status", code=9, message=message, recoverable=False
    )

program = jax.jit(jax.vmap(fail))
x = np.ones((64, 4), np.float32)
status = np.asarray(program(x)[1])
is_over = False

def run():
    while not is_over:
        np.asarray(program(x)[1])

threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(40):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            callbox.jax.check(status)
        except callbox.CallError as error:
            host.load(sys.argv[1])
            os._exit(0 if error.code == "FAILED_PRECONDITION" else 3)
        os._exit(4)
    ended = os.waitpid(child, 0)[1]
    if ended:
        print(number, ended)
        break
is_over = True
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_child_knows_the_failures_of_its_parent(guests):
    """It waits for no thread of its parent that keeps one, or looks for a module."""
    arguments = [sys.executable, "-W", "ignore", "-c", PROGRAM, guests / "faults.wasm"]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr[-2000:]
