"""Runs HLO text with XLA's CPU backend, for the platform XLA of the conformance suite.

The protocol is JSON, one object per line. The first line is {"ready": VERSION}. Each request has
one reply; a reply with "error" reports a failed request, which has no effect:

    {"compile": HLO text}                    {"program": NUMBER}
    {"execute": NUMBER, "operands": [A...]}  {"results": [A...]}
    {"release": NUMBER}                      {}

An array A is {"type": "f32", "dimensions": [2, 3], "hex": little-endian elements in row-major
order}. Integers narrower than a byte take one byte each.
"""

import json
import os
import sys

# Reserve the original standard output for replies, because XLA prints to standard output too.
REPLIES = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402
from jaxlib import _hlo, _jax  # noqa: E402

TYPES = {
    "pred": np.bool_,
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
    "bf16": ml_dtypes.bfloat16,
    "s2": ml_dtypes.int2,
    "s4": ml_dtypes.int4,
    "u2": ml_dtypes.uint2,
    "u4": ml_dtypes.uint4,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
# Types with one byte per element, sign-extended.
NARROW = {"s2": np.int8, "s4": np.int8, "u2": np.uint8, "u4": np.uint8}
NAMES = {np.dtype(dtype): name for name, dtype in TYPES.items()}


class Oracle:
    """Compiled programs by number."""

    def __init__(self):
        jax.config.update("jax_enable_x64", True)
        self.device = jax.devices("cpu")[0]
        self.programs = {}
        # Numbers continue after those of an earlier process.
        self.count = int(sys.argv[1]) * 1_000_000 if len(sys.argv) > 1 else 0

    def answer(self, request):
        if "compile" in request:
            self.count += 1
            self.programs[self.count] = self.compile(request["compile"])
            return {"program": self.count}
        if "execute" in request:
            return {"results": self.execute(self.programs[request["execute"]], request["operands"])}
        if "release" in request:
            del self.programs[request["release"]]
            return {}
        raise ValueError(f"expected compile, execute or release, found {sorted(request)}")

    def compile(self, text):
        """Converts HLO text through its proto to StableHLO, which the client accepts."""
        module = _hlo.hlo_module_from_text(text)
        computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        stablehlo = _jax.mlir.xla_computation_to_mlir_module(computation)
        with mlir.make_ir_context():
            devices = xla_client.DeviceList((self.device,))
            options = xla_client.CompileOptions()
            return self.device.client.compile_and_load(ir.Module.parse(stablehlo), devices, options)

    def execute(self, program, operands):
        arrays = [jax.device_put(array_of(operand), self.device) for operand in operands]
        results = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [text_of(np.asarray(shards[0])) for shards in results]


def array_of(text):
    name = text["type"]
    array = np.frombuffer(bytes.fromhex(text["hex"]), NARROW.get(name, TYPES[name]))
    return array.reshape(text["dimensions"]).astype(TYPES[name])


def text_of(array):
    name = NAMES[array.dtype]
    elements = array.astype(NARROW.get(name, TYPES[name]))
    return {"type": name, "dimensions": array.shape, "hex": elements.tobytes().hex()}


def reply(message):
    print(json.dumps(message), file=REPLIES, flush=True)


def main():
    oracle = Oracle()
    reply({"ready": f"JAX {jax.__version__}"})
    for line in sys.stdin:
        try:
            message = oracle.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001: any exception of XLA is the reply
            message = {"error": f"{type(error).__name__}: {error}"}
        reply(message)


if __name__ == "__main__":
    main()
