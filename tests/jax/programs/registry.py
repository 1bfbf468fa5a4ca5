"""The definition of a program, and the list of all programs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Program:
    """A JAX function, its operands, and the tolerance for other executors' results."""

    name: str
    function: Callable
    operands: tuple
    # One bound for all results, or one per result leaf. 0 means bit-exact.
    ulps: int | list[int] = 0
    # A note on the expectation, such as the origin of the bound or the corner cases.
    note: str = ""
    # Whether JAX runs with 64-bit types.
    x64: bool = False
    # A function from the operands to reference results, computed without JAX.
    reference: Callable | None = None
    # Targets of the custom calls by name, as in the case's "targets".
    targets: dict[str, str] = field(default_factory=dict)
    # The expected status, instead of results.
    status: dict | None = None
    # Whether XLA refuses to compile it; its error is then the expected status.
    refused: bool = False
    # Why callbox does not support the text from "before" or "after" optimisation, by these words.
    unsupported: dict[str, str] = field(default_factory=dict)
    # Why XLA itself gives other results for the text before optimisation, if its printer loses
    # data.
    lost_on_xla: str = ""
    # The subject, which is the folder under the output folder.
    subject: str = ""
    # Options for `jax.jit`.
    jit: dict[str, Any] = field(default_factory=dict)
    # The platform that JAX lowers the text for. JAX's values are always those of CPU.
    platform: str = "cpu"
    # Whether to write the text after optimisation as well.
    optimized: bool = True


PROGRAMS: list[Program] = []


@dataclass(frozen=True)
class Subject:
    """The subject of a module's programs."""

    name: str

    def add(self, name: str, function: Callable, *operands, **options) -> None:
        """Adds a program under a unique name."""
        if any(program.name == name for program in PROGRAMS):
            raise ValueError(f"two programs are named {name}")
        PROGRAMS.append(Program(name, function, operands, subject=self.name, **options))

    def program(self, *operands, **options):
        """Adds the decorated function as a program of its name."""

        def register(function):
            self.add(function.__name__, function, *operands, **options)
            return function

        return register


def array(dtype) -> Callable:
    """A short constructor: `f32(1)` is a scalar, `f32(1, 2)` a vector, `f32([[1], [2]])` a
    matrix."""

    def make(*values):
        return np.array(values[0] if len(values) == 1 else values, dtype)

    return make


def lattice(shape, dtype=np.float32, step=0.125, span=37):
    """Shuffled multiples of `step` around zero, exact in every float type, as are short sums."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 17 + 5) % span - span // 2
    return (values * step).reshape(shape).astype(dtype)


def wave(shape, dtype=np.float32, scale=1.0):
    """Values with full mantissas in [-scale, scale], computed without library functions."""
    count = int(np.prod(shape))
    values = ((np.arange(count) * 0.6180339887498949 + 0.25) % 1.0) * 2.0 - 1.0
    return (values * scale).reshape(shape).astype(dtype)


pred = array(np.bool_)
s8, s16, s32, s64 = (array(np.dtype(f"int{bits}")) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (array(np.dtype(f"uint{bits}")) for bits in (8, 16, 32, 64))
f16, f32, f64 = array(np.float16), array(np.float32), array(np.float64)
c64, c128 = array(np.complex64), array(np.complex128)
bf16 = array(ml_dtypes.bfloat16)
