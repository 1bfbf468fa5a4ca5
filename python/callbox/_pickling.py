"""Pickles of modules and targets, which name a module and do not contain it."""

from __future__ import annotations

import json
from typing import Any

from callbox._callbox import Host, Module, Target, loaded_module
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
        fields = _other_fields(json.loads(policy), Host().policy)
        host = f"callbox.Host(policy={fields})" if fields else "callbox.Host()"
        raise CallError(
            "NOT_FOUND",
            f"unpickling {name}: this process has no module of the SHA-256 digest {digest} with the policy of the "
            f"pickle: load the same file before, and keep the module: {host}.load(...), with "
            "the same native=, if any",
            blame="caller",
            module=name,
        )
    return known


def _other_fields(policy: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """The fields of a policy that are not those of the default one."""
    fields = {}
    for name, value in policy.items():
        known = default.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            value = _other_fields(value, known)
            known = {}
        if value != known:
            fields[name] = value
    return fields


def target(identity: Identity, name: str) -> Target:
    """Finds a target of such a module."""
    return module(*identity)[name]
