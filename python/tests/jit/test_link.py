"""Objects that are not kernels: each is refused, none raises another exception."""

import random

import pytest

from callbox._jit import _link


def section(number: int, payload: bytes) -> bytes:
    return bytes([number]) + _link.uleb(len(payload)) + payload


def text(name: str) -> bytes:
    return bytes([len(name)]) + name.encode()


HEADER = b"\0asm\1\0\0\0"
TYPES = section(1, b"\1\x60\1\x7f\1\x7f")
IMPORTS = section(2, b"\1" + text("env") + text("__linear_memory") + b"\2\0\1")
FUNCTIONS = section(3, b"\1\0")
# One function that returns the address of the data: i32.const 0, in five bytes.
CODE = section(10, b"\1\x08\0\x41\x80\x80\x80\x80\0\x0b")
DATA = section(11, b"\1\0\x41\0\x0b\4abcd")
SYMBOLS = b"\2" + b"\0\0\0" + text("f") + b"\1\0" + text("d") + b"\0\0\4"
LINKING = section(0, text("linking") + b"\2" + b"\x08" + _link.uleb(len(SYMBOLS)) + SYMBOLS)
RELOCATIONS = section(0, text("reloc.CODE") + b"\3\1" + b"\4\4\1\0")
OBJECT = HEADER + TYPES + IMPORTS + FUNCTIONS + CODE + DATA + LINKING + RELOCATIONS


def test_an_object_becomes_a_module():
    module = _link.link(OBJECT, "f", "target", b"{}\n")
    # Address 64 in its shortest form, and the data there.
    assert b"\x05\0\x41\xc0\0\x0b" in module
    assert section(11, b"\1\0\x41\xc0\0\x0b\4abcd") in module
    assert section(7, b"\2" + text("memory") + b"\2\0" + text("target") + b"\0\0") in module


def test_numbers():
    # The examples of https://en.wikipedia.org/wiki/LEB128.
    assert _link.uleb(624485) == bytes([0xE5, 0x8E, 0x26])
    assert _link.sleb(-123456) == bytes([0xC0, 0xBB, 0x78])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (HEADER, b"\0asm\2\0\0\0", "expected WebAssembly of version 1"),
        (text("__linear_memory"), text("__linear_nemory"), "found env.__linear_nemory"),
        (b"\3\1\4\4\1\0", b"\3\1\1\4\1", "cannot call functions through pointers"),
        (b"\3\1\4\4\1\0", b"\3\1\4\7\1\0", "a relocation outside of code"),
        (b"\3\1\4\4\1\0", b"\3\1\4\4\2\0", "malformed object: IndexError"),
        (text("f"), text("g"), "expected the function 'f'"),
        (text("linking") + b"\2", text("linking") + b"\3", "expected version 2"),
    ],
)
def test_refused_objects(old, new, message):
    assert old in OBJECT
    with pytest.raises(_link.LinkError, match=message):
        _link.link(
            _resized(OBJECT.replace(old, new, 1)) if len(old) == len(new) else _resized(OBJECT, old, new), "f", "t", b""
        )


def _resized(obj: bytes, old: bytes = b"", new: bytes = b"") -> bytes:
    if not old:
        return obj
    return obj.replace(section(0, text("reloc.CODE") + old), section(0, text("reloc.CODE") + new), 1)


def test_damaged_objects_are_refused_or_linked():
    chance = random.Random(5)
    for _ in range(3_000):
        damaged = bytearray(OBJECT)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        damaged = damaged[: chance.randint(8, len(damaged))] if chance.random() < 0.3 else damaged
        try:
            _link.link(bytes(damaged), "f", "t", b"{}")
        except _link.LinkError:
            continue
