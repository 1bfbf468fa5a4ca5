"""Writes vector constants of equal lanes as a scalar and a splat.

`v128.const` takes 18 bytes and LLVM writes one for each use; compilers of WebAssembly fold the
splat of a constant, so that the machine code is the same.
"""

from __future__ import annotations

_I32_CONST, _I64_CONST, _F32_CONST, _F64_CONST = b"\x41", b"\x42", b"\x43", b"\x44"
_I32_SPLAT, _I64_SPLAT, _F32_SPLAT, _F64_SPLAT = b"\xfd\x11", b"\xfd\x12", b"\xfd\x13", b"\xfd\x14"

# The immediates of instructions: `n` is a number in LEB128, `m` an alignment and an offset, `v` a
# list of numbers, and `b`, `4`, `8` and `x` are 1, 4, 8 and 16 bytes.
_IMMEDIATES = {
    **dict.fromkeys([0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B, *range(0x45, 0xC5)], ""),
    **dict.fromkeys([0x02, 0x03, 0x04, 0x0C, 0x0D, 0x10, *range(0x20, 0x25), 0x3F, 0x40, 0x41, 0x42], "n"),
    0x0E: "vn",
    0x1C: "v",
    **dict.fromkeys(range(0x28, 0x3F), "m"),
    0x43: "4",
    0x44: "8",
}
_BULK = {**dict.fromkeys(range(8), ""), 8: "nn", 9: "n", 10: "nn", 11: "n"}
_VECTOR = {
    **dict.fromkeys(range(0x100), ""),
    **dict.fromkeys([*range(12), 92, 93], "m"),
    12: "x",
    13: "x",
    **dict.fromkeys(range(21, 35), "b"),
    **dict.fromkeys(range(84, 92), "mb"),
}
_V128_CONST = 12


def shortened(body: bytes) -> bytes:
    """A function's body with shorter vector constants.

    Raises:
        KeyError: An instruction that LLVM does not write for kernels.
        IndexError: The body ends within an instruction.
    """
    count, at = _number(body, 0)
    for _ in range(count):
        at = _number(body, at)[1] + 1
    found, kept = [], 0
    while at < len(body):
        start, code = at, body[at]
        at += 1
        kinds = _IMMEDIATES.get(code)
        if kinds is None:
            number, at = _number(body, at)
            kinds = {0xFC: _BULK, 0xFD: _VECTOR}[code][number]
            if code == 0xFD and number == _V128_CONST and (short := _splat(body[at : at + 16])) is not None:
                found += [body[kept:start], short]
                kept = at + 16
        for kind in kinds:
            at = _after(body, at, kind)
    if at > len(body):
        raise IndexError("a body that ends within an instruction")
    return b"".join(found) + body[kept:]


def _after(body: bytes, at: int, kind: str) -> int:
    """Where an immediate ends."""
    if kind == "n":
        return _number(body, at)[1]
    if kind == "m":
        return _number(body, _number(body, at)[1])[1]
    if kind == "v":
        count, at = _number(body, at)
        for _ in range(count):
            at = _number(body, at)[1]
        return at
    return at + {"b": 1, "4": 4, "8": 8, "x": 16}[kind]


def _number(body: bytes, at: int) -> tuple[int, int]:
    """An unsigned number, and where it ends. Of a signed one the end alone is right."""
    value = shift = 0
    while body[at] & 0x80:
        value |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | body[at] << shift, at + 1


def _splat(lanes: bytes) -> bytes | None:
    """The shortest splat of a vector, if there is one that is shorter than its constant."""
    forms = []
    if lanes == lanes[:4] * 4:
        signed = int.from_bytes(lanes[:4], "little", signed=True)
        forms += [_I32_CONST + _signed(signed) + _I32_SPLAT, _F32_CONST + lanes[:4] + _F32_SPLAT]
    if lanes == lanes[:8] * 2:
        signed = int.from_bytes(lanes[:8], "little", signed=True)
        forms += [_I64_CONST + _signed(signed) + _I64_SPLAT, _F64_CONST + lanes[:8] + _F64_SPLAT]
    return min(forms, key=len, default=None)


def _signed(value: int) -> bytes:
    found = bytearray()
    while not -0x40 <= value < 0x40:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value & 0x7F])
