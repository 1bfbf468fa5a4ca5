"""The interface of the JAX FFI proposal ("JAX Foreign Function Interface", October 2022)."""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from callbox._callbox import StaticInfo, Target

from . import _axes
from ._bind import bind
from ._derivatives import refused
from ._operands import as_operands
from ._options import Options
from ._results import Results, is_pair

_API_VERSION = "API_VERSION_JAX_FFI"
_PLATFORMS = ("cpu", "cuda")

_names: set[str] = set()
_lock = threading.Lock()


class FFICall:
    """A foreign function with a name and an implementation for each platform.

    >>> import callbox, struct
    >>> kernels = callbox.Host().load(guests / "jax_add_n.wasm")
    >>> add_n = FFICall("add_n")
    >>> add_n.register_function(kernels.add_n, platform="cpu")
    >>> info = struct.pack("f", 4.0)
    >>> call = jax.jit(lambda x: add_n(x, static_info=info, return_shape_dtype=x))
    >>> float(call(4.0))
    8.0

    Args:
        name: A name that no other call in the process has.

    Raises:
        ValueError: The name is taken, empty, or starts with ``$``, which XLA reserves.
    """

    def __init__(self, name: str) -> None:
        if not name or name.startswith("$"):
            raise ValueError(f"expected the name of an FFI call, not empty and without a leading '$', found {name!r}")
        with _lock:
            if name in _names:
                raise ValueError(f"expected a name that no FFI call has, found {name!r} for the second time")
            _names.add(name)
        self.name = name
        self._registry: dict[str, Target] = {}

    def __repr__(self) -> str:
        functions = ", ".join(f"{platform}={target.name}" for platform, target in self._registry.items())
        return f"FFICall({self.name!r}{functions and ': '}{functions})"

    def register_function(self, function: Target, *, platform: str = "cpu") -> None:
        """Registers the function for a platform. Registering the same function again has no effect.

        Args:
            function: A target of the proposal's convention, ``(api, status, static_info, outputs,
                inputs)``. For CUDA it needs a native kernel.
            platform: ``"cpu"`` or ``"cuda"``.

        Raises:
            TypeError: `function` is not a target.
            ValueError: The platform is unknown or has another function, or the target has another
                convention or no kernel for the platform.
        """
        wrong = f"FFI call {self.name!r}: "
        if platform not in _PLATFORMS:
            raise ValueError(f"{wrong}expected one of the platforms {', '.join(_PLATFORMS)}, found {platform!r}")
        if not isinstance(function, Target):
            raise TypeError(f"{wrong}expected a target of a module, found {type(function).__name__}")
        if _API_VERSION not in function.api_versions:
            raise ValueError(
                f"{wrong}expected a function (api, status, static_info, outputs, inputs) for an FFI call, "
                f"found {function.name!r} of {', '.join(function.api_versions)}"
            )
        if platform == "cuda" and not function.has_native:
            raise ValueError(
                f"{wrong}expected a function of the kind JAX_FFI_CALL_CUDA for the platform 'cuda', "
                f"found {function.name!r} of the kind JAX_FFI_CALL_CPU, without a native twin"
            )
        known = self._registry.setdefault(platform, function)
        if not _is_same(known, function):
            raise ValueError(
                f"{wrong}expected one function for the platform {platform}, which has {known.name!r}, found {function.name!r}"
            )

    def __call__(
        self,
        *args: ArrayLike,
        static_info: bytes | StaticInfo | None = None,
        return_shape_dtype: Any = None,
        out_shape_dtype: Any = None,
    ) -> Any:
        """Calls the platform's function, inside or outside of `jax.jit`.

        Under `jax.vmap` the function is called for each element of the batch if it is declared
        pure; other functions cannot be mapped.

        Args:
            *args: The operands.
            static_info: Static information: bytes, by value, or `callbox.StaticInfo.reference`.
            return_shape_dtype: The shape and dtype of the result, or a sequence of them, which are
                not inferred. A number has rank 0. A pair ``(dtype, shape)`` is possible.
            out_shape_dtype: Another name of the same argument, from the proposal's example.

        Raises:
            TypeError: `return_shape_dtype` is missing, given twice, or has no shape and dtype; or
                an operand is not an array.
            ValueError: No function is registered for the platform.
        """
        wrong = f"FFI call {self.name!r}: "
        if (return_shape_dtype is None) == (out_shape_dtype is None):
            found = "neither" if return_shape_dtype is None else "both"
            raise TypeError(f"{wrong}expected return_shape_dtype or out_shape_dtype, found {found}")
        given = out_shape_dtype if return_shape_dtype is None else return_shape_dtype
        known = ", ".join(self._registry) or "none"
        # With a GPU a program may run on either platform; without one it runs on the CPU.
        if not self._registry or (jax.default_backend() == "cpu" and "cpu" not in self._registry):
            raise ValueError(f"{wrong}expected a function for the platform {jax.default_backend()}, found {known}")
        branches = {
            platform: functools.partial(_invoke, function, static_info, given)
            for platform, function in self._registry.items()
        }
        if self._is_one_for_all():
            return next(iter(branches.values()))(*args)
        return jax.lax.platform_dependent(*map(jnp.asarray, args), **branches)

    def _is_one_for_all(self) -> bool:
        """Returns whether the handler finds the right function on every platform by itself."""
        first, *others = self._registry.values()
        if set(self._registry) == set(_PLATFORMS):
            return all(_is_same(first, other) for other in others)
        return "cpu" in self._registry and not first.has_native


def _invoke(target: Target, static_info: bytes | StaticInfo | None, given: Any, *args: ArrayLike) -> Any:
    options = Options(
        vmap_method="loop" if "pure" in target.traits else None,
        static_info=static_info,
        api_version=_API_VERSION,
    )
    operands = _axes.agreed(as_operands(target, args))
    results = Results.of(target, operands, _with_shapes(given))
    flat = bind(target, refused(target, operands), results, {}, options)
    return results.packed(flat, options)


def _with_shapes(given: Any) -> Any:
    """Replaces numbers by arrays, which have a shape and a dtype."""
    if is_pair(given):
        return given
    if isinstance(given, (tuple, list)):
        return type(given)(map(_with_shapes, given))
    if isinstance(given, (bool, int, float, complex)):
        return jnp.asarray(given)
    return given


def _is_same(one: Target, other: Target) -> bool:
    return one.module.key == other.module.key and one.name == other.name
