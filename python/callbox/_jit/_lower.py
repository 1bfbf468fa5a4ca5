"""Compiles a payload: Numba makes LLVM's text, LLVM an object, and `_link` the module.

Runs in the compiler's process only: LLVM ends the process when it meets what it does not support.
"""

from __future__ import annotations

import importlib
import marshal
import os
import pickle
import re
import types as python_types
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import compiler, errors, ir, types
from numba.np import numpy_support

from callbox import math as kernel_math
from callbox.types import BY_NAME, ArrayType, ElementType, f64

from . import _cuda, _link, _numbers
from ._errors import CompileError
from ._glue import TARGET, UNIMPLEMENTED, Glue, failure
from ._payload import Payload, uses
from ._signature import Parameter, Signature

_TRIPLE = "wasm32-unknown-unknown"
_FEATURES = "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals"
# Up to four vectors in each iteration of a short loop, which pay for its checks. LLVM takes one for
# WebAssembly, and fewer than four if it counts the registers of eight scalars.
_OPTIONS = [
    "-force-target-max-vector-interleave=4",
    "-force-target-num-scalar-regs=32",
    "-force-target-num-vector-regs=32",
]

#: The status of an exception, by the name of its class; of others it is INTERNAL.
_CODES = {
    "ValueError": 3,
    "TypeError": 3,
    "KeyError": 5,
    "MemoryError": 8,
    "AssertionError": 9,
    "IndexError": 11,
    "OverflowError": 11,
    "ZeroDivisionError": 11,
    "NotImplementedError": UNIMPLEMENTED,
}
_INTERNAL = 13

_MODULES = {"callbox.math": kernel_math, "numpy": np}


def prepare() -> None:
    """Makes this process a compiler."""
    _numbers.install()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for option in _OPTIONS:
        llvm.set_option("callbox", option)
    # Loads what Numba imports on first use.
    numba.njit(numba.void(), **_options(False))(lambda: None)


def _options(boundscheck: bool) -> dict[str, Any]:
    return {
        "_nrt": False,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",
        "boundscheck": boundscheck,
    }


def compile_module(
    payload: Payload, signature: Signature, *, boundscheck: bool, reassociate: bool, cuda: bool
) -> bytes:
    """Compiles a kernel to a module, or with `cuda` to what `_cuda.twin` returns.

    Raises:
        CompileError: The function cannot become a kernel.
    """
    options = _options_of(payload, signature, boundscheck=boundscheck, reassociate=reassociate)
    # Errors are told at the places of this one, not of the loop around it.
    function = called = _Functions(payload, options).kernel()
    try:
        if signature.returned is None:
            operands, results, order = _roles(function, signature)
        else:
            called, operands, results, order = _loop(function, signature, options)
        kernel, text = _llvm_of(called, order, results, options)
        glue = Glue(kernel, operands, results, signature.attributes, signature.is_elementwise)
        kernel_text = _retargeted(text)
        text = kernel_text + glue.text(order)
        _check_types(text, glue)
        if cuda:
            return _cuda.twin(kernel_text, glue, order, signature)
        text = _without_aliases(text, kernel)
        metadata = signature.metadata(operands, results)
        return _link.link(_emit(text), TARGET, signature.name, metadata)
    except errors.NumbaError as error:
        raise _explained(error, function) from None
    except _link.UndefinedError as error:
        raise _error(function, _undefined(error.names)) from None
    except (_link.LinkError, _cuda.CudaError) as error:
        raise _error(function, str(error)) from None


def compile_natively(payload: Payload, signature: Signature, *, boundscheck: bool, reassociate: bool) -> Any:
    """Returns Numba's native function, of the arrays with all results, and the attributes."""
    options = _options_of(payload, signature, boundscheck=boundscheck, reassociate=reassociate)
    function = _Functions(payload, options).kernel()
    if signature.returned is not None:
        function = _loop(function, signature, options)[0]
    return numba.njit(**{**options, "no_cpython_wrapper": False})(_positional(function))


def _options_of(payload: Payload, signature: Signature, *, boundscheck: bool, reassociate: bool) -> dict[str, Any]:
    """Numba's options for a kernel. Also chooses the type of its numbers."""
    every = [*signature.buffers, *signature.attributes]
    elements = [p.element for p in every] + list(signature.returned or ())
    _numbers.Numbers.floats_are_weak = f64 not in elements and not payload.names_f64
    options = _options(boundscheck)
    if reassociate:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    return options


def _positional(function: Any) -> Any:
    """The function with its attributes, which are keyword-only, as positional parameters."""
    code = function.__code__
    code = code.replace(co_argcount=code.co_argcount + code.co_kwonlyargcount, co_kwonlyargcount=0)
    return python_types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


def _error(function: Any, message: str, line: int | None = None) -> CompileError:
    code = function.__code__
    return CompileError(f"{function.__name__}: {message}", code.co_filename, line or code.co_firstlineno)


def _undefined(names: list[str]) -> str:
    found = []
    for name in names:
        ours = next((n for n in kernel_math.__all__ if name in (n, n + "f")), None)
        if ours:
            found.append(f"a kernel cannot call the C library's {name}: use callbox.math.{ours}")
        elif name.startswith("NRT_"):
            found.append("a kernel cannot allocate memory: write into its parameters")
        else:
            found.append(f"a kernel cannot call {name}, which is a function outside of it")
    return "; ".join(dict.fromkeys(found))


class _Functions:
    """Makes functions of a payload's."""

    def __init__(self, payload: Payload, options: dict[str, Any]) -> None:
        self.payload = payload
        self.options = options
        self.made: dict[int, Any] = {}

    def kernel(self) -> Any:
        return self.plain(0)

    def plain(self, number: int) -> Any:
        entry = self.payload.functions[number]
        names: dict[str, Any] = {"__builtins__": __builtins__, "__name__": "kernel"}
        cells = tuple(python_types.CellType() for _ in entry.cells)
        function = python_types.FunctionType(marshal.loads(entry.code), names, entry.name, None, cells or None)
        # Numba reads the defaults when it makes its function.
        function.__defaults__ = tuple(map(self.value, entry.defaults)) or None
        self.made[number] = function if number == 0 else numba.njit(**self.options)(function)
        for cell, value in zip(cells, entry.cells, strict=True):
            cell.cell_contents = self.value(value)
        names.update({name: self.value(value) for name, value in entry.globals.items()})
        return function

    def value(self, described: tuple[str, Any]) -> Any:
        kind, value = described
        if kind == "function":
            if value not in self.made:
                self.plain(value)
            return self.made[value]
        if kind == "tuple":
            return tuple(map(self.value, value))
        if kind == "scalar":
            return np.dtype(value[0]).type(value[1])
        if kind == "array":
            return np.frombuffer(value[2], value[0]).reshape(value[1])
        if kind == "type":
            return BY_NAME[value].dtype.type
        if kind == "dtype":
            return np.dtype(value).type
        if kind == "math":
            return getattr(kernel_math, value)
        if kind == "module":
            return _MODULES.get(value) or importlib.import_module(value)
        if kind == "object":
            return getattr(importlib.import_module(value[0]), value[1])
        return value


def _roles(function: Any, signature: Signature) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """The operands, the results, and all parameters in their order.

    Results are the arrays that the function writes to.
    """
    written = _written(function, {})
    results = [p for p in signature.buffers if p.name in written]
    if not results:
        raise _error(function, "it writes to no parameter: a kernel stores its results, as in y[i] = x[i]")
    for result in results if signature.has_rows else ():
        assert isinstance(result.type, ArrayType)
        if result.type.dimensions[:1] != ("..",):
            raise _error(function, f'the result {result.name!r} of rows: expected "..", found {result.type}')
    operands = [p for p in signature.buffers if p.name not in written]
    return operands, results, [*signature.buffers, *signature.attributes]


def _written(function: Any, known: dict[Any, set[str]]) -> set[str]:
    """The names of parameters whose elements the function, or one that it calls, assigns."""
    if function in known:
        return known[function]
    found = known[function] = set()
    body = compiler.run_frontend(function)  # type: ignore[no-untyped-call]
    for block in body.blocks.values():
        for statement in block.body:
            if isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
                found |= _arguments(body, statement.target)
            elif isinstance(statement, ir.Assign) and getattr(statement.value, "op", None) == "call":
                found |= _passed(body, statement.value, known)
    return found


def _passed(body: Any, call: Any, known: dict[Any, set[str]]) -> set[str]:
    called = ir_value(body, call.func)
    if not hasattr(called, "py_func"):
        return set()
    function = called.py_func
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    written = _written(function, known)
    passed = [*zip(names, call.args, strict=False), *call.kws]
    return set().union(*(_arguments(body, variable) for name, variable in passed if name in written))


def ir_value(body: Any, variable: Any) -> Any:
    """The global or free variable that a variable is, or None."""
    for found in body._definitions.get(variable.name, ()):
        if isinstance(found, (ir.Global, ir.FreeVar)):
            return found.value
    return None


def _arguments(body: Any, variable: Any) -> set[str]:
    """The parameters whose elements a variable can refer to."""
    found, open_names, seen = set(), [variable.name], set()
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        for definition in body._definitions.get(name, ()):
            if isinstance(definition, ir.Arg):
                found.add(definition.name)
            elif isinstance(definition, ir.Var):
                open_names.append(definition.name)
            elif getattr(definition, "op", None) in ("getitem", "static_getitem", "getattr", "cast"):
                open_names.append(definition.value.name)
    return found


def _loop(
    function: Any, signature: Signature, options: dict[str, Any]
) -> tuple[Any, list[Parameter], list[Parameter], list[Parameter]]:
    """The loop over all elements of a function of scalars."""
    operands = [Parameter(p.name, ArrayType(p.element, ("..",))) for p in signature.buffers]
    taken = {p.name for p in (*signature.buffers, *signature.attributes)}
    assert signature.returned is not None
    many = len(signature.returned) > 1
    results = []
    for number, element in enumerate(signature.returned):
        name = f"y{number}" if many else "y"
        while name in taken:
            name += "_"
        taken.add(name)
        results.append(Parameter(name, ArrayType(element, ("..",))))
    order = [*operands, *results, *signature.attributes]
    arguments = [f"{p.name}[i_]" for p in operands] + [p.name for p in signature.attributes]
    stores = ", ".join(f"{p.name}[i_]" for p in results)
    source = (
        f"def {function.__name__}({', '.join(p.name for p in order)}):\n"
        f"    for i_ in range({results[0].name}.size):\n"
        f"        {stores} = kernel_({', '.join(arguments)})\n"
    )
    names = {"kernel_": numba.njit(**options)(_positional(function)), "__builtins__": __builtins__}
    exec(compile(source, "<callbox.jit>", "exec"), names)
    return names[function.__name__], operands, results, order


def _llvm_of(
    function: Any, order: list[Parameter], results: list[Parameter], options: dict[str, Any]
) -> tuple[str, str]:
    """Compiles the function for the parameters' types. Returns its name and LLVM's text."""
    function = _positional(function)
    declared = types.void(*(_numba_type(p, is_result=p in results) for p in order))
    dispatcher = numba.njit(**options)(function)
    dispatcher.compile(declared.args)
    compiled = dispatcher.overloads[declared.args]
    if compiled.signature.return_type not in (types.none, types.void):
        raise _error(
            function, f"it returns {compiled.signature.return_type}: a kernel stores its results in parameters"
        )
    return compiled.fndesc.llvm_func_name, compiled.library.get_llvm_str()


def _numba_type(parameter: Parameter, *, is_result: bool) -> Any:
    element = numpy_support.from_dtype(parameter.element.dtype)
    if isinstance(parameter.type, ElementType):
        return element
    return types.Array(element, len(parameter.type.dimensions), "C", readonly=not is_result)


def _check_types(text: str, glue: Glue) -> None:
    """Checks that Numba takes arguments as `_glue` passes them.

    LLVM would take a call with other types for unreachable code.

    Raises:
        LinkError: This release of Numba has another convention.
    """
    found = re.search(rf"^define [^@]*@{re.escape(glue.kernel)}\((.*)\)", text, flags=re.MULTILINE)
    types_found = [argument.split()[0] for argument in found[1].split(", ")] if found else []
    if types_found != glue.passed_types:
        raise _link.LinkError(f"Numba {numba.__version__} has another calling convention: {types_found}")


def _without_aliases(text: str, kernel: str) -> str:
    """The text with the promise that the kernel's arrays do not overlap.

    The target has checked it, except for elementwise kernels, whose result can lie exactly where an
    operand lies: they read an element before they write it.
    """
    definition = re.compile(rf"^(define [^@]*@{re.escape(kernel)}\()(.*)(\).*)$", flags=re.MULTILINE)
    return definition.sub(lambda m: m[1] + re.sub(r"\bptr (?=%)", "ptr noalias ", m[2]) + m[3], text)


def _retargeted(text: str) -> str:
    """Numba's text for WebAssembly: every definition is internal, and failures have their texts."""
    text = re.sub(r'^target (datalayout|triple) = ".*"\n', "", text, flags=re.MULTILINE)
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    text = re.sub(
        r"^(@\S+ = )(?:common|linkonce|linkonce_odr|weak|weak_odr) ", r"\1internal ", text, flags=re.MULTILINE
    )
    text = re.sub(
        r"^define (?:linkonce_odr |linkonce |weak |weak_odr )?(?:hidden )?",
        "define internal ",
        text,
        flags=re.MULTILINE,
    )
    text = text.replace("define internal internal ", "define internal ")
    data = dict(
        re.findall(r'^@(\.const\.pickledata\.\w+) = internal constant \[\d+ x i8\] c"(.*)"', text, flags=re.MULTILINE)
    )

    def replaced(found: re.Match[str]) -> str:
        raw = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), data[found[2]].encode("latin-1"))
        kind, arguments, *_ = pickle.loads(raw)
        if kind is None:
            raise _link.LinkError("a kernel cannot raise an exception again, and has no `finally`")
        message = " ".join(str(a) for a in arguments or ()) or kind.__name__
        return failure(found[1], message.encode(), _CODES.get(kind.__name__, _INTERNAL))

    return re.sub(
        r"^@(\.const\.picklebuf\.\w+) = internal constant .*\{ ptr @(\.const\.pickledata\.\w+),.*\n",
        replaced,
        text,
        flags=re.MULTILINE,
    )


def _emit(text: str) -> bytes:
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(
        cpu="generic", features=_FEATURES, opt=3, reloc="static"
    )
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{_TRIPLE}"\n'
    module = llvm.parse_assembly(header + text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


_HINTS = {
    "NRT required": "a kernel cannot allocate memory: no new arrays, lists or strings; write into its parameters",
    r"setitem\(readonly array|\w+_fill\(readonly array|modify readonly array": "an operand cannot be written to: copy"
    " what you change into a result",
    "exception_match": "a kernel can catch every exception (`except Exception`) and no other",
    "unicode_type": "a kernel has no strings",
    "reflected list": "a kernel has no lists",
}


def _explained(error: errors.NumbaError, function: Any) -> CompileError:
    """Numba's error in a line, with the place and what to do."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    code = function.__code__
    location = getattr(error, "loc", None)
    unknown = re.search(r"name '(\w+)' is not defined", text)
    places = re.findall(r'(?:File "|at )([^"\n]*?)(?:", line |\s\()(\d+)\)?', text)
    name = os.path.basename(code.co_filename)
    lines = [int(number) for path, number in places if os.path.basename(path) == name]
    if location is not None and location.filename == code.co_filename:
        lines.append(location.line)
    if unknown:
        # Numba may not tell the line.
        lines += [line for used, line in uses(code) if used == unknown[1] and line]
    line = lines[0] if lines else None
    reasons = [
        part.strip()
        for part in text.splitlines()
        if part.strip()
        and not re.match(r"\s*(Failed in|During:|File|>>>|def |<source|There are|\- Of which|Enable logging)", part)
    ]
    reason = next((r for r in reasons if "callbox." in r), reasons[0] if reasons else type(error).__name__)
    called = re.search(r"Function\(<(?:built-in )?function (\w+)[^\n]*\n\s*>>> ([^\n]*)", text)
    if called and "callbox." not in reason:
        reason = f"it has no {called[1]}() of these types: {called[2]}".replace("Literal[int]", "int")
    hint = next((hint for key, hint in _HINTS.items() if re.search(key, text)), None)
    return _error(function, f"{hint} ({reason})" if hint else f"Numba cannot compile it: {reason}", line)
