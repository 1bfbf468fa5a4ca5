"""Tests on a machine with a GPU and a JAX for it. They are skipped elsewhere, also in CI."""

import ctypes
import os
import re
import shutil
from pathlib import Path

import pytest

import callbox

SOURCES = Path(__file__).parents[3] / "guests"


@pytest.fixture(scope="session", autouse=True)
def device():
    """The first GPU, as a device of JAX."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("there is no NVIDIA driver")
    jax = pytest.importorskip("jax")
    try:
        return jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")


def manifest(name):
    return SOURCES / name / "callbox.json"


@pytest.fixture
def altered(tmp_path):
    """Copies a guest's manifest and PTX, with the first line changed that contains `place`."""

    def alter(name, place, old, new):
        shutil.copytree(SOURCES / name, tmp_path, dirs_exist_ok=True)
        ptx = tmp_path / f"{name}.ptx"
        lines = ptx.read_text().splitlines(keepends=True)
        at = next(at for at, line in enumerate(lines) if place in line)
        assert old in lines[at]
        lines[at] = lines[at].replace(old, new)
        ptx.write_text("".join(lines))
        return tmp_path / "callbox.json"

    return alter


@pytest.fixture(scope="session")
def fenced(guests):
    """Loads a guest with its kernels and without a grant."""

    def load(name, native=None, **options):
        return callbox.Host(**options).load(guests / f"{name}.wasm", native=native or manifest(name))

    return load


@pytest.fixture(scope="session")
def granted(guests):
    """Loads a guest with its kernels, which are granted."""

    def load(name):
        host = callbox.Host(policy={"gpu": {"fenced": False}})
        with pytest.raises(callbox.CallError) as refused:
            host.load(guests / f"{name}.wasm", native=manifest(name))
        digest = re.search(r"[0-9a-f]{64}", refused.value.message)[0]
        return host.load(guests / f"{name}.wasm", native=manifest(name), allow_native=digest)

    return load
