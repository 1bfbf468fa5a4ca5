"""Ctrl-C during direct calls, in processes of their own."""

import subprocess
import sys
import textwrap

import pytest

#: Sends an interrupt once the main thread is at the line that has the word SPIN in a comment. The
#: deadlines are far longer than the tests wait.
PRELUDE = """
import faulthandler, os, signal, sys, threading, time
import numpy as np
import callbox

# Processes in the background of a shell ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt_when_spinning(times=1):
    main = threading.main_thread().ident
    source = open(sys.argv[2]).read().splitlines()
    def send():
        for _ in range(times):
            while True:
                frame = sys._current_frames()[main]
                while frame is not None and frame.f_back is not None:
                    frame = frame.f_back
                if frame is not None and "# SPIN" in source[frame.f_lineno - 1]:
                    break
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
    threading.Thread(target=send, daemon=True).start()

host = callbox.Host(policy={"limits": {"deadline_ms": 600_000}})
faults = host.load(sys.argv[1] + "/faults.wasm")
add_n = host.load(sys.argv[1] + "/add_n.wasm").add_n
x = np.ones(3, np.float32)
out = np.full(3, 7, np.float32)
spin = lambda **options: faults.infinite_loop(x, result_shape_dtypes=x, **options)
"""


def run(guests, tmp_path, program):
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, path, str(guests), str(path)], capture_output=True, text=True, timeout=240, check=False
    )


def check(done):
    assert (done.returncode, done.stdout.split()) == (0, ["done"]), done.stdout + done.stderr


@pytest.mark.parametrize("enable", ["", "faulthandler.enable(); faulthandler.dump_traceback_later(200, exit=True)"])
def test_a_direct_call_raises_keyboard_interrupt(guests, tmp_path, enable):
    program = f"""
    {enable}
    handler = signal.getsignal(signal.SIGINT)
    interrupt_when_spinning(2)
    for _ in range(2):
        try:
            spin(out=out)  # SPIN
        except KeyboardInterrupt:
            assert (out == 7).all()
            assert (add_n(x, n=1, out=out) == 2).all()
            out[:] = 7
        else:
            raise SystemExit("no interrupt")
    assert signal.getsignal(signal.SIGINT) is handler is signal.default_int_handler
    assert host.stats()["failures"] == {{"CANCELLED": 2}}, host.stats()
    print("done")
    """
    check(run(guests, tmp_path, program))


def test_the_stage_instantiate_is_cancelled(guests, staged, tmp_path):
    path = tmp_path / "staged.wasm"
    path.write_bytes(staged(instantiate="runs on"))
    program = f"""
    f = host.load({str(path)!r}).f
    interrupt_when_spinning(2)
    for _ in range(2):
        try:
            f(x, out=out)  # SPIN
        except KeyboardInterrupt:
            assert (out == 7).all()
        else:
            raise SystemExit("no interrupt")
    # The target itself never ran.
    assert host.stats()["calls"] == 0, host.stats()
    print("done")
    """
    check(run(guests, tmp_path, program))


def test_a_load_raises_keyboard_interrupt(guests, tmp_path):
    """Its compilation would take minutes."""

    def uleb(number):
        return bytes([128 | number & 127, number >> 7])

    def sized(content):
        return uleb(len(content)) + content

    # Many locals that are live in nested loops compete for registers.
    number = 1000
    counts = b"".join(b"\x20" + uleb(i) + b"\x41\1\x6a\x21" + uleb(i) for i in range(1, number + 1))
    loops = number * b"\x03\x40" + counts + number * b"\x20\0\x0d\0\x0b"
    body = b"\1" + uleb(number) + b"\x7f" + loops + b"\x41\0\x0b"
    module = b"\0asm\1\0\0\0\1\6\1\x60\1\x7f\1\x7f\3\2\1\0\5\3\1\0\1\7\x0e\2\1f\0\0\6memory\2\0"
    (tmp_path / "loops.wasm").write_bytes(module + b"\x0a" + sized(b"\1" + sized(body)))
    program = f"""
    limits = {{"compile_time_ms": 600_000, "function_work": 10**15, "module_work": 10**15}}
    host = callbox.Host(policy={{"limits": limits}})
    interrupt_when_spinning(2)
    for load in (host.load, lambda path: callbox.load(path, host=host)):
        try:
            load({str(tmp_path / "loops.wasm")!r})  # SPIN
        except KeyboardInterrupt:
            assert add_n(x, n=1).tolist() == [2, 2, 2]
        else:
            raise SystemExit("no interrupt")
    print("done")
    """
    check(run(guests, tmp_path, program))


def test_an_uncaught_interrupt_ends_the_process_as_ever(guests, tmp_path):
    done = run(guests, tmp_path, "interrupt_when_spinning()\nspin()  # SPIN")
    assert done.returncode == -2, done
    assert done.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_a_handler_that_was_set_again_keeps_the_interrupt(guests, tmp_path):
    """Jupyter sets Python's handler again for each cell."""
    program = """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_when_spinning()
    try:
        spin()  # SPIN
    except KeyboardInterrupt:
        print("done")
    """
    check(run(guests, tmp_path, program))


def test_a_handler_of_the_programs_own_leaves_calls_alone(guests, tmp_path):
    program = """
    received = []
    signal.signal(signal.SIGINT, lambda *_: received.append(1))
    interrupt_when_spinning()
    try:
        spin(deadline=3)  # SPIN
    except callbox.CallError as error:
        assert error.code == "DEADLINE_EXCEEDED", error
        assert received == [1]
        print("done")
    """
    check(run(guests, tmp_path, program))


def test_a_call_on_another_thread_goes_on(guests, tmp_path):
    program = """
    codes = []
    def work():
        try:
            spin(deadline=5)
        except callbox.CallError as error:
            codes.append(error.code)
    thread = threading.Thread(target=work)
    thread.start()
    interrupt_when_spinning()
    try:
        spin()  # SPIN
    except KeyboardInterrupt:
        thread.join()
        assert codes == ["DEADLINE_EXCEEDED"], codes
        print("done")
    """
    check(run(guests, tmp_path, program))


def test_an_interrupt_before_the_call_is_raised_before_it(guests, tmp_path):
    """No interrupt is lost between two instructions: many at random times all raise."""
    program = """
    import random
    raised = 0
    begun = 0
    end = time.monotonic() + 600
    def send():
        for count in range(100):
            while begun <= count and time.monotonic() < end:
                time.sleep(0.0005)
            time.sleep(random.random() / 500)
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()
    while raised < 100:
        try:
            begun = raised + 1
            while True:
                add_n(x, n=1)
                spin()
        except KeyboardInterrupt:
            raised += 1
    print("done")
    """
    check(run(guests, tmp_path, program))
