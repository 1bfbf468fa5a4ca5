"""Fixtures of the tests of `callbox.jit`, which are skipped where Numba is not installed."""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore: list[str] = []
if importlib.util.find_spec("numba") is None:
    # What needs no compiler: signatures, mathematics and the linker's refusals.
    collect_ignore = ["test_kernels.py", "test_refusals.py", "test_cache.py", "test_cuda.py", "test_jax.py"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keeps compiled kernels apart from the user's."""
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path_factory.getbasetemp() / "jit-cache"))
