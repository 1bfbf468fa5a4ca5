"""Writes cases as the conformance suite reads them."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "cases" / "gallery"

NAMES = {
    "float32": "f32",
    "float64": "f64",
    "int8": "s8",
    "int32": "s32",
    "uint8": "u8",
    "uint64": "u64",
    "bool": "pred",
}


def shape(array):
    sizes = ",".join(str(size) for size in array.shape)
    return f"{NAMES[str(array.dtype)]}[{sizes}]"


def value(element):
    if isinstance(element, (float, np.floating)):
        if np.isnan(element):
            return "nan"
        if np.isinf(element):
            return "inf" if element > 0 else "-inf"
        # The shortest text of the element's own type.
        return float(str(element))
    return bool(element) if isinstance(element, np.bool_) else int(element)


def literal(array):
    array = np.asarray(array)
    if array.dtype == np.uint8 and array.size > 64:
        return {"shape": shape(array), "hex": array.tobytes().hex()}
    return {"shape": shape(array), "values": [value(element) for element in array.ravel()]}


def attribute(found):
    if isinstance(found, (bool, np.bool_)):
        return {"type": "pred", "value": bool(found)}
    return {"type": NAMES[str(found.dtype)], "value": value(found)}


class Writer:
    """Writes the cases of one module."""

    def __init__(self, module, origin):
        self.module = module
        self.origin = origin

    def _write(self, name, target, operands, results, attributes, expect, origin):
        call = {"module": self.module, "target": target, "results": results}
        if attributes:
            call["attributes"] = {key: attribute(found) for key, found in attributes.items()}
        case = {
            "origin": origin or self.origin,
            "call": call,
            "operands": [literal(operand) for operand in operands],
            "expect": expect,
        }
        (FOLDER / f"{name}.json").write_text(json.dumps(case) + "\n")

    def case(self, name, operands, results, attributes=None, ulps=0, target=None, origin=None):
        expect = {"results": [literal(result) for result in results]}
        if ulps:
            expect["ulps"] = ulps
        shapes = [shape(np.asarray(result)) for result in results]
        self._write(name, target or name, operands, shapes, attributes, expect, origin)

    def refused(self, name, target, operands, shapes, attributes, code, says):
        expect = {"status": {"code": code, "says": says}}
        origin = "the documentation of the target"
        self._write(name, target, operands, shapes, attributes, expect, origin)
