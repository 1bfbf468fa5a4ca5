"""Signatures: what the annotations of a function say, and the metadata that a module gets."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from callbox.types import ArrayType, ElementType

from ._errors import CompileError

#: Names of exports that belong to the toolchain.
_RESERVED = frozenset({"memory", "cabi_realloc"})


@dataclass(frozen=True)
class Parameter:
    """An operand, a result or an attribute."""

    name: str
    type: ArrayType | ElementType
    #: The value of an attribute that a call leaves out.
    default: int | float | bool | None = None

    @property
    def element(self) -> ElementType:
        """The type of the elements."""
        return self.type.element if isinstance(self.type, ArrayType) else self.type


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel."""

    name: str
    documentation: str
    #: The parameters before ``*``: operands and results.
    buffers: tuple[Parameter, ...]
    #: The parameters after ``*``.
    attributes: tuple[Parameter, ...]
    #: The types of returned scalars, for a function of scalars, and else None.
    returned: tuple[ElementType, ...] | None
    is_elementwise: bool
    has_rows: bool

    def metadata(self, operands: Sequence[Parameter], results: Sequence[Parameter]) -> bytes:
        """The target's line in the section `callbox.targets`."""
        traits = ["pure"] + ["elementwise"] * self.is_elementwise + ["rows"] * self.has_rows
        line = {
            "name": self.name,
            "ffi_version": "1.0",
            "api_version": "API_VERSION_TYPED_FFI",
            "stages": ["execute"],
            "operands": [_buffer(operand) for operand in operands],
            "results": [_buffer(result) for result in results],
            "attributes": [_attribute(attribute) for attribute in self.attributes],
            "traits": traits,
        }
        if self.documentation:
            line["doc"] = self.documentation
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _buffer(parameter: Parameter) -> dict[str, Any]:
    assert isinstance(parameter.type, ArrayType)
    # The dimensions say the rank.
    return {
        "name": parameter.name,
        "element_types": [parameter.element.xla_name],
        "dimensions": list(parameter.type.dimensions),
    }


def _attribute(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": "array" if isinstance(parameter.type, ArrayType) else "scalar",
        "element_type": parameter.element.xla_name,
        "optional": parameter.default is not None,
    }


def signature_of(function: Callable[..., Any], *, elementwise: bool, rows: bool) -> Signature:
    """Reads the annotations of a function.

    Raises:
        CompileError: An annotation is missing or wrong.
    """
    reader = _Reader(function)
    name = function.__name__
    if not name.isidentifier() or name.startswith("_") or name in _RESERVED:
        raise reader.error(f"a kernel cannot be named {name!r}")
    if elementwise and rows:
        raise reader.error("a kernel is elementwise or has rows, not both")
    buffers, attributes = reader.parameters()
    returned = reader.returned()
    scalars = [p.name for p in buffers if isinstance(p.type, ElementType)]
    if returned is None and scalars:
        raise reader.error(
            f"parameter {scalars[0]!r} is a scalar: put it after `*` to make it an attribute, or let an"
            " elementwise kernel return its result (`-> f32`)"
        )
    if returned is not None:
        if not elementwise:
            raise reader.error(
                "a kernel writes its results into parameters; only with `elementwise=True` can it return scalars"
            )
        arrays = [p.name for p in buffers if isinstance(p.type, ArrayType)]
        if arrays:
            raise reader.error(
                f"an elementwise kernel that returns scalars takes scalars, but {arrays[0]!r} is an array"
            )
        if not buffers:
            raise reader.error("an elementwise kernel needs at least one operand")
    elif elementwise:
        for parameter in buffers:
            assert isinstance(parameter.type, ArrayType)
            if parameter.type.dimensions != ("..",):
                raise reader.error(
                    f"parameter {parameter.name!r} of an elementwise kernel: expected {parameter.element}[...],"
                    f" found {parameter.type}"
                )
    if not buffers:
        raise reader.error("a kernel needs at least one array, for its result")
    return Signature(
        name=name,
        documentation=inspect.getdoc(function) or "",
        buffers=tuple(buffers),
        attributes=tuple(attributes),
        returned=returned,
        is_elementwise=elementwise,
        has_rows=rows,
    )


def _is_list(declared: ArrayType) -> bool:
    """Whether an attribute can be such an array: the host does not solve for its dimension."""
    dimension = declared.dimensions[0] if len(declared.dimensions) == 1 else ".."
    return isinstance(dimension, int) or dimension.isidentifier()


class _Reader:
    """Reads one function's annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not inspect.isfunction(function):
            raise TypeError(f"expected a Python function, found {type(function).__name__}")
        self.function = function
        self.annotations = _annotations(function)

    def error(self, message: str) -> CompileError:
        code = self.function.__code__
        return CompileError(f"{self.function.__name__}: {message}", code.co_filename, code.co_firstlineno)

    def parameters(self) -> tuple[list[Parameter], list[Parameter]]:
        buffers: list[Parameter] = []
        attributes: list[Parameter] = []
        for parameter in inspect.signature(self.function).parameters.values():
            name, default = parameter.name, parameter.default
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self.error(f"a kernel takes named parameters only, but {name!r} takes any number")
            declared = self.type_of(name)
            if parameter.kind is not parameter.KEYWORD_ONLY:
                if default is not parameter.empty:
                    raise self.error(f"{name!r} is an array, which has no default; attributes come after `*`")
                buffers.append(Parameter(name, declared))
                continue
            if isinstance(declared, ArrayType) and not _is_list(declared):
                raise self.error(
                    f"attribute {name!r}: expected a scalar or an array of one dimension, a size or a name, found"
                    f" {declared}"
                )
            if default is parameter.empty:
                attributes.append(Parameter(name, declared))
            elif isinstance(declared, ArrayType) or not isinstance(default, (int, float)):
                raise self.error(f"attribute {name!r}: expected a number as its default, found {default!r}")
            else:
                attributes.append(Parameter(name, declared, self.converted(name, declared, default)))
        return buffers, attributes

    def converted(self, name: str, declared: ElementType, default: Any) -> Any:
        """The default in the attribute's type."""
        kind = declared.dtype.kind
        fits = isinstance(default, bool) if kind == "b" else not isinstance(default, bool)
        if kind in "iu":
            bits = 8 * declared.dtype.itemsize
            least, end = (0, 1 << bits) if kind == "u" else (-(1 << bits - 1), 1 << bits - 1)
            fits = fits and isinstance(default, int) and least <= default < end
        if not fits:
            raise self.error(f"attribute {name!r}: expected a default of type {declared}, found {default!r}")
        return declared.dtype.type(default).item()

    def returned(self) -> tuple[ElementType, ...] | None:
        if self.annotations.get("return") in (None, "None", type(None)):
            return None
        declared = self.evaluated("return")
        items = get_args(declared) if get_origin(declared) is tuple else (declared,)
        if not items or not all(isinstance(item, ElementType) for item in items):
            raise self.error(f"expected to return a scalar such as f32, or a tuple of them, found {declared!r}")
        return items

    def type_of(self, name: str) -> ArrayType | ElementType:
        if name not in self.annotations:
            raise self.error(f"parameter {name!r} needs a type such as f32[...] or f32['n']")
        declared = self.evaluated(name)
        if not isinstance(declared, (ArrayType, ElementType)):
            raise self.error(f"parameter {name!r}: expected a type such as f32[...] or f32['n'], found {declared!r}")
        return declared

    def evaluated(self, name: str) -> Any:
        annotation = self.annotations[name]
        # A quoted annotation under `from __future__ import annotations` is quoted twice.
        for _ in range(2):
            if isinstance(annotation, str):
                annotation = self.value_of(name, annotation)
        return annotation

    def value_of(self, name: str, annotation: str) -> Any:
        try:
            tree = _Symbols().visit(ast.parse(annotation, mode="eval"))
            code = compile(ast.fix_missing_locations(tree), "<annotation>", "eval")
            variables = inspect.getclosurevars(self.function)
            return eval(code, dict(self.function.__globals__), dict(variables.nonlocals))
        except Exception as error:  # noqa: BLE001 - an annotation is any Python expression
            raise self.error(f"the annotation of {name!r}, {annotation}: {error}") from None


class _Symbols(ast.NodeTransformer):
    """Quotes dimensions with names: ``f32["..", 2 * n]`` becomes ``f32["..", "2 * n"]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "tuple":
            return node
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = [ast.Constant(ast.unparse(i)) if _is_computed(i) else i for i in items]
        node.slice = ast.Tuple(found, ast.Load()) if isinstance(node.slice, ast.Tuple) else found[0]
        return node


def _is_computed(node: ast.expr) -> bool:
    """Whether an expression has names, and otherwise only numbers and operators."""
    nodes = list(ast.walk(node))
    arithmetic = (ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    is_number = all(type(n.value) in (int, float) for n in nodes if isinstance(n, ast.Constant))
    return is_number and all(isinstance(n, arithmetic) for n in nodes) and any(isinstance(n, ast.Name) for n in nodes)


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(function, format=annotationlib.Format.STRING)
    return dict(function.__annotations__)
