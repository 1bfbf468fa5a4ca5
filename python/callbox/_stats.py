"""Counters of the process, as Python objects and as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, overload

from ._callbox import target_stats

#: The counters of Prometheus: the name, the key, and the help.
_COUNTERS = [
    ("callbox_calls_total", "calls", "Calls of targets."),
    ("callbox_call_seconds_total", "seconds", "Time in calls of targets."),
    ("callbox_operand_bytes_total", "bytes_in", "Bytes of operands."),
    ("callbox_result_bytes_total", "bytes_out", "Bytes of results of calls that succeeded."),
]

#: Those of the targets on CUDA with calls that also ran as wasm.
_SHADOW_COUNTERS = [
    ("callbox_shadowed_calls_total", "shadowed", "Calls that also ran as wasm."),
    ("callbox_shadow_differences_total", "differing", "Calls whose results as wasm differed."),
]


@overload
def stats(*, format: None = None) -> list[dict[str, Any]]: ...
@overload
def stats(*, format: Literal["prometheus"]) -> str: ...
def stats(*, format: str | None = None) -> list[dict[str, Any]] | str:  # noqa: A002 - what is asked for
    """Counts the calls of each target that the hosts of this process have called.

    Calls of the same file and target count together. Counters never fall: the calls of a host stay
    when it no longer exists.

    Args:
        format: None: a list with a dict of ``module`` (the file's name), ``sha256``, ``target``,
            ``platform``, ``calls``, ``seconds``, ``bytes_in``, ``bytes_out`` and ``failures`` by
            status code for each target, and ``shadowed`` and ``differing`` where calls also ran as
            wasm. "prometheus": the text that Prometheus scrapes.

    Raises:
        ValueError: `format` is another one.
    """
    if format is None:
        return target_stats()
    if format != "prometheus":
        raise ValueError(f"expected format=None or 'prometheus', found {format!r}")
    return "".join(f"{line}\n" for line in _lines(target_stats()))


def _lines(counted: list[dict[str, Any]]) -> Iterator[str]:
    for name, key, text in _COUNTERS + _SHADOW_COUNTERS:
        having = [target for target in counted if key in target]
        if having or (name, key, text) in _COUNTERS:
            yield from (f"# HELP {name} {text}", f"# TYPE {name} counter")
        for target in having:
            yield f"{name}{{{_labels(target)}}} {target[key]}"
    name = "callbox_failures_total"
    yield from (f"# HELP {name} Calls and batch elements that failed.", f"# TYPE {name} counter")
    for target in counted:
        for code, count in target["failures"].items():
            yield f'{name}{{{_labels(target)},code="{code}"}} {count}'


def _labels(target: dict[str, Any]) -> str:
    names = ("module", "sha256", "target", "platform")
    return ",".join(f'{name}="{_escaped(target[name])}"' for name in names)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
