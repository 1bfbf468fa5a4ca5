"""The CUDA twin of a kernel: PTX from the same LLVM text, and the manifest that launches it.

Each thread computes one element, or one row, at a time: it calls the kernel with arrays of that one
element or row. All functions are inlined, because the fence refuses calls, and a `raise` is the
instruction `trap`, which the fence turns into a failure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from callbox.types import ArrayType

from ._glue import LLVM_TYPES, Glue
from ._signature import Parameter, Signature

_TRIPLE = "nvptx64-nvidia-cuda"
_CPU, _FEATURES = "sm_80", "+ptx80"
#: The threads of a block, and the most blocks. Threads take further elements or rows in turn.
_THREADS, _BLOCKS = 256, 65536

# The manifest's types of numbers.
_NUMBERS = {"i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}

_HELPERS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare void @llvm.trap()
"""


class CudaError(Exception):
    """A kernel that has no CUDA twin."""


def twin(text: str, glue: Glue, order: Sequence[Parameter], signature: Signature) -> bytes:
    """Compiles a kernel's text to PTX. Returns the PTX and the manifest, in JSON.

    Raises:
        CudaError: A manifest cannot launch the kernel.
    """
    entry = f"{signature.name}_kernel"
    launch, definition = _Entry(glue, signature).written(entry, order)
    ptx = _ptx(_inlined(text) + _HELPERS + definition)
    if re.search(r"\bcall\b", ptx):
        raise CudaError("a CUDA twin cannot call functions that are not compiled into it")
    target = json.loads(signature.metadata(glue.operands, glue.results))
    for field in ("ffi_version", "stages"):
        del target[field]
    target["api_versions"] = [target.pop("api_version")]
    target["traits"].append("command_buffer_compatible")
    for buffer in target["operands"] + target["results"]:
        buffer["element_types"] = [name.lower() for name in buffer["element_types"]]
    for attribute in target["attributes"]:
        attribute["element_type"] = attribute["element_type"].lower()
    target["launches"] = [{"image": signature.name, "entry": entry, **launch}]
    images = [{"name": signature.name, "file": f"{signature.name}.ptx"}]
    manifest = {"format": 1, "images": images, "targets": [target]}
    return json.dumps({"ptx": ptx, "manifest": manifest}).encode()


def _inlined(text: str) -> str:
    """The text whose functions become part of the entry: a fenced kernel has no calls."""
    return re.sub(
        r"^(define internal .*?\))((?: [a-z_]+(?:\([^)]*\))?| #\d+)*) \{$", r"\1 alwaysinline\2 {", text, flags=re.M
    )


def _ptx(text: str) -> str:
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=_CPU, features=_FEATURES, opt=3)
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{_TRIPLE}"\n'
    module = llvm.parse_assembly(header + text)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


class _Entry:
    """Writes the entry of a twin."""

    def __init__(self, glue: Glue, signature: Signature) -> None:
        self.operands, self.results = list(glue.operands), list(glue.results)
        self.attributes = list(glue.attributes)
        self.kernel = glue.kernel
        self.is_elementwise = signature.is_elementwise
        #: The values of the dimensions that have names, as expressions of the manifest.
        self.symbols: dict[str, str] = {}
        for kind, buffers in (("operands", self.operands), ("results", self.results)):
            for number, buffer in enumerate(buffers):
                # An expression is a size of its own, which the host has checked.
                for at, dimension in enumerate(reversed(_fixed(buffer))):
                    if isinstance(dimension, str):
                        self.symbols.setdefault(dimension, f"{kind}[{number}].dims[{-1 - at}]")

    def written(self, name: str, order: Sequence[Parameter]) -> tuple[dict[str, Any], str]:
        """The launch, and the definition of the entry."""
        launched: list[dict[str, Any]] = []
        declared = []
        for kind, buffers in (("operand", self.operands), ("result", self.results)):
            for number, buffer in enumerate(buffers):
                launched.append({kind: number})
                declared.append(f"ptr addrspace(1) %array.{buffer.name}")
        count = self.count()
        launched.append({"value": count, "type": "u64"})
        declared.append("i64 %count")
        for symbol, value in self.symbols.items():
            launched.append({"value": value, "type": "s64"})
            declared.append(f"i64 {_size(symbol)}")
        for attribute in self.attributes:
            kind = LLVM_TYPES[attribute.element.name]
            launched.append(
                {"value": _value(attribute), "type": _NUMBERS.get(attribute.element.name, attribute.element.name)}
            )
            declared.append(f"{kind} %attribute.{attribute.name}")
        launch = {
            "when": f"{self.counted()}.elements > 0",
            "parameters": launched,
            "grid": [f"min(ceil_div({count}, {_THREADS}), {_BLOCKS})"],
            "block": [str(_THREADS)],
        }
        return launch, self.definition(name, declared, order)

    def counted(self) -> str:
        """The result whose elements say how many there are to compute."""
        number = min(range(len(self.results)), key=lambda n: len(_fixed(self.results[n])))
        return f"results[{number}]"

    def count(self) -> str:
        """The number of elements, or of rows."""
        result = self.counted()
        fixed = len(_fixed(self.results[int(result[8:-1])]))
        row = " * ".join(f"{result}.dims[{-1 - at}]" for at in range(fixed))
        # Where there are no elements, there is no launch.
        return f"{result}.elements / max(1, {row})" if row else f"{result}.elements"

    def definition(self, name: str, declared: list[str], order: Sequence[Parameter]) -> str:
        lines = Glue(self.kernel, self.operands, self.results, self.attributes, self.is_elementwise)
        arguments: list[str] = []
        for parameter in order:
            if parameter in self.attributes:
                arguments.append(f"{LLVM_TYPES[parameter.element.name]} %attribute.{parameter.name}")
                continue
            item = parameter.element.dtype.itemsize
            shape = [str(d) if isinstance(d, int) else _size(d) for d in _fixed(parameter)]
            data = lines.value(f"addrspacecast ptr addrspace(1) %array.{parameter.name} to ptr")
            assert isinstance(parameter.type, ArrayType)
            if parameter.type.has_rows:
                step = str(item)
                for size in shape:
                    step = lines.value(f"mul nsw i64 {step}, {size}")
                data = lines.value(f"getelementptr i8, ptr {data}, i64 {lines.value(f'mul nsw i64 %i, {step}')}")
                shape = ["1", *shape]
            arguments += lines.packed(data, item, shape)
        passed = ", ".join(["ptr %returned", "ptr %failure", *arguments])
        return "\n".join(
            [
                f"define ptx_kernel void @{name}({', '.join(declared)}) {{",
                "  %returned = alloca ptr",
                "  %failure = alloca ptr",
                "  %thread.32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
                "  %block.32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
                "  %blocks.32 = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()",
                "  %thread = zext i32 %thread.32 to i64",
                "  %block = zext i32 %block.32 to i64",
                "  %blocks = zext i32 %blocks.32 to i64",
                f"  %before = mul nuw nsw i64 %block, {_THREADS}",
                "  %first = add nuw nsw i64 %before, %thread",
                f"  %step = mul nuw nsw i64 %blocks, {_THREADS}",
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [ %first, %0 ], [ %next, %succeeded ]",
                "  %is.in = icmp ult i64 %i, %count",
                "  br i1 %is.in, label %one, label %end",
                "one:",
                *lines.lines,
                f"  %status = call i32 @{self.kernel}({passed})",
                "  %is.failed = icmp sgt i32 %status, 0",
                "  br i1 %is.failed, label %failed, label %succeeded",
                "failed:",
                "  call void @llvm.trap()",
                "  unreachable",
                "succeeded:",
                "  %next = add nuw nsw i64 %i, %step",
                "  br label %loop",
                "end:",
                "  ret void",
                "}",
                "",
            ]
        )


def _fixed(parameter: Parameter) -> list[int | str]:
    """The dimensions after `..`."""
    assert isinstance(parameter.type, ArrayType)
    return list(parameter.type.dimensions)[parameter.type.has_rows :]


def _size(dimension: str) -> str:
    """LLVM's name of a dimension's size."""
    return f'%"size.{dimension}"'


def _value(attribute: Parameter) -> str:
    """The expression of an attribute's value.

    Raises:
        CudaError: A manifest cannot pass it.
    """
    if isinstance(attribute.type, ArrayType):
        raise CudaError(f"a CUDA twin takes scalar attributes, but {attribute.name!r} is an array")
    if attribute.default is None:
        return f"attributes.{attribute.name}"
    default = np.asarray(attribute.default).astype(attribute.element.dtype).item()
    if isinstance(default, float) and not math.isfinite(default):
        raise CudaError(f"the manifest of a CUDA twin cannot say the default {default} of {attribute.name!r}")
    said = str(default).lower() if isinstance(default, bool) else repr(default)
    return f"if(has(attributes.{attribute.name}), attributes.{attribute.name}, {said})"
