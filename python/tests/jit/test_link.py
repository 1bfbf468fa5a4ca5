"""Objects that are not kernels: each is refused, none raises another exception."""

import random

import pytest

from callbox._jit import _link
from callbox._jit._shorten import shortened


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


def constant(lanes: bytes) -> bytes:
    return b"\xfd\x0c" + lanes


@pytest.mark.parametrize(
    ("lanes", "short"),
    [
        (b"\0\0\x80\x3f" * 4, b"\x43\0\0\x80\x3f\xfd\x13"),  # f32 1.0
        (b"\x7f\0\0\0" * 4, b"\x41\xff\0\xfd\x11"),  # i32 127
        (b"\xff" * 16, b"\x41\x7f\xfd\x11"),  # -1, whose sign the short form keeps
        (b"\0\0\0\0\0\0\xf0\x3f" * 2, b"\x44\0\0\0\0\0\0\xf0\x3f\xfd\x14"),  # f64 1.0
        (b"\2\0\0\0\0\0\0\0" * 2, b"\x42\2\xfd\x12"),  # i64 2
        (bytes(range(16)), constant(bytes(range(16)))),
    ],
)
def test_vector_constants_become_splats(lanes, short):
    assert shortened(b"\0" + constant(lanes) + b"\x0b") == b"\0" + short + b"\x0b"


def test_what_looks_like_a_vector_constant_stays():
    inside = b"\xfd\x0c" + b"\1\2\3\x44" * 4
    shuffle = b"\xfd\x0d" + b"\xfd\x0c" * 8
    memory = b"\xfd\x5c\2\xfd\x0c" + b"\x28\2\0"  # loads: offsets of bytes that are instructions elsewhere
    table = b"\x0e\2\0\1\2"
    number = b"\x43\xfd\x0c\1\2" + b"\x44" + b"\xfd\x0c" * 4 + b"\x41\xfd\x0c"
    body = b"\1\2\x7b" + shuffle + memory + table + number
    assert shortened(body + b"\x0b") == body + b"\x0b"
    assert shortened(body + inside) == body + b"\x43\1\2\3\x44\xfd\x13"


@pytest.mark.parametrize("body", [b"", b"\1", b"\0\xfd\x0c\0", b"\0\x41\x80", b"\0\xff", b"\0\xfc\x20"])
def test_bodies_that_are_cut_off_or_unknown(body):
    with pytest.raises((IndexError, KeyError)):
        shortened(body)


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
