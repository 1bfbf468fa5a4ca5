"""The programs of the cases, by subject. Importing the package fills `registry.PROGRAMS`."""

from . import (
    control,
    custom_calls,
    data,
    dots,
    elementwise,
    everyday,
    indexing,
    integers,
    linear,
    models,
    random,
    reductions,
    sorting,
    transforms,
    types,
    unimplemented,
    windows,
)
from .registry import PROGRAMS, Program

__all__ = [
    "PROGRAMS",
    "Program",
    "control",
    "custom_calls",
    "data",
    "dots",
    "elementwise",
    "everyday",
    "indexing",
    "integers",
    "linear",
    "models",
    "random",
    "reductions",
    "sorting",
    "transforms",
    "types",
    "unimplemented",
    "windows",
]
