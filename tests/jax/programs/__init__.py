"""The programs that cases are made from, by subject. Importing the package fills `registry.PROGRAMS`."""

from . import control, custom_calls, data, dots, elementwise, integers, models, reductions, types, unimplemented
from .registry import PROGRAMS, Program

__all__ = [
    "PROGRAMS",
    "Program",
    "control",
    "custom_calls",
    "data",
    "dots",
    "elementwise",
    "integers",
    "models",
    "reductions",
    "types",
    "unimplemented",
]
