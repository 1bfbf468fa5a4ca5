"""A linker for one relocatable object: it makes the module of a kernel.

The object is what LLVM emits for WebAssembly
(https://github.com/WebAssembly/tool-conventions/blob/main/Linking.md). The linker defines the
memory and the stack pointer, gives data its addresses, and writes relocated numbers in their
shortest form. Indices do not change: the object imports no function but the host's, and of memories
and globals it has those of the linker alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ._shorten import shortened

#: The size of the stack, which lies below the data: an overflow traps.
STACK = 64 << 10
#: The address of data in a module without a stack. Address 0 stays unused.
_FIRST_ADDRESS = 64
_PAGE = 64 << 10
_API = "callbox:ffi/api@"

_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT, _CODE, _DATA, _COUNT = 0, 1, 2, 3, 5, 6, 7, 10, 11, 12
_FUNCTION_INDEX, _ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32, _GLOBAL_INDEX = 0, 3, 4, 5, 7
_UNDEFINED, _EXPLICIT_NAME = 0x10, 0x40


class LinkError(Exception):
    """An object that does not make a kernel."""


class UndefinedError(LinkError):
    """An object that calls functions that a kernel does not have.

    Attributes:
        names: The names of the functions.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"undefined functions: {', '.join(names)}")
        self.names = names


def link(obj: bytes, symbol: str, export: str, metadata: bytes) -> bytes:
    """Links an object whose function `symbol` becomes the target `export`.

    Raises:
        LinkError: The object is malformed, or it needs more than a kernel has.
    """
    try:
        return _Linker(_Object.read(obj)).module(symbol, export, metadata)
    except (IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise LinkError(f"malformed object: {error!r}") from error


@dataclass
class _Reader:
    """Reads numbers and names from bytes."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise LinkError(f"malformed object: expected {count} more bytes, found {len(self.data) - self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 63:
                raise LinkError("malformed object: a number of more than 64 bits")

    def name(self) -> str:
        return self.bytes(self.number()).decode()

    def part(self) -> _Reader:
        return _Reader(self.bytes(self.number()))

    def is_done(self) -> bool:
        return self.at >= len(self.data)


@dataclass
class _Symbol:
    kind: int
    is_defined: bool
    name: str
    index: int = 0
    #: The segment and the place in it, for data.
    place: tuple[int, int] = (0, 0)


@dataclass
class _Segment:
    data: bytes
    #: Where the bytes begin in the section.
    start: int
    alignment: int = 1
    address: int = 0


@dataclass
class _Relocation:
    kind: int
    offset: int
    symbol: int
    addend: int


@dataclass
class _Object:
    """The parts of an object that a module needs."""

    sections: dict[int, bytes] = field(default_factory=dict)
    relocations: dict[int, list[_Relocation]] = field(default_factory=dict)
    symbols: list[_Symbol] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)
    #: The function imports: module and name.
    imports: list[tuple[str, str, int]] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes) -> _Object:
        if data[:8] != b"\0asm\1\0\0\0":
            raise LinkError("malformed object: expected WebAssembly of version 1")
        found = cls()
        reader, order = _Reader(data, 8), []
        while not reader.is_done():
            kind = reader.byte()
            payload = reader.bytes(reader.number())
            order.append(kind)
            if kind == _CUSTOM:
                found._custom(_Reader(payload), order)
            elif kind in (_TYPE, _IMPORT, _FUNCTION, _CODE, _DATA, _COUNT):
                found.sections[kind] = payload
                if kind == _DATA:
                    found.segments = list(_segments(_Reader(payload)))
            else:
                raise LinkError(f"expected an object without tables, exports and start functions, found section {kind}")
        found._read_imports()
        return found

    def _custom(self, reader: _Reader, order: list[int]) -> None:
        name = reader.name()
        if name == "linking":
            if (version := reader.number()) != 2:
                raise LinkError(f"expected version 2 of the linking section, found {version}")
            while not reader.is_done():
                self._subsection(reader.byte(), reader.part())
        elif name.startswith("reloc."):
            section = order[reader.number()]
            relocations = [_relocation(reader) for _ in range(reader.number())]
            if section in (_CODE, _DATA):
                self.relocations[section] = relocations

    def _subsection(self, kind: int, reader: _Reader) -> None:
        if kind == 8:
            self.symbols = [_symbol(reader) for _ in range(reader.number())]
        elif kind == 5:
            for segment in self.segments[: reader.number()]:
                reader.name()
                segment.alignment = 1 << min(reader.number(), 16)
                reader.number()
        elif kind == 6 and reader.number():
            raise LinkError("expected an object without constructors")

    def _read_imports(self) -> None:
        reader = _Reader(self.sections.get(_IMPORT, b"\0"))
        for _ in range(reader.number()):
            module, name, kind = reader.name(), reader.name(), reader.byte()
            if kind == 0:
                self.imports.append((module, name, reader.number()))
            elif kind == 2 and name == "__linear_memory":
                if reader.byte() & 1:
                    reader.number()
                reader.number()
            elif kind == 3 and name == "__stack_pointer":
                reader.bytes(2)
            else:
                raise LinkError(f"expected only functions, the memory and the stack pointer, found {module}.{name}")


def _relocation(reader: _Reader) -> _Relocation:
    kind, offset, symbol = reader.byte(), reader.number(), reader.number()
    if kind not in (_FUNCTION_INDEX, _ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32, _GLOBAL_INDEX):
        raise LinkError(f"a kernel cannot call functions through pointers (relocation {kind})")
    has_addend = kind in (_ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32)
    return _Relocation(kind, offset, symbol, reader.number(signed=True) if has_addend else 0)


def _symbol(reader: _Reader) -> _Symbol:
    kind, flags = reader.byte(), reader.number()
    is_defined = not flags & _UNDEFINED
    if kind == 1:
        name = reader.name()
        if not is_defined:
            return _Symbol(kind, False, name)
        segment, offset, _ = reader.number(), reader.number(), reader.number()
        return _Symbol(kind, True, name, place=(segment, offset))
    index = reader.number()
    if kind == 3:
        return _Symbol(kind, True, "", index)
    has_name = is_defined or flags & _EXPLICIT_NAME
    return _Symbol(kind, is_defined, reader.name() if has_name else "", index)


def _segments(reader: _Reader) -> Iterator[_Segment]:
    for _ in range(reader.number()):
        if reader.number() or reader.byte() != 0x41:
            raise LinkError("expected active data at a constant address")
        reader.number(signed=True)
        reader.byte()
        size = reader.number()
        start = reader.at
        yield _Segment(reader.bytes(size), start)


class _Linker:
    def __init__(self, obj: _Object) -> None:
        self.object = obj
        relocations = [r for some in obj.relocations.values() for r in some]
        self.needs_stack = any(r.kind == _GLOBAL_INDEX for r in relocations)
        address = self.data_start = STACK if self.needs_stack else _FIRST_ADDRESS
        for segment in obj.segments:
            address += -address % segment.alignment
            segment.address = address
            address += len(segment.data)
        self.data_end = address

    def module(self, symbol: str, export: str, metadata: bytes) -> bytes:
        obj = self.object
        foreign = sorted({name for module, name, _ in obj.imports if not module.startswith(_API)})
        if foreign:
            raise UndefinedError(foreign)
        imports = [_text(m) + _text(n) + b"\0" + uleb(t) for m, n, t in obj.imports]
        data = self.data()
        pages = max(1, -(-self.data_end // _PAGE))
        target = next((s for s in obj.symbols if s.kind == 0 and s.is_defined and s.name == symbol), None)
        if target is None:
            raise LinkError(f"expected the function {symbol!r}")
        exports = [_text("memory") + b"\2\0", _text(export) + b"\0" + uleb(target.index)]
        sections = [
            (_TYPE, obj.sections[_TYPE]),
            (_IMPORT, _vector(imports) if imports else b""),
            (_FUNCTION, obj.sections[_FUNCTION]),
            (_MEMORY, _vector([b"\0" + uleb(pages)])),
            (_GLOBAL, _vector([b"\x7f\1\x41" + sleb(STACK) + b"\x0b"]) if self.needs_stack else b""),
            (_EXPORT, _vector(exports)),
            (_CODE, self.code()),
            (_DATA, _vector([b"\0\x41" + sleb(self.data_start) + b"\x0b" + uleb(len(data)) + data]) if data else b""),
            (_CUSTOM, _text("callbox.targets") + metadata),
        ]
        return b"\0asm\1\0\0\0" + b"".join(bytes([k]) + uleb(len(p)) + p for k, p in sections if p)

    def value(self, relocation: _Relocation) -> int:
        """The number that a relocation asks for."""
        symbol = self.object.symbols[relocation.symbol]
        if relocation.kind == _FUNCTION_INDEX:
            return symbol.index
        if relocation.kind == _GLOBAL_INDEX:
            if symbol.name not in ("", "__stack_pointer"):
                raise LinkError(f"expected no global but the stack pointer, found {symbol.name!r}")
            return 0
        if not symbol.is_defined or symbol.kind != 1:
            raise LinkError(f"undefined data: {symbol.name!r}")
        segment, offset = symbol.place
        return self.object.segments[segment].address + offset + relocation.addend

    def code(self) -> bytes:
        """The functions, with relocated numbers in their shortest form."""
        section = self.object.sections[_CODE]
        relocations = sorted(self.object.relocations.get(_CODE, []), key=lambda r: r.offset)
        reader, bodies, next_one = _Reader(section), [], 0
        for _ in range(reader.number()):
            size = reader.number()
            at, end = reader.at, reader.at + size
            reader.bytes(size)
            body = b""
            while next_one < len(relocations) and relocations[next_one].offset < end:
                relocation = relocations[next_one]
                next_one += 1
                if relocation.kind == _ADDRESS_I32 or relocation.offset < at or relocation.offset + 5 > end:
                    raise LinkError("malformed object: a relocation outside of code")
                encode = sleb if relocation.kind == _ADDRESS_SLEB else uleb
                body += section[at : relocation.offset] + encode(self.value(relocation))
                at = relocation.offset + 5
            body += section[at:end]
            body = shortened(body)
            bodies.append(uleb(len(body)) + body)
        return _vector(bodies)

    def data(self) -> bytes:
        """The data of all segments as one, without zeros at its end."""
        memory = bytearray(self.data_end - self.data_start)
        for segment in self.object.segments:
            start = segment.address - self.data_start
            memory[start : start + len(segment.data)] = segment.data
        for relocation in self.object.relocations.get(_DATA, []):
            if relocation.kind != _ADDRESS_I32:
                raise LinkError(f"expected addresses in data, found relocation {relocation.kind}")
            found = next(
                (s for s in self.object.segments if s.start <= relocation.offset <= s.start + len(s.data) - 4), None
            )
            if found is None:
                raise LinkError("malformed object: a relocation outside of data")
            at = found.address - self.data_start + relocation.offset - found.start
            memory[at : at + 4] = self.value(relocation).to_bytes(4, "little")
        return bytes(memory).rstrip(b"\0")


def uleb(value: int) -> bytes:
    """An unsigned number in LEB128."""
    if value < 0:
        raise LinkError(f"malformed object: expected a number that is not negative, found {value}")
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])


def sleb(value: int) -> bytes:
    """A signed number in LEB128."""
    found = bytearray()
    while not -0x40 <= value < 0x40:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value & 0x7F])


def _text(text: str) -> bytes:
    encoded = text.encode()
    return uleb(len(encoded)) + encoded


def _vector(items: list[bytes]) -> bytes:
    return uleb(len(items)) + b"".join(items)
