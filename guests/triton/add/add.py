"""Adds two vectors."""

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


VECTOR = {"element_types": ["f32"], "dimensions": [".."]}


def targets(compiled):
    kernel = compiled(add, {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, BLOCK=1024)
    return [
        {
            "name": "add",
            "doc": "The sum of `x` and `y`.",
            "traits": ["pure", "elementwise", "command_buffer_compatible"],
            "operands": [{"name": "x", **VECTOR}, {"name": "y", **VECTOR}],
            "results": [{"name": "sum", **VECTOR}],
            "attributes": [],
            "launches": [
                {
                    "kernel": kernel,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "x_ptr": {"operand": 0},
                        "y_ptr": {"operand": 1},
                        "out_ptr": {"result": 0},
                        "n": "results[0].elements",
                    },
                    "grid": ["ceil_div(results[0].elements, 1024)"],
                }
            ],
        }
    ]
