"""Writes cases as JSON, in the format of tests/cases."""

import json

import numpy as np

# XLA's names of element types (xla/primitive_util.cc), by numpy's.
ELEMENT_TYPES = {
    "bool": "pred",
    **{f"int{bits}": f"s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e4m3": "f8e4m3",
    "float8_e3m4": "f8e3m4",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn": "f4e2m1fn",
}

# Rules that replace long lists of values.
RULES = {"iota": lambda i: i, "ramp": lambda i: i / 8 - 16}


def shape(array) -> str:
    """An array's shape as XLA writes it, without a layout."""
    return f"{ELEMENT_TYPES[array.dtype.name]}[{','.join(map(str, array.shape))}]"


def literal(array) -> dict:
    """An array as a literal: values in row-major order, each the shortest text that reads back."""
    array = np.asarray(array)
    if array.size > 100:
        for rule, values in RULES.items():
            if np.array_equal(array.reshape(-1), values(np.arange(array.size)).astype(array.dtype)):
                return {"shape": shape(array), "rule": rule}
    return {"shape": shape(array), "values": [_value(element) for element in array.reshape(-1)]}


def _value(element):
    name = element.dtype.name
    if name == "bool":
        return bool(element)
    if ELEMENT_TYPES[name][0] in "su":
        return int(element)
    if ELEMENT_TYPES[name][0] == "c":
        return [_value(element.real), _value(element.imag)]
    return _float(element)


def _float(element):
    wide = float(element)
    if np.isnan(wide):
        return "nan"
    if np.isinf(wide):
        return "inf" if wide > 0 else "-inf"
    # The shortest decimal for the type, unless JSON readers' rounding to f64 would change it.
    if element.dtype == np.float32:
        short = float(str(element))
        if np.float32(short).tobytes() == element.tobytes():
            return short
    return wide


def encode(case: dict) -> str:
    """A case as JSON, with one line per literal."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_field(key, value)}" for key, value in case.items()) + "\n}\n"


def _field(key, value):
    if key == "operands":
        return _list(value, "  ")
    if key == "expect" and "results" in value:
        results, ulps = _list(value["results"], "    "), json.dumps(value["ulps"])
        return f'{{\n    "results": {results},\n    "ulps": {ulps}\n  }}'
    return json.dumps(value, ensure_ascii=False)


def _list(items, indent):
    if not items:
        return "[]"
    return "[\n" + ",\n".join(f"{indent}  {json.dumps(item)}" for item in items) + f"\n{indent}]"


def distance(left, right) -> int:
    """The largest distance of elements in representable values; NaN equals NaN."""
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype.kind == "c":
        return max(distance(left.real, right.real), distance(left.imag, right.imag))
    if left.dtype.name not in ("float16", "float32", "float64", "bfloat16"):
        same = (left == right) | (left != left) & (right != right)
        return 0 if same.all() else 2**62
    both_nan = np.isnan(left.astype(np.float64)) & np.isnan(right.astype(np.float64))
    apart = np.where(both_nan, 0, np.abs(_ordinal(left) - _ordinal(right)))
    return int(apart.max(initial=0))


def _ordinal(array):
    """Numbers floats of one type along the real line; both zeros are 0."""
    bits = array.view(f"int{8 * array.itemsize}").astype(object)
    magnitude = np.vectorize(lambda b: b & ((1 << (8 * array.itemsize - 1)) - 1), otypes=[object])(bits)
    return np.where(bits < 0, -magnitude, magnitude) if array.size else np.zeros(array.shape, object)
