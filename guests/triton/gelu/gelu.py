"""The Gaussian error linear unit, by the error function."""

import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y, mask=mask)


VECTOR = {"element_types": ["f32"], "dimensions": [".."]}


def targets(compiled):
    kernel = compiled(gelu, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, BLOCK=1024)
    return [
        {
            "name": "gelu",
            "doc": "`x` times the probability that a standard normal number is below it.",
            "traits": ["pure", "elementwise", "command_buffer_compatible"],
            "operands": [{"name": "x", **VECTOR}],
            "results": [{"name": "y", **VECTOR}],
            "attributes": [],
            "launches": [
                {
                    "kernel": kernel,
                    "when": "results[0].elements > 0",
                    "parameters": {"x_ptr": {"operand": 0}, "y_ptr": {"result": 0}, "n": "results[0].elements"},
                    "grid": ["ceil_div(results[0].elements, 1024)"],
                }
            ],
        }
    ]
