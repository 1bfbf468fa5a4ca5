"""Layer normalisation of each row, and its gradient."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_forward(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, scale_ptr, columns, epsilon, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    tl.store(y_ptr + row * columns + offsets, centred * scale * weight + bias, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)


@triton.jit
def layer_norm_backward_x(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, scale_ptr, dx_ptr, columns, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * columns + offsets, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + row)
    scale = tl.load(scale_ptr + row)
    normal = tl.where(mask, (x - mean) * scale, 0.0)
    weighted = weight * dy
    along = tl.sum(normal * weighted, axis=0) / columns
    average = tl.sum(weighted, axis=0) / columns
    dx = (weighted - normal * along - average) * scale
    tl.store(dx_ptr + row * columns + offsets, dx, mask=mask)


@triton.jit
def layer_norm_backward_weight(
    dy_ptr, x_ptr, mean_ptr, scale_ptr, dweight_ptr, dbias_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dweight = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        offsets = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        scale = tl.load(scale_ptr + row, mask=row < rows, other=0.0)
        dweight += dy * (x - mean[:, None]) * scale[:, None]
        dbias += dy
    tl.store(dweight_ptr + column, tl.sum(dweight, axis=0), mask=column < columns)
    tl.store(dbias_ptr + column, tl.sum(dbias, axis=0), mask=column < columns)


MATRIX = {"element_types": ["f32"], "dimensions": ["m", "n"]}
ROW = {"element_types": ["f32"], "dimensions": ["n"]}
COLUMN = {"element_types": ["f32"], "dimensions": ["m"]}
CHECKS = [
    {
        "require": "operands[0].dims[-1] <= 1024",
        "message": "the last axis has {operands[0].dims[-1]} elements, the kernel takes at most 1024",
    }
]


def targets(compiled):
    pointers = lambda *names: {f"{name}_ptr": "*fp32" for name in names}
    forward = compiled(
        layer_norm_forward,
        {**pointers("x", "weight", "bias", "y", "mean", "scale"), "columns": "i32", "epsilon": "fp32"},
        BLOCK=1024,
    )
    backward_x = compiled(
        layer_norm_backward_x,
        {**pointers("dy", "x", "weight", "mean", "scale", "dx"), "columns": "i32"},
        BLOCK=1024,
    )
    backward_weight = compiled(
        layer_norm_backward_weight,
        {**pointers("dy", "x", "mean", "scale", "dweight", "dbias"), "rows": "i32", "columns": "i32"},
        ROWS=32,
        COLUMNS=32,
    )
    return [
        {
            "name": "layer_norm",
            "doc": "`x` normalised over its last axis, times `weight`, plus `bias`; the means, and the factors.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [{"name": "x", **MATRIX}, {"name": "weight", **ROW}, {"name": "bias", **ROW}],
            "results": [{"name": "y", **MATRIX}, {"name": "mean", **COLUMN}, {"name": "scale", **COLUMN}],
            "attributes": [{"name": "epsilon", "kind": "scalar", "element_type": "f32"}],
            "checks": CHECKS,
            "launches": [
                {
                    "kernel": forward,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "x_ptr": {"operand": 0},
                        "weight_ptr": {"operand": 1},
                        "bias_ptr": {"operand": 2},
                        "y_ptr": {"result": 0},
                        "mean_ptr": {"result": 1},
                        "scale_ptr": {"result": 2},
                        "columns": "results[0].dims[1]",
                        "epsilon": "attributes.epsilon",
                    },
                    "grid": ["results[0].dims[0]"],
                }
            ],
        },
        {
            "name": "layer_norm_backward",
            "doc": "The gradients of `layer_norm` for `x`, `weight` and `bias`, from that of `y`.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [
                {"name": "dy", **MATRIX},
                {"name": "x", **MATRIX},
                {"name": "weight", **ROW},
                {"name": "mean", **COLUMN},
                {"name": "scale", **COLUMN},
            ],
            "results": [{"name": "dx", **MATRIX}, {"name": "dweight", **ROW}, {"name": "dbias", **ROW}],
            "attributes": [],
            "checks": CHECKS,
            "launches": [
                {
                    "kernel": backward_x,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "dy_ptr": {"operand": 0},
                        "x_ptr": {"operand": 1},
                        "weight_ptr": {"operand": 2},
                        "mean_ptr": {"operand": 3},
                        "scale_ptr": {"operand": 4},
                        "dx_ptr": {"result": 0},
                        "columns": "results[0].dims[1]",
                    },
                    "grid": ["results[0].dims[0]"],
                },
                {
                    "kernel": backward_weight,
                    "when": "results[1].elements > 0",
                    "parameters": {
                        "dy_ptr": {"operand": 0},
                        "x_ptr": {"operand": 1},
                        "mean_ptr": {"operand": 3},
                        "scale_ptr": {"operand": 4},
                        "dweight_ptr": {"result": 1},
                        "dbias_ptr": {"result": 2},
                        "rows": "operands[0].dims[0]",
                        "columns": "operands[0].dims[1]",
                    },
                    "grid": ["ceil_div(results[1].elements, 32)"],
                },
            ],
        },
    ]
