"""Modules that are loaded once, and Python processes. These tests do not need JAX."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import callbox


@pytest.fixture(scope="session")
def load(guests: Path) -> Callable[[str], callbox.Module]:
    """Loads each sample guest once, into one host."""
    host = callbox.Host()
    return functools.cache(lambda name: host.load(guests / f"{name}.wasm"))


@pytest.fixture(scope="session")
def python(guests: Path) -> Callable[..., str]:
    """Runs a program in a new process, which must succeed in time, and returns its output."""

    def run(program: str, *args: str, timeout: float = 120) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *args],
            env={**os.environ, "CALLBOX_GUESTS": str(guests)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
