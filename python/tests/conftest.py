"""Fixtures of all tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import callbox


class _Everywhere:
    """Fixtures that doctests of the package use too, outside of this folder."""

    @pytest.fixture(autouse=True)
    def doctests(self, request, doctest_namespace):
        doctest_namespace["guests"] = request.getfixturevalue("guests")

    @pytest.fixture(scope="session")
    @classmethod
    def guests(cls) -> Path:
        """The folder with the compiled sample guests."""
        folder = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parents[2] / "target/guests"))
        assert folder.is_dir(), f"expected the test guests in {folder}: `cargo xtask guests` builds them"
        return folder

    @pytest.fixture(scope="session")
    @classmethod
    def staged(cls) -> Callable[..., bytes]:
        """Assembles a guest with a stage and a deleter of its state."""
        return _staged

    @pytest.fixture(scope="session")
    @classmethod
    def counter(cls) -> bytes:
        """A guest with the target `count`, an int32 of how often its instance was called."""
        return _COUNTER

    @pytest.fixture(scope="session")
    @classmethod
    def assemble(cls) -> Callable[..., bytes]:
        """Assembles a guest of typed FFI: the bodies of its targets, and their declarations."""
        return _assembled

    @pytest.fixture
    def host(self) -> callbox.Host:
        """A new host with the default policy."""
        return callbox.Host()


_CODE = {
    "nothing": b"",
    "succeeds": b"\x41\x00",  # i32.const 0
    "fails": b"\x41\x09",  # i32.const 9, FAILED_PRECONDITION
    "runs on": b"\x03\x40\x0c\x00\x0b\x00",  # loop br 0 end unreachable
}


def _section(number: int, items: list[bytes]) -> bytes:
    content = bytes([len(items)]) + b"".join(items)
    return bytes([number, len(content)]) + content


_HEADER = b"\x00asm\x01\x00\x00\x00"

#: Adds 1 to a global, and stores it to the data (offset 0) of the first result (offset 16 of the
#: frame): `i32.store (i32.load (i32.load offset=16 (local.get 0))) (global.get 0)`.
_COUNT = b"\x00\x23\x00\x41\x01\x6a\x24\x00\x20\x00\x28\x02\x10\x28\x02\x00\x23\x00\x36\x02\x00\x41\x00\x0b"

_COUNTER = _HEADER + b"".join(
    [
        _section(1, [b"\x60\x01\x7f\x01\x7f"]),  # (i32) -> i32
        _section(3, [b"\x00"]),
        _section(5, [b"\x00\x01"]),
        _section(6, [b"\x7f\x01\x41\x00\x0b"]),  # (mut i32) 0
        _section(7, [b"\x05count\x00\x00", b"\x06memory\x02\x00"]),
        _section(10, [bytes([len(_COUNT)]) + _COUNT]),
    ]
)


def _staged(*, instantiate: str = "succeeds", drop: str = "nothing") -> bytes:
    """A guest with the target `f` of any operands, which writes no results."""
    functions = [
        ("f", 0, "succeeds"),
        ("f.instantiate", 0, instantiate),
        ("f.instantiate.drop", 1, drop),
    ]
    types = [b"\x60\x01\x7f\x01\x7f", b"\x60\x01\x7f\x00"]  # (i32) -> i32, (i32)
    exports = [(name, bytes([0, index])) for index, (name, _, _) in enumerate(functions)]
    exports.append(("memory", b"\x02\x00"))
    bodies = [b"\x00" + _CODE[code] + b"\x0b" for _, _, code in functions]
    sections = [
        (1, types),
        (3, [bytes([kind]) for _, kind, _ in functions]),
        (5, [b"\x00\x01"]),
        (7, [bytes([len(name)]) + name.encode() + export for name, export in exports]),
        (10, [bytes([len(body)]) + body for body in bodies]),
    ]
    return _HEADER + b"".join(_section(number, items) for number, items in sections)


def _uleb(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _uleb(number >> 7)


def _sized(content: bytes) -> bytes:
    return _uleb(len(content)) + content


def _assembled(bodies: dict[str, bytes], declarations: list[dict[str, Any]]) -> bytes:
    """A guest with targets `(frame) -> status` of these instructions, which have no locals."""
    exports = [_sized(name.encode()) + b"\0" + _uleb(number) for number, name in enumerate(bodies)]
    exports.append(b"\x06memory\x02\x00")
    functions = [_sized(b"\x00" + body + b"\x0b") for body in bodies.values()]
    lines = "\n".join(map(json.dumps, declarations)).encode()
    return _HEADER + b"".join(
        bytes([number]) + _sized(content)
        for number, content in [
            (1, b"\x01\x60\x01\x7f\x01\x7f"),  # (i32) -> i32
            (3, _uleb(len(bodies)) + bytes(len(bodies))),
            (5, b"\x01\x00\x01"),
            (7, _uleb(len(exports)) + b"".join(exports)),
            (10, _uleb(len(functions)) + b"".join(functions)),
            (0, _sized(b"callbox.targets") + lines),
        ]
    )


def pytest_configure(config):
    config.pluginmanager.register(_Everywhere())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignores the programs that tests start, because collecting doctests would import them."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None
