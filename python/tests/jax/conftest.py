"""Four virtual CPU devices, modules that are loaded once, and Python processes."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("jax") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    jax.config.update("jax_num_cpu_devices", 4)

import callbox

DEVICES = 4


@pytest.fixture(scope="session")
def load(guests: Path) -> Callable[[str], callbox.Module]:
    """Loads each sample guest once, into one host."""
    host = callbox.Host()
    return functools.cache(lambda name: host.load(guests / f"{name}.wasm"))


@pytest.fixture(scope="session")
def failure() -> Callable[..., str]:
    """Returns the message of a JAX error, raised by the call or while waiting for its results."""
    kinds: list[type[BaseException]] = [jax.errors.JaxRuntimeError] if hasattr(jax.errors, "JaxRuntimeError") else []
    if not kinds:
        from jaxlib.xla_extension import XlaRuntimeError

        kinds.append(XlaRuntimeError)

    def message(function: Callable[..., Any], *args: Any) -> str:
        with pytest.raises(tuple(kinds)) as raised:
            jax.block_until_ready(function(*args))
        return str(raised.value)

    return message


@pytest.fixture(scope="session")
def shard_map() -> Callable[..., Any]:
    """`jax.shard_map`, or its predecessor, which cannot tell whether FFI results are replicated."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map
    from jax.experimental.shard_map import shard_map

    return functools.partial(shard_map, check_rep=False)


@pytest.fixture(scope="session")
def python(guests: Path) -> Callable[..., str]:
    """Runs a program in a new process, which must succeed in time, and returns its output."""

    def run(program: str, *args: str, timeout: float = 120, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *args],
            env={**os.environ, "CALLBOX_GUESTS": str(guests), "JAX_PLATFORMS": "cpu", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
