"""Type stubs of a module's targets."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Sequence

from callbox._callbox import Attribute, Buffer, Module, Target

#: NumPy's dtypes, whose names are also those of classes.
_DTYPES = frozenset(
    f"{kind}{bits}"
    for kind, all_bits in {
        "int": (8, 16, 32, 64),
        "uint": (8, 16, 32, 64),
        "float": (16, 32, 64),
        "complex": (64, 128),
    }.items()
    for bits in all_bits
)

_HEAD = '''\
"""Targets of {name}, as `python -m callbox stubs {name}` prints them."""

from typing import Any

import numpy as np
import numpy.typing as npt
'''


def of_module(module: Module, name: str) -> str:
    """The text of a stub in which each target is a function.

    Names and documentation are the guest's. Names that are not identifiers are left out.
    """
    known = name if all(c.isalnum() or c in "._-" for c in name) else "a module"
    functions = [_function(target) for target in module.targets.values() if _is_name(target.name)]
    return "\n".join([_HEAD.format(name=known), *functions])


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _function(target: Target) -> str:
    operands = list(target.operands or ())
    attributes = {attribute.name: attribute for attribute in target.attributes or ()}
    parameters = []
    kinds: list[object] = []
    for parameter in target.__signature__.parameters.values():
        default = "" if parameter.default is inspect.Parameter.empty else " = ..."
        kind = parameter.kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            text = f"*{parameter.name}: npt.ArrayLike"
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            if not {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL} & set(kinds):
                parameters.append("*")
            attribute = attributes.get(parameter.name)
            annotation = _OPTIONS.get(parameter.name, "Any") if attribute is None else _attribute(attribute)
            text = f"{parameter.name}: {annotation}{default}"
        else:
            optional = operands[len(kinds)].optional
            text = f"{parameter.name}: npt.ArrayLike{' | None' if optional else ''}{default}"
        kinds.append(kind)
        parameters.append(text)
    if kinds[:1] == [inspect.Parameter.POSITIONAL_ONLY]:
        parameters.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    # `repr` quotes what would end the docstring.
    return f"def {target.name}({', '.join(parameters)}) -> {_results(target.results)}:\n    {target.__doc__!a}\n"


_OPTIONS = {"deadline": "float | None"}


def _attribute(attribute: Attribute) -> str:
    dtype = attribute.dtype or ""
    scalars = {"float": "float", "int": "int", "uint": "int", "bool": "bool", "complex": "complex", "bfloat": "float"}
    match attribute.kind:
        case "scalar":
            kind = scalars.get(dtype.rstrip("0123456789"), "Any")
        case "array":
            kind = "npt.ArrayLike"
        case "string":
            kind = "str | bytes"
        case "dictionary":
            kind = "dict[str, Any]"
        case _:
            kind = "Any"
    return f"{kind} | None" if attribute.optional else kind


def _results(results: Sequence[Buffer] | None) -> str:
    if results is None or any(result.optional for result in results):
        return "Any"
    kinds = [_result(result.dtypes) for result in results]
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds) or '()'}]"


def _result(dtypes: Sequence[str]) -> str:
    if not dtypes or not set(dtypes) <= {*_DTYPES, "bool"}:
        return "npt.NDArray[Any]"
    names = ("np.bool_" if dtype == "bool" else f"np.{dtype}" for dtype in dtypes)
    return f"npt.NDArray[{' | '.join(names)}]"
