"""Pickles of modules and targets, which name a module and do not contain it."""

from __future__ import annotations

from callbox._callbox import Module, Target, loaded_module
from callbox._errors import CallError

#: A module's key, the SHA-256 digest of its file, its name, and the policy as JSON.
Identity = tuple[str, str, str, str]


def module(key: str, digest: str, name: str, policy: str) -> Module:
    """Finds a module that this process has loaded.

    Raises:
        CallError: NOT_FOUND: this process has not loaded the module.
    """
    known = loaded_module(key)
    if known is None:
        raise CallError(
            "NOT_FOUND",
            f"unpickling {name}: this process has no module of the SHA-256 digest {digest} with the policy of the "
            f"pickle: load the same file before, and keep the module: callbox.Host(policy={policy!r}).load(...), "
            "with the same native=, if any",
            blame="caller",
            module=name,
        )
    return known


def target(identity: Identity, name: str) -> Target:
    """Finds a target of such a module."""
    return module(*identity)[name]
