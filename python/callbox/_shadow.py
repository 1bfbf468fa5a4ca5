"""Compares calls of native kernels with the same targets as wasm."""

from __future__ import annotations

import random
import threading
import warnings
from typing import Any, final

import numpy as np

from ._callbox import CallError, InvalidArgumentError, Target

#: The traits of targets that can be called once more. The others imply ``pure``.
_PURE = {"pure", "elementwise", "rows", "batched"}

#: The statuses that say nothing about the results: limits of the wasm alone.
_OWN = {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}

#: How many differences of a target are told.
_MOST_TOLD = 10


@final
class Shadow:
    """A target on CUDA, some of whose direct calls also run as wasm, to compare the results.

    Which calls these are is random, so that a kernel cannot know. Calls that the kernel fails are
    not compared. Programs of JAX call the target itself: ``shadow`` of a policy compares theirs.

    Attributes:
        target: The target.
        calls: The calls so far.
        compared: Those that were compared.
        differing: Those whose results differed.
    """

    def __init__(self, target: Target, share: float, rtol: float, atol: float, fails: bool) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"expected a share from 0 to 1, found {share}")
        for name, value in (("rtol", rtol), ("atol", atol)):
            if not 0.0 <= value < float("inf"):
                raise ValueError(f"expected {name} of at least 0, found {value}")
        if not _PURE & set(target.traits):
            message = f"target {target.name!r}: only a target of the trait `pure` can be called once more"
            raise InvalidArgumentError("INVALID_ARGUMENT", message, blame="caller")
        self.target = target
        self.calls = self.compared = self.differing = 0
        self._share = share
        self._tolerance = (rtol, atol)
        self._fails = fails
        self._lock = threading.Lock()
        # The sequence of the program's own random numbers stays as it is.
        self._random = random.SystemRandom()

    def __call__(self, *arrays: Any, out: Any = None, **options: Any) -> Any:
        """Calls the target on CUDA, with the arguments of a target.

        Raises:
            CallError: INTERNAL if the results differ and `fails` was given; and as of a target.
        """
        if options.pop("platform", "CUDA") != "CUDA":
            raise ValueError("a shadow is of calls on CUDA: call the target itself on another platform")
        is_chosen = self._random.random() < self._share
        with self._lock:
            self.calls += 1
        if not is_chosen:
            return self.target(*arrays, out=out, platform="CUDA", **options)
        # `out` may be an operand.
        copied = [np.array(array, copy=True) for array in arrays]
        named = {name: np.array(v, copy=True) if isinstance(v, np.ndarray) else v for name, v in options.items()}
        found = self.target(*arrays, out=out, platform="CUDA", **options)
        try:
            expected = self.target(*copied, out=_like(out), platform="Host", **named)
        except CallError as error:
            if error.code in _OWN:
                warnings.warn(f"{self.target.name}: a call is not compared: {error}", RuntimeWarning, stacklevel=2)
                return found
            difference: str | None = f"the wasm fails with {error}"
        else:
            difference = self._difference(expected, found)
        self._count(difference)
        return found

    def _count(self, difference: str | None) -> None:
        with self._lock:
            self.compared += 1
            self.differing += difference is not None
            differing = self.differing
        self.target._count_shadow(difference is not None)
        if difference is None:
            return
        message = f"target {self.target.name!r}: the native kernel and the wasm differ: {difference}"
        if self._fails:
            raise CallError("INTERNAL", message, blame="guest")
        if differing <= _MOST_TOLD:
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _difference(self, expected: Any, found: Any) -> str | None:
        expected, found = (value if isinstance(value, tuple) else (value,) for value in (expected, found))
        for number, (left, right) in enumerate(zip(expected, found, strict=True)):
            count = _differing(np.asarray(left), np.asarray(right), *self._tolerance)
            if count:
                return f"result {number}: {count} of {np.asarray(left).size} elements"
        return None

    def __repr__(self) -> str:
        counts = f"{self.compared} of {self.calls} calls compared, {self.differing} differ"
        return f"<callbox.Shadow of {self.target.name}: {counts}>"


def shadow(target: Target, share: float, *, rtol: float = 0.0, atol: float = 0.0, fails: bool = False) -> Shadow:
    """Calls a target on CUDA, and compares a share of the calls with the same target as wasm.

    Args:
        target: A target of the trait ``pure``, of a module that was loaded with ``native=``.
        share: The share of the calls that also run as wasm, from 0 to 1.
        rtol: With `atol`, how far floating-point elements may be apart, as in `numpy.allclose`. If
            both are 0, values must be equal. Other elements must always be.
        atol: See `rtol`.
        fails: Whether a call whose results differ raises. If not, it warns.

    Returns:
        A function like the target, with the counts of calls.

    Raises:
        ValueError: The share or a tolerance is out of range.
        CallError: INVALID_ARGUMENT if the target is not pure, NOT_FOUND if it has no native kernel.
    """
    if not target.has_native:
        message = f"target {target.name!r}: expected a CUDA kernel of that name, found none: load it with native="
        raise CallError("NOT_FOUND", message, blame="caller")
    return Shadow(target, share, rtol, atol, fails)


def _like(out: Any) -> Any:
    """Memory of its own for results."""
    if isinstance(out, tuple):
        return tuple(_like(one) for one in out)
    return None if out is None else np.empty_like(np.asarray(out))


def _differing(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], rtol: float, atol: float) -> int:
    """How many elements differ."""
    if expected.dtype.kind in "biu":
        return int(np.count_nonzero(expected != found))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = (np.ascontiguousarray(array.astype(wide)).view(np.float64) for array in (expected, found))
    is_same = (left == right) | (np.isnan(left) & np.isnan(right))
    if rtol == 0.0 and atol == 0.0:
        # Zeros of opposite sign differ.
        is_same &= (np.signbit(left) == np.signbit(right)) | np.isnan(left)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            is_same |= np.isfinite(left) & (np.abs(right - left) <= atol + rtol * np.abs(left))
    if expected.dtype.kind == "c":
        is_same = is_same.reshape(-1, 2).all(axis=1)
    return int(is_same.size - np.count_nonzero(is_same))
