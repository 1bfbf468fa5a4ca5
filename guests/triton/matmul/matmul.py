"""The product of two matrices of F16, on tensor cores, with sums in F32."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    # Programs that share rows of `a` run at the same time.
    program = tl.program_id(0)
    across = tl.cdiv(n, N)
    group = program // (GROUP * across)
    first = group * GROUP
    height = min(tl.cdiv(m, M) - first, GROUP)
    block_m = first + (program % (GROUP * across)) % height
    block_n = (program % (GROUP * across)) // height

    row = block_m * M + tl.arange(0, M)
    column = block_n * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_ptrs = a_ptr + row[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * n + column[None, :]
    sums = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptrs, mask=(row[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        b = tl.load(b_ptrs, mask=(inner[:, None] < k - start) & (column[None, :] < n), other=0.0)
        sums = tl.dot(a, b, sums)
        a_ptrs += K
        b_ptrs += K * n
    c_ptrs = c_ptr + row[:, None] * n + column[None, :]
    tl.store(c_ptrs, sums.to(tl.float16), mask=(row[:, None] < m) & (column[None, :] < n))


def targets(compiled):
    signature = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", "m": "i32", "n": "i32", "k": "i32"}
    # Rows whose length is a multiple of 16 are copied to shared memory asynchronously.
    kernel = compiled(matmul, signature, divisible=["n", "k"], num_stages=3, M=64, N=64, K=32, GROUP=8)
    matrix = lambda *dimensions: {"element_types": ["f16"], "dimensions": list(dimensions)}
    return [
        {
            "name": "matmul",
            "doc": "The product of the matrices `a` and `b`, whose rows have a multiple of 16 elements.",
            "traits": ["pure", "command_buffer_compatible"],
            "operands": [{"name": "a", **matrix("m", "k")}, {"name": "b", **matrix("k", "n")}],
            "results": [{"name": "c", **matrix("m", "n")}],
            "attributes": [],
            "launches": [
                {
                    "kernel": kernel,
                    "when": "results[0].elements > 0",
                    "parameters": {
                        "a_ptr": {"operand": 0},
                        "b_ptr": {"operand": 1},
                        "c_ptr": {"result": 0},
                        "m": "results[0].dims[0]",
                        "n": "results[0].dims[1]",
                        "k": "operands[0].dims[1]",
                    },
                    "grid": ["ceil_div(results[0].dims[0], 64) * ceil_div(results[0].dims[1], 64)"],
                }
            ],
        }
    ]
