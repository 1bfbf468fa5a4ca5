"""Counts numbers by atomic additions."""

import triton
import triton.language as tl


@triton.jit
def clear(counts_ptr, bins, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(counts_ptr + offsets, 0, mask=offsets < bins)


@triton.jit
def count(x_ptr, counts_ptr, n, bins, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=-1)
    tl.atomic_add(counts_ptr + x, 1, mask=mask & (x >= 0) & (x < bins), sem="relaxed")


def targets(compiled):
    cleared = compiled(clear, {"counts_ptr": "*i32", "bins": "i32"}, BLOCK=256)
    counted = compiled(count, {"x_ptr": "*i32", "counts_ptr": "*i32", "n": "i32", "bins": "i32"}, BLOCK=512)
    return [
        {
            "name": "histogram",
            "doc": "How often each number from 0 to the length of `counts` is in `x`.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [{"name": "x", "element_types": ["s32"], "dimensions": ["n"]}],
            "results": [{"name": "counts", "element_types": ["s32"], "dimensions": ["bins"]}],
            "attributes": [],
            "launches": [
                {
                    "kernel": cleared,
                    "when": "results[0].elements > 0",
                    "parameters": {"counts_ptr": {"result": 0}, "bins": "results[0].elements"},
                    "grid": ["ceil_div(results[0].elements, 256)"],
                },
                {
                    "kernel": counted,
                    "when": "results[0].elements > 0 && operands[0].elements > 0",
                    "parameters": {
                        "x_ptr": {"operand": 0},
                        "counts_ptr": {"result": 0},
                        "n": "operands[0].elements",
                        "bins": "results[0].elements",
                    },
                    "grid": ["ceil_div(operands[0].elements, 512)"],
                },
            ],
        }
    ]
