"""Fixtures of the tests of `callbox.jit`, which are skipped where Numba is not installed."""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore: list[str] = []
if importlib.util.find_spec("numba") is None:
    # What needs no compiler: signatures, mathematics and the linker's refusals.
    compiled = "kernels refusals cache cuda jax notebook".split()
    collect_ignore = [f"test_{name}.py" for name in compiled]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keeps compiled kernels apart from the user's."""
    monkeypatch.setenv("CALLBOX_JIT_CACHE", str(tmp_path_factory.getbasetemp() / "jit-cache"))
