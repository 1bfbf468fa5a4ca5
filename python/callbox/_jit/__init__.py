"""Kernels from Python functions: `callbox.jit`."""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np

from callbox._callbox import Host, Module, Target
from callbox.types import ArrayType

from . import _cache, _native
from ._errors import CompileError
from ._payload import payload_of
from ._signature import Signature, signature_of
from ._worker import WORKER

__all__ = ["CompileError", "JitFunction", "jit"]


@overload
def jit(function: Callable[..., Any], /) -> JitFunction: ...
@overload
def jit(
    *,
    elementwise: bool = ...,
    rows: bool = ...,
    vjp: Any = ...,
    host: Host | None = ...,
    boundscheck: bool = ...,
    reassociate: bool = ...,
    cuda: bool = ...,
) -> Callable[[Callable[..., Any]], JitFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    elementwise: bool = False,
    rows: bool = False,
    vjp: Any = None,
    host: Host | None = None,
    boundscheck: bool = False,
    reassociate: bool = False,
    cuda: bool = False,
) -> Any:
    """Makes a kernel of a Python function. A decorator, with or without options.

    The annotations of the function say what it takes: arrays such as ``f32["..", n]``, and after
    ``*`` attributes such as ``f32``. Arrays that the function writes to are results. ``..`` stands
    for any number of dimensions, which the function sees as one.

    The kernel is compiled when it is first used, with Numba and in a process of its own, and then
    kept on disk. Only the author needs Numba: `save` writes a module for everyone.

    Args:
        function: The function. It may call other Python functions, jitted or not, and those of
            `callbox.math`.
        elementwise: The function computes each element from the same element of each operand. It
            takes and returns scalars, ``def f(x: f32) -> f32``, or takes arrays ``f32[...]`` as one
            dimension and promises this.
        rows: The function promises to compute each row of ``..`` from the same row of each operand
            with ``..``.
        vjp: The derivative for `callbox.jax` and `callbox.torch`, as their `vjp`: another jitted
            function, a target, or a function.
        host: The host that runs the kernel. None: one with the default policy.
        boundscheck: An index out of range fails the call. Otherwise the kernel reads or writes
            elsewhere in its own memory.
        reassociate: Sums may be computed in another order, which is faster and gives other
            roundings. The order is fixed when the kernel is compiled.
        cuda: The kernel has a CUDA twin, whose threads compute an element or a row each. It must be
            elementwise or have rows.

    Raises:
        CompileError: The annotations do not describe a kernel.
    """

    def decorate(function: Callable[..., Any]) -> JitFunction:
        signature = signature_of(function, elementwise=elementwise, rows=rows)
        options = {"boundscheck": boundscheck, "reassociate": reassociate}
        if cuda and not (elementwise or rows):
            code = function.__code__
            message = f"{function.__name__}: only a kernel that is elementwise or has rows has a CUDA twin"
            raise CompileError(message, code.co_filename, code.co_firstlineno)
        return JitFunction(function, signature, vjp=vjp, host=host, options=options, cuda=cuda)

    return decorate if function is None else decorate(function)


class JitFunction:
    """A Python function as a kernel: a callable like a loaded target.

    A call takes NumPy arrays, and attributes by name, and returns new arrays. See `Target`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        *,
        vjp: Any,
        host: Host | None,
        options: dict[str, bool],
        cuda: bool,
    ) -> None:
        functools.update_wrapper(self, function)
        self.vjp = vjp
        self._function = function
        self._kernel = signature
        self._host = host
        self._options = options
        self._cuda = cuda
        self._lock = threading.RLock()
        self._wasm: bytes | None = None
        self._made_twin: dict[str, Any] | None = None
        self._module: Module | None = None
        _kernels.add(self)

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        return self.target(*arrays, **options)

    def __repr__(self) -> str:
        return f"<callbox.jit {self._kernel.name}>"

    @property
    def __callbox_function__(self) -> Callable[..., Any]:
        # For kernels that call this function.
        return self._function

    @property
    def wasm(self) -> bytes:
        """The module, compiled now if it was not yet.

        Raises:
            CompileError: The function cannot become a kernel.
        """
        with self._lock:
            if self._wasm is None:
                self._wasm = self._compiled(cuda=False)
            return self._wasm

    @property
    def ptx(self) -> str:
        """The PTX of the CUDA twin.

        Raises:
            CompileError: The function cannot become a CUDA kernel, or `cuda=True` is missing.
        """
        return str(self._twin()["ptx"])

    def _twin(self) -> dict[str, Any]:
        """The PTX and the manifest."""
        if not self._cuda:
            raise CompileError(f"{self._kernel.name} has no CUDA twin: it was jitted without `cuda=True`")
        with self._lock:
            if self._made_twin is None:
                self._made_twin = json.loads(self._compiled(cuda=True))
            return self._made_twin

    def save_cuda(self, folder: str | PathLike[str]) -> Path:
        """Writes the CUDA twin to a folder: its PTX, and the manifest ``callbox.json``.

        Returns:
            The manifest's path, which `Host.load` takes as `native`.

        Raises:
            CompileError: The function cannot become a CUDA kernel, or `cuda=True` is missing.
            OSError: A file cannot be written.
        """
        twin, folder = self._twin(), Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _cache.save(folder / f"{self._kernel.name}.ptx", twin["ptx"].encode())
        manifest = folder / "callbox.json"
        _cache.save(manifest, (json.dumps(twin["manifest"], indent=2) + "\n").encode())
        return manifest

    def _compiled(self, *, cuda: bool) -> bytes:
        payload = payload_of(self._function)
        try:
            versions = [metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
        except metadata.PackageNotFoundError as error:
            raise CompileError(f"callbox.jit needs Numba (pip install 'callbox[jit]'): {error}") from None
        options = {**self._options, "cuda": cuda}
        says = repr((versions, self._kernel, sorted(options.items())))
        # `repr` is the same for all NaNs.
        defaults = marshal.dumps([attribute.default for attribute in self._kernel.attributes], 2)
        digested = says.encode() + defaults + payload.digest + _compiler_digest()
        key = hashlib.sha256(digested).hexdigest()
        if (module := _cache.find(key)) is not None:
            return module
        module = WORKER.compile(self._kernel.name, (payload, self._kernel, options))
        _cache.keep(key, module)
        return module

    @property
    def module(self) -> Module:
        """The loaded module.

        Raises:
            CompileError: The function cannot become a kernel.
        """
        with self._lock:
            if self._module is None:
                host = self._host or _default_host()
                if self._cuda:
                    with tempfile.TemporaryDirectory() as folder:
                        self._module = host.load(self.wasm, native=self.save_cuda(folder))
                else:
                    self._module = host.load(self.wasm)
            return self._module

    @property
    def target(self) -> Target:
        """The target in the loaded module.

        Raises:
            CompileError: The function cannot become a kernel.
        """
        return self.module[self._kernel.name]

    @property
    def __callbox_target__(self) -> Target:
        # For `callbox.jax` and `callbox.torch`.
        return self.target

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the module to a file, which any host loads, without Numba.

        The file has its old content or all of the new, also if the process is killed, which can
        leave a hidden file beside it. A later `save` to the same file deletes that after an hour.

        Raises:
            CompileError: The function cannot become a kernel.
            OSError: The file cannot be written; what was there remains.
        """
        _cache.save(Path(path), self.wasm)

    def inspect(self) -> dict[str, Any]:
        """Describes the kernel: its signature, traits and documentation, and the module's size."""
        target = self.target
        return {
            "signature": f"{target.name}{target.__signature__}",
            "operands": target.operands,
            "results": target.results,
            "attributes": target.attributes,
            "traits": target.traits,
            "doc": self._kernel.documentation,
            "bytes": len(self.wasm),
            "digest": self.module.digest,
        }

    def test(self, *arrays: Any, rtol: float = 1e-5, atol: float = 1e-6, **attributes: Any) -> None:
        """Calls the kernel and the plain Python function, and compares their results.

        Raises:
            AssertionError: They differ by more than the tolerances, as in `numpy.allclose`.
        """
        found = self(*arrays, **attributes)
        found = found if isinstance(found, tuple) else (found,)
        expected = self._in_python([np.asarray(a) for a in arrays], found, attributes)
        results = self.target.results or ()
        for result, one, other in zip(results, found, expected, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=rtol, atol=atol, err_msg=f"{result.name} of {self._kernel.name}, and of plain Python"
            )

    def time_natively(self, *arrays: Any, **options: Any) -> float:
        """The least seconds of at most 100 calls of the same source as native code of Numba.

        It takes what a call of the kernel takes, and says how much slower the module is. A process
        of its own compiles and runs the native code, without a sandbox.

        Raises:
            CompileError: The function cannot be compiled or called natively.
        """
        found = self(*arrays, **options)
        results = [np.zeros_like(result) for result in (found if isinstance(found, tuple) else (found,))]
        operands = [np.ascontiguousarray(array) for array in arrays]
        if self._kernel.returned is not None:
            views = [array.reshape(-1) for array in (*operands, *results)]
        else:
            views = self._views(operands, results)
        request = (payload_of(self._function), self._kernel, self._options)
        arguments = [*views, *self._attributes(options).values()]
        return _native.least_seconds(self._kernel.name, (*request, arguments))

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values of the attributes, in their order."""
        return {
            a.name: np.asarray(given.get(a.name, a.default), a.element.dtype)[
                ... if isinstance(a.type, ArrayType) else ()
            ]
            for a in self._kernel.attributes
        }

    def _views(self, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The arrays as the function sees them, in the order of its parameters."""
        names = [result.name for result in self.target.results or ()]
        rest = iter(operands)
        arrays = [results[names.index(p.name)] if p.name in names else next(rest) for p in self._kernel.buffers]
        views = []
        for parameter, array in zip(self._kernel.buffers, arrays, strict=True):
            assert isinstance(parameter.type, ArrayType)
            shape = array.shape
            if parameter.type.has_rows:
                fixed = len(parameter.type.dimensions) - 1
                split = array.ndim - fixed
                shape = (int(np.prod(shape[:split], dtype=np.int64)), *shape[split:])
            views.append(array.reshape(shape))
        return views

    def _in_python(self, operands: Sequence[Any], like: Sequence[Any], given: dict[str, Any]) -> list[Any]:
        """The results of the plain function, of the shapes of `like`."""
        results = [np.zeros_like(result) for result in like]
        kernel = self._kernel
        attributes = self._attributes(given)
        with np.errstate(all="ignore"):
            if kernel.returned is not None:
                for index in np.ndindex(results[0].shape):
                    values = self._function(*(operand[index] for operand in operands), **attributes)
                    values = values if isinstance(values, tuple) else (values,)
                    for result, value in zip(results, values, strict=True):
                        result[index] = value
                return results
            self._function(*self._views(operands, results), **attributes)
        return results


@functools.cache
def _compiler_digest() -> bytes:
    """A digest of the compiler's source, and of the mathematics that it compiles."""
    folder = Path(__file__).parent
    sources = [*sorted(folder.glob("*.py")), folder.with_name("math.py"), folder.with_name("types.py")]
    return hashlib.sha256(b"".join(hashlib.sha256(source.read_bytes()).digest() for source in sources)).digest()


#: All kernels.
_kernels: weakref.WeakSet[JitFunction] = weakref.WeakSet()

_host: Host | None = None
_host_lock = threading.Lock()


def _after_fork() -> None:
    """Leaves the locks to the parent's threads, which the child does not have."""
    global _host_lock
    _host_lock = threading.Lock()
    for kernel in list(_kernels):
        kernel._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _default_host() -> Host:
    global _host
    with _host_lock:
        if _host is None:
            _host = Host()
        return _host
