"""Root-mean-square normalisation of each row."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * columns
    y_ptr += row * columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < columns, other=0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + offsets, mask=mask)
        tl.store(y_ptr + offsets, x * scale * weight, mask=mask)


MATRIX = {"element_types": ["f32"], "dimensions": ["..", "n"]}


def targets(compiled):
    signature = {"x_ptr": "*fp32", "weight_ptr": "*fp32", "y_ptr": "*fp32", "columns": "i32", "epsilon": "fp32"}
    kernel = compiled(rms_norm, signature, BLOCK=512)
    return [
        {
            "name": "rms_norm",
            "doc": "`x` divided by the root of the mean of its squares over the last axis, times `weight`.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [
                {"name": "x", **MATRIX},
                {"name": "weight", "element_types": ["f32"], "dimensions": ["n"]},
            ],
            "results": [{"name": "y", **MATRIX}],
            "attributes": [{"name": "eps", "kind": "scalar", "element_type": "f32"}],
            "launches": [
                {
                    "kernel": kernel,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "x_ptr": {"operand": 0},
                        "weight_ptr": {"operand": 1},
                        "y_ptr": {"result": 0},
                        "columns": "results[0].dims[-1]",
                        "epsilon": "attributes.eps",
                    },
                    "grid": ["results[0].elements / results[0].dims[-1]"],
                }
            ],
        }
    ]
