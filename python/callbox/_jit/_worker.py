"""The side of the calling process: it starts the compiler's process and sends it requests."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from . import _child
from ._errors import CompileError

#: The program of the compiler's process.
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from callbox._jit._child import main; main()"

#: The most seconds for one kernel.
DEADLINE = 300.0


class Worker:
    """One compiler's process, started on demand and again after it ended."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: IO[bytes] | None = None
        self.owner = 0
        self.is_ready = False
        self.is_stopped = False

    def _start(self) -> None:
        if self.is_stopped:
            raise CompileError("the compiler has ended, because the interpreter ends")
        if self.process is not None and self.owner == os.getpid():
            if self.process.poll() is None:
                return
            self._end()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read after the process ended
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
        # LLVM optimises later, for another machine. Numba's own cache is not used.
        environment.update(NUMBA_OPT="0", NUMBA_LOOP_VECTORIZE="0", NUMBA_ENABLE_CUDASIM="0")
        self.process = subprocess.Popen(
            # Python's imports leave other entries out, too. With `-P`, nothing of the working
            # folder is imported before the path is set.
            [sys.executable, "-P", "-c", PROGRAM, json.dumps([path for path in sys.path if isinstance(path, str)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )
        self.owner = os.getpid()
        self.is_ready = False

    def forget(self) -> None:
        """Leaves the process to the parent, after a fork, and a lock to the parent's thread."""
        self.lock = threading.Lock()
        process, self.process = self.process, None
        if process is not None and process.stdin is not None:
            # What is left in the buffer must not reach the parent's compiler.
            null = os.open(os.devnull, os.O_WRONLY)
            with contextlib.suppress(ValueError):
                os.dup2(null, process.stdin.fileno())
            os.close(null)

    def stop(self) -> None:
        """Ends the process, if this process started it, also while threads wait for it.

        Nothing is compiled later.
        """
        self.is_stopped = True
        while not self.lock.acquire(timeout=0.1):
            process = self.process
            if process is not None and self.owner == os.getpid():
                process.kill()
        try:
            self._end()
        finally:
            self.lock.release()

    def _end(self) -> int | None:
        process, self.process = self.process, None
        if process is None or self.owner != os.getpid():
            return None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def compile(self, name: str, request: Any) -> bytes:
        """Compiles one kernel.

        Raises:
            CompileError: The function cannot become a kernel, or the process ended.
        """
        with self.lock:
            self._start()
            process = self.process
            assert process is not None
            timer = threading.Timer(DEADLINE, process.kill)
            timer.start()
            try:
                answer = self._ask(process, request)
            except (EOFError, OSError) as error:
                raise CompileError(f"{name}: {self._ending(process)}") from error
            except BaseException:
                # What was asked is unanswered, and its answer must not become the next one's.
                process.kill()
                self._end()
                raise
            finally:
                timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    def _ask(self, process: subprocess.Popen[bytes], request: Any) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        if not self.is_ready:
            if (problem := _child.receive(process.stdout)) is not None:
                self._end()
                return problem
            self.is_ready = True
        _child.send(process.stdin, request)
        return _child.receive(process.stdout)

    def _ending(self, process: subprocess.Popen[bytes]) -> str:
        """How the process ended, and what it wrote last."""
        self._end()
        assert self.errors is not None
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read()[-4000:].decode(errors="replace").splitlines()]
        said = next(
            (line for line in reversed(lines) if line.startswith("LLVM ERROR")), next(filter(None, reversed(lines)), "")
        )
        code = process.returncode
        how = f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
        return f"the compiler's process ended ({how}){': ' + said if said else ''}"


#: The compiler's process of this process.
WORKER = Worker()
atexit.register(WORKER.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER.forget)
