"""Times a kernel's source as native code of Numba, in a process where Numba is changed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from typing import Any

from . import _child
from ._errors import CompileError

_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from callbox._jit._native import main; main()"
_DEADLINE = 300.0
_CALLS = 100
_LONG_ENOUGH = 1.0


def least_seconds(name: str, request: Any) -> float:
    """The least time of a call.

    Raises:
        CompileError: The function cannot be compiled or called, or the process ended.
    """
    path = json.dumps([path for path in sys.path if isinstance(path, str)])
    sent = io.BytesIO()
    _child.send(sent, request)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, path],
            input=sent.getvalue(),
            stdout=subprocess.PIPE,
            timeout=_DEADLINE,
            check=False,
        )
        answer = _child.receive(io.BytesIO(ended.stdout))
    except (EOFError, OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{name}: the process that times native code ended: {error!r}") from error
    if isinstance(answer, Exception):
        raise answer
    return float(answer)


def main() -> None:
    """Answers one request."""
    # What Numba prints must not become part of the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    payload, signature, options, arguments = _child.receive(sys.stdin.buffer)
    try:
        answer: Any = _timed(payload, signature, options, arguments)
    except CompileError as error:
        answer = error
    except Exception as error:  # noqa: BLE001 - Numba fails in many ways
        answer = CompileError(f"{signature.name}: natively: {type(error).__name__}: {error}")
    _child.send(answers, answer)


def _timed(payload: Any, signature: Any, options: dict[str, bool], arguments: list[Any]) -> float:
    from . import _lower, _numbers

    _numbers.install()
    function = _lower.compile_natively(payload, signature, **options)
    function(*arguments)
    begin = time.perf_counter()
    times: list[float] = []
    while len(times) < _CALLS and (len(times) < 3 or time.perf_counter() - begin < _LONG_ENOUGH):
        before = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - before)
    return min(times)
