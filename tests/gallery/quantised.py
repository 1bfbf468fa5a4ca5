"""Cases of products with quantised weights."""

import numpy as np

from case import Writer

f32 = np.float32


def write():
    rng = np.random.default_rng(3)
    out = Writer("quantised", "the definition in NumPy, with integers and in F64")
    x = rng.integers(-128, 128, (2, 3, 37), np.int8)
    w = rng.integers(-128, 128, (5, 37), np.int8)
    x_scale = rng.random((2, 3)).astype(f32)
    w_scale = rng.random(5).astype(f32)
    sums = x.astype(np.int64) @ w.T.astype(np.int64)
    expected = sums * x_scale[..., None].astype(np.float64) * w_scale
    out.case("matmul_int8", [x, x_scale, w, w_scale], [expected.astype(f32)], ulps=4)

    x = rng.normal(size=(3, 24)).astype(f32)
    q = rng.integers(0, 16, (40, 24), np.uint8)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).astype(np.uint8)
    scale = rng.random((40, 3)).astype(f32)
    zero = rng.integers(0, 16, (40, 3)).astype(f32)
    grouped = q.reshape(40, 3, 8).astype(np.float64)
    weights = ((grouped - zero[..., None]) * scale[..., None]).reshape(40, 24)
    expected = (x.astype(np.float64) @ weights.T).astype(f32)
    # Sums of F32 that may cancel.
    out.case("matmul_int4", [x, packed, scale, zero], [expected], ulps=4096)
    out.refused(
        "matmul_int4_groups",
        "matmul_int4",
        [x, packed, np.ones((40, 5), f32), np.ones((40, 5), f32)],
        ["f32[3,40]"],
        None,
        "INVALID_ARGUMENT",
        "expected groups that divide the 24 elements of a row, found 5",
    )
