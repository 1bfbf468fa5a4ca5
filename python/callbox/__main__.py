"""The command line of the package: ``python -m callbox``."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import callbox
from callbox import _stubs
from callbox._callbox import shown_path
from callbox._files import open_regular


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns the exit code: 0, 1 for a failure, 2 for wrong usage."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except (callbox.CallError, OSError, TypeError, ValueError, KeyError, MemoryError) as error:
        reason = error.args[0] if isinstance(error, KeyError) else error
        print(f"error: {_printable(str(reason))}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m callbox", description="Untrusted WebAssembly kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, summary: str, *, module: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=run)
        if module:
            added.add_argument("module", type=Path, metavar="FILE.wasm", help="the module")
            added.add_argument("--policy", type=Path, metavar="FILE.json", help="the policy; default: callbox's")
        return added

    command("inspect", _inspect, "Prints a module's targets, without running its code.")
    command("policy", _policy, "Prints the default policy as JSON.", module=False)
    command("stubs", _print_stubs, "Prints type stubs of a module's targets as functions.")
    call = command("call", _call, "Calls a target on arrays in .npy files.")
    call.add_argument("target", help="the target's name")
    call.add_argument(
        "--operand", action="append", default=[], type=Path, metavar="FILE.npy", help="one for each operand"
    )
    call.add_argument("--attr", action="append", default=[], metavar="NAME=VALUE", help="a Python literal, or text")
    call.add_argument(
        "--output",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.npy",
        help="one for each result; default: results are printed",
    )
    call.add_argument("--deadline", type=float, metavar="SECONDS", help="the time limit; default: the policy's")
    return parser


def _load(arguments: argparse.Namespace) -> callbox.Module:
    policy = None if arguments.policy is None else arguments.policy.read_text()
    return callbox.Host(policy=policy).load(arguments.module)


def _inspect(arguments: argparse.Namespace) -> None:
    module = _load(arguments)
    print(f"{shown_path(arguments.module.name)}: {len(module)} targets, SHA-256 {module.digest}")
    for target in module.targets.values():
        signature, *documentation = (target.__doc__ or "").splitlines() or [""]
        print(_printable("\n" + signature))
        # The mark tells the author's words from callbox's.
        for line in documentation:
            print(_printable(f"    | {line}".rstrip() if line else ""))
        if target.traits:
            print(f"    traits: {', '.join(map(_printable, target.traits))}")


def _policy(_arguments: argparse.Namespace) -> None:
    print(json.dumps(callbox.Host().policy, indent=2))


def _print_stubs(arguments: argparse.Namespace) -> None:
    sys.stdout.write(_stubs.of_module(_load(arguments), arguments.module.name))


def _array(path: str) -> Any:
    with open_regular(path) as file:
        try:
            return np.load(file, allow_pickle=False)
        except Exception as error:  # noqa: BLE001 - NumPy reads a header as Python
            raise ValueError(
                f"{shown_path(path)}: expected a .npy file, found {type(error).__name__}: {error!s:.200}"
            ) from None


def _call(arguments: argparse.Namespace) -> None:
    target = _load(arguments)[arguments.target]
    attributes = dict(map(_attribute, arguments.attr))
    # Pickles in .npy files would run code.
    operands = [_array(path) for path in arguments.operand]
    found = target(*operands, deadline=arguments.deadline, attributes=attributes)
    results = found if isinstance(found, tuple) else (found,)
    if not arguments.output:
        print(*results, sep="\n")
    elif len(arguments.output) != len(results):
        raise ValueError(f"expected one --output for each of the {len(results)} results, found {len(arguments.output)}")
    else:
        for path, result in zip(arguments.output, results, strict=True):
            np.save(path, result)


def _attribute(given: str) -> tuple[str, Any]:
    name, equals, text = given.partition("=")
    if not equals:
        raise ValueError(f"expected --attr NAME=VALUE, found {given!r}")
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text


def _printable(text: str) -> str:
    """Escapes control characters, by which a guest's text could command a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


if __name__ == "__main__":
    sys.exit(main())
