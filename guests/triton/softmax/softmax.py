"""The softmax of each row, one row to a program."""

import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * columns + offsets, y, mask=mask)


MATRIX = {"element_types": ["f32"], "dimensions": ["..", "n"]}


def targets(compiled):
    kernel = compiled(softmax, {"x_ptr": "*fp32", "y_ptr": "*fp32", "columns": "i32"}, BLOCK=1024)
    return [
        {
            "name": "softmax",
            "doc": "The softmax of `x` over its last axis, which has at most 1024 elements.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [{"name": "x", **MATRIX}],
            "results": [{"name": "y", **MATRIX}],
            "attributes": [],
            "checks": [
                {
                    "require": "results[0].dims[-1] <= 1024",
                    "message": "the last axis has {results[0].dims[-1]} elements, the kernel takes at most 1024",
                }
            ],
            "launches": [
                {
                    "kernel": kernel,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "x_ptr": {"operand": 0},
                        "y_ptr": {"result": 0},
                        "columns": "results[0].dims[-1]",
                    },
                    "grid": ["results[0].elements / results[0].dims[-1]"],
                }
            ],
        }
    ]
