"""The compiler's process: it answers requests on its standard input until that ends."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from typing import IO, Any

from ._errors import CompileError


def send(stream: IO[bytes], message: Any) -> None:
    """Sends a message with its length."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Receives a message.

    Raises:
        EOFError: The other side has ended.
    """
    length = struct.unpack("<I", _exactly(stream, 4))[0]
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def main() -> None:
    """Compiles one kernel after another."""
    # What Numba prints must not become part of an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    # Numba would import it to find a BLAS, which no kernel can call.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        from . import _lower

        _lower.prepare()
    except ImportError as error:
        send(answers, CompileError(f"callbox.jit needs Numba (pip install 'callbox[jit]'): {error}"))
        return
    send(answers, None)
    while True:
        try:
            payload, signature, options = receive(requests)
        except EOFError:
            return
        try:
            answer: Any = _lower.compile_module(payload, signature, **options)
        except CompileError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - Numba fails in many ways, and the next request may succeed
            answer = CompileError(f"{signature.name}: Numba failed: {type(error).__name__}: {error}")
        send(answers, answer)
