"""The function that a host calls, as LLVM's text: it decodes the call frame and calls the kernel.

The records are those of `wit/callbox-ffi.wit`. The host has checked the call against the module's
metadata: numbers of arrays and attributes, element types, ranks and dimensions. What is left to
check is what metadata cannot say: that arrays are in row-major order, and that no result of a
kernel that is not elementwise shares the memory of an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from callbox.types import ArrayType

from ._signature import Parameter

# Offsets in records, and their sizes.
_OPERANDS, _RESULTS, _ATTRIBUTES = 8, 16, 24
_BUFFER, _BUFFER_DIMENSIONS, _BUFFER_ALIAS = 36, 8, 28
_ATTRIBUTE, _ATTRIBUTE_VALUE = 28, 8

#: LLVM's types of elements. A pred is a byte.
LLVM_TYPES = {
    "f32": "float",
    "f64": "double",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "u8": "i8",
    "u16": "i16",
    "u32": "i32",
    "u64": "i64",
    "pred": "i8",
}

#: The record of a failure: its message, the length of the message, and the status code.
FAILURE = "{ ptr, i32, i32 }"

INVALID_ARGUMENT = 3
UNIMPLEMENTED = 12

#: The name of the function that the host calls.
TARGET = "callbox.target"

#: The failures of the target itself: their texts and their codes.
_FAILURES = {
    "callbox.row_major": (b"expected arrays in row-major order", UNIMPLEMENTED),
    "callbox.own_memory": (
        b"expected results in memory of their own, found one that shares an operand's",
        UNIMPLEMENTED,
    ),
}

_HELPERS = f"""
declare void @callbox.set_failure(i32, ptr, i32, i32) #1

define internal void @callbox.fail(ptr %failure) noinline {{
  %message = load ptr, ptr %failure
  %length.at = getelementptr i8, ptr %failure, i32 4
  %length = load i32, ptr %length.at
  %code.at = getelementptr i8, ptr %failure, i32 8
  %code = load i32, ptr %code.at
  call void @callbox.set_failure(i32 %code, ptr %message, i32 %length, i32 0)
  ret void
}}

; Whether the order of this buffer's dimensions is not row-major.
define internal i1 @callbox.is_permuted(ptr %buffer) noinline minsize optsize {{
  %order.at = getelementptr i8, ptr %buffer, i32 16
  %order = load ptr, ptr %order.at
  %count.at = getelementptr i8, ptr %buffer, i32 20
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %more ]
  %done = icmp eq i32 %i, %count
  br i1 %done, label %ordered, label %more
more:
  %next = add i32 %i, 1
  %at = getelementptr i64, ptr %order, i32 %i
  %number = load i64, ptr %at
  %short = trunc i64 %number to i32
  %sum = add i32 %short, %next
  %fits = icmp eq i32 %sum, %count
  br i1 %fits, label %loop, label %permuted
ordered:
  ret i1 false
permuted:
  ret i1 true
}}

; The product of the first dimensions.
define internal i64 @callbox.product(ptr %dimensions, i32 %count) noinline minsize optsize {{
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %more ]
  %product = phi i64 [ 1, %0 ], [ %further, %more ]
  %done = icmp eq i32 %i, %count
  br i1 %done, label %end, label %more
more:
  %next = add i32 %i, 1
  %at = getelementptr i64, ptr %dimensions, i32 %i
  %dimension = load i64, ptr %at
  %further = mul i64 %product, %dimension
  br label %loop
end:
  ret i64 %product
}}

; The attribute of this name, or null.
define internal ptr @callbox.find(ptr %frame, ptr %name, i32 %length) noinline minsize optsize {{
  %records.at = getelementptr i8, ptr %frame, i32 {_ATTRIBUTES}
  %records = load ptr, ptr %records.at
  %count.at = getelementptr i8, ptr %frame, i32 {_ATTRIBUTES + 4}
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %other ]
  %done = icmp eq i32 %i, %count
  br i1 %done, label %missing, label %compare
compare:
  %offset = mul i32 %i, {_ATTRIBUTE}
  %record = getelementptr i8, ptr %records, i32 %offset
  %found.length.at = getelementptr i8, ptr %record, i32 4
  %found.length = load i32, ptr %found.length.at
  %fits = icmp eq i32 %found.length, %length
  br i1 %fits, label %text, label %other
text:
  %found.name = load ptr, ptr %record
  br label %byte
byte:
  %j = phi i32 [ 0, %text ], [ %j.next, %same ]
  %all = icmp eq i32 %j, %length
  br i1 %all, label %found, label %same.or.not
same.or.not:
  %a.at = getelementptr i8, ptr %name, i32 %j
  %a = load i8, ptr %a.at
  %b.at = getelementptr i8, ptr %found.name, i32 %j
  %b = load i8, ptr %b.at
  %equal = icmp eq i8 %a, %b
  br i1 %equal, label %same, label %other
same:
  %j.next = add i32 %j, 1
  br label %byte
other:
  %next = add i32 %i, 1
  br label %loop
found:
  ret ptr %record
missing:
  ret ptr null
}}

attributes #1 = {{ "wasm-import-module"="callbox:ffi/api@1.0.0" "wasm-import-name"="set-failure" }}
"""


def failure(name: str, message: bytes, code: int) -> str:
    """The definitions of a failure's record."""
    return (
        f"@{name}.text = internal constant {_bytes(message)}\n"
        f"@{name} = internal constant {FAILURE} {{ ptr @{name}.text, i32 {len(message)}, i32 {code} }}\n"
    )


def _bytes(text: bytes) -> str:
    return f'[{len(text)} x i8] c"' + "".join(f"\\{byte:02X}" for byte in text) + '"'


@dataclass
class Glue:
    """Writes the function of one target."""

    #: LLVM's name of the kernel.
    kernel: str
    operands: Sequence[Parameter]
    results: Sequence[Parameter]
    attributes: Sequence[Parameter]
    is_elementwise: bool
    lines: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    counter: int = 0
    #: LLVM's types of the arguments with which the target calls the kernel.
    passed_types: list[str] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)
    failures: dict[str, tuple[bytes, int]] = field(default_factory=lambda: dict(_FAILURES))
    checks: list[tuple[str, str]] = field(default_factory=list)

    def text(self, order: Sequence[Parameter]) -> str:
        """The definitions of the target and its helpers, for parameters in this order."""
        arguments: dict[str, list[str]] = {}
        for offset, buffers in ((_OPERANDS, self.operands), (_RESULTS, self.results)):
            base = self.load("ptr", self.at("%frame", offset))
            for number, parameter in enumerate(buffers):
                record = self.at(base, number * _BUFFER)
                arguments[parameter.name] = self.array(parameter, record)
                if offset == _RESULTS and not self.is_elementwise:
                    self.checks.append(("callbox.own_memory", self.load("i8", self.at(record, _BUFFER_ALIAS))))
        sorted_names = sorted((a.name for a in self.attributes), key=str.encode)
        for attribute in self.attributes:
            arguments[attribute.name] = self.attribute(attribute, sorted_names)
        body = self.lines
        self.lines = []
        self.line("%returned = alloca ptr, align 8")
        self.line("%failure = alloca ptr, align 8")
        allocas, self.lines = self.lines, body
        self.check()
        passed = ["ptr %returned", "ptr %failure", *(a for p in order for a in arguments[p.name])]
        self.passed_types = [argument.split()[0] for argument in passed]
        self.line(f"%status = call i32 @{self.kernel}({', '.join(passed)})")
        self.line("%is.failed = icmp sgt i32 %status, 0")
        self.line("br i1 %is.failed, label %failed, label %succeeded")
        self.lines.append("failed:")
        record = self.load("ptr", "%failure")
        self.line(f"call void @callbox.fail(ptr {record})")
        self.line("ret i32 2")
        self.lines.append("succeeded:")
        self.line("ret i32 0")
        function = [f"define i32 @{TARGET}(ptr %frame) {{", *allocas, *self.lines, "}"]
        return "\n".join([_HELPERS, *self.constants, *function]) + "\n"

    def check(self) -> None:
        """Fails unless every check finds 0."""
        for name, (message, code) in self.failures.items():
            values = [value for check, value in self.checks if check == name]
            if not values:
                continue
            self.constants.append(failure(name, message, code))
            total = values[0]
            for value in values[1:]:
                total = self.value(f"or i8 {total}, {value}")
            bad = self.value(f"icmp ne i8 {total}, 0")
            label = f"{name}.checked"
            self.line(f'br i1 {bad}, label %"{name}.failed", label %"{label}"')
            self.lines.append(f'"{name}.failed":')
            self.line(f"call void @callbox.fail(ptr @{name})")
            self.line(f"ret i32 {code}")
            self.lines.append(f'"{label}":')

    def array(self, parameter: Parameter, record: str) -> list[str]:
        """Numba's arguments for an array: no owners, sizes, the data, the shape and the strides."""
        assert isinstance(parameter.type, ArrayType)
        dimensions = parameter.type.dimensions
        if len(dimensions) > 1 or parameter.type.has_rows:
            permuted = self.value(f"call i1 @callbox.is_permuted(ptr {record})")
            self.checks.append(("callbox.row_major", self.value(f"zext i1 {permuted} to i8")))
        data = self.load("ptr", record)
        sizes = self.load("ptr", self.at(record, _BUFFER_DIMENSIONS))
        shape = []
        if parameter.type.has_rows:
            rank = self.load("i32", self.at(record, _BUFFER_DIMENSIONS + 4))
            leading = self.value(f"sub i32 {rank}, {len(dimensions) - 1}")
            shape.append(self.symbol("..", f"call i64 @callbox.product(ptr {sizes}, i32 {leading})"))
            sizes = self.value(f"getelementptr i64, ptr {sizes}, i32 {leading}")
            dimensions = dimensions[1:]
        for number, dimension in enumerate(dimensions):
            if isinstance(dimension, int):
                shape.append(str(dimension))
            else:
                at = self.at(sizes, 8 * number)
                shape.append(self.symbol(dimension, f"load i64, ptr {at}, !range !{{i64 0, i64 9223372036854775807}}"))
        return self.packed(data, parameter.element.dtype.itemsize, shape)

    def packed(self, data: str, item: int, shape: list[str]) -> list[str]:
        strides: list[str] = []
        step = str(item)
        for size in reversed(shape):
            strides.insert(0, step)
            step = self.value(f"mul i64 {step}, {size}")
        count = "1"
        for size in shape:
            count = size if count == "1" else self.value(f"mul i64 {count}, {size}")
        numbers = [count, str(item)]
        return [
            "ptr null",
            "ptr null",
            *(f"i64 {n}" for n in numbers),
            f"ptr {data}",
            *(f"i64 {n}" for n in shape + strides),
        ]

    def attribute(self, parameter: Parameter, names: list[str]) -> list[str]:
        """An attribute's arguments. Required ones lie in the order of their names."""
        element = parameter.element
        if all(a.default is None for a in self.attributes):
            records = self.load("ptr", self.at("%frame", _ATTRIBUTES))
            record = self.at(records, names.index(parameter.name) * _ATTRIBUTE)
        else:
            name, encoded = f"callbox.name.{names.index(parameter.name)}", parameter.name.encode()
            self.constants.append(f"@{name} = internal constant {_bytes(encoded)}")
            record = self.value(f"call ptr @callbox.find(ptr %frame, ptr @{name}, i32 {len(encoded)})")
            if parameter.default is not None:
                record = self.or_default(parameter, record, f"callbox.default.{names.index(parameter.name)}")
        if isinstance(parameter.type, ArrayType):
            data = self.load("ptr", self.at(record, _ATTRIBUTE_VALUE))
            size = self.load("i32", self.at(record, _ATTRIBUTE_VALUE + 4))
            short = self.value(f"udiv i32 {size}, {element.dtype.itemsize}")
            count = self.value(f"zext i32 {short} to i64")
            self.check_size(parameter.name, parameter.type.dimensions[0], count)
            return self.packed(data, element.dtype.itemsize, [count])
        kind = LLVM_TYPES[element.name]
        return [f"{kind} {self.load(kind, self.load('ptr', self.at(record, _ATTRIBUTE_VALUE)))}"]

    def check_size(self, name: str, dimension: int | str, count: str) -> None:
        """Checks the number of elements of an attribute, which the host does not."""
        expected = str(dimension) if isinstance(dimension, int) else self.symbols.setdefault(dimension, count)
        if expected == count:
            return
        differs = self.value(f"icmp ne i64 {count}, {expected}")
        said = f"{dimension} elements" if isinstance(dimension, int) else f"{dimension} elements, as arrays have"
        message = f"attribute `{name}`: expected {said}"
        self.failures[f"callbox.size.{name}"] = (message.encode(), INVALID_ARGUMENT)
        self.checks.append((f"callbox.size.{name}", self.value(f"zext i1 {differs} to i8")))

    def or_default(self, parameter: Parameter, record: str, name: str) -> str:
        """The record of an attribute, or one with its default."""
        bits = parameter.element.dtype.type(parameter.default).tobytes()
        self.constants.append(f"@{name}.value = internal constant {_bytes(bits)}, align 8")
        self.constants.append(
            f"@{name} = internal constant {{ ptr, i32, ptr, i32 }} {{ ptr null, i32 0, ptr @{name}.value, i32 {len(bits)} }}"
        )
        missing = self.value(f"icmp eq ptr {record}, null")
        return self.value(f"select i1 {missing}, ptr @{name}, ptr {record}")

    def symbol(self, name: str, definition: str) -> str:
        """The value of a dimension, which the first array that names it defines."""
        if name not in self.symbols:
            self.symbols[name] = self.value(definition)
        return self.symbols[name]

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        self.counter += 1
        self.line(f"%v{self.counter} = {text}")
        return f"%v{self.counter}"

    def load(self, kind: str, at: str) -> str:
        return self.value(f"load {kind}, ptr {at}")

    def at(self, base: str, offset: int) -> str:
        return self.value(f"getelementptr i8, ptr {base}, i32 {offset}") if offset else base
