"""Attention without the matrix of scores in memory (flash attention), in F16 on tensor cores."""

import triton
import triton.language as tl


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * D
    row = tl.program_id(0) * M + tl.arange(0, M)
    across = tl.arange(0, D)
    q = tl.load(q_ptr + head + row[:, None] * D + across[None, :], mask=row[:, None] < length, other=0.0)
    highest = tl.full([M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([M], dtype=tl.float32)
    sums = tl.zeros([M, D], dtype=tl.float32)
    # Powers of 2 instead of e.
    scale *= 1.4426950408889634
    end = tl.minimum((tl.program_id(0) + 1) * M, length) if CAUSAL else length
    for start in range(0, end, N):
        column = start + tl.arange(0, N)
        k = tl.load(k_ptr + head + column[None, :] * D + across[:, None], mask=column[None, :] < length, other=0.0)
        allowed = column[None, :] < length
        if CAUSAL:
            allowed = allowed & (column[None, :] <= row[:, None])
        scores = tl.where(allowed, tl.dot(q, k) * scale, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + head + column[:, None] * D + across[None, :], mask=column[:, None] < length, other=0.0)
        sums = tl.dot(weights.to(tl.float16), v, sums * shrink[:, None])
        highest = higher
    out = (sums / total[:, None]).to(tl.float16)
    tl.store(out_ptr + head + row[:, None] * D + across[None, :], out, mask=row[:, None] < length)


HEADS = {"element_types": ["f16"], "dimensions": ["h", "n", 64]}


def targets(compiled):
    signature = {
        "q_ptr": "*fp16",
        "k_ptr": "*fp16",
        "v_ptr": "*fp16",
        "out_ptr": "*fp16",
        "length": "i32",
        "scale": "fp32",
    }
    made = []
    for name, is_causal in [("attention", False), ("causal_attention", True)]:
        kernel = compiled(attention, signature, name=name, num_stages=2, CAUSAL=is_causal, M=64, N=32, D=64)
        seen = " up to its own" if is_causal else ""
        made.append(
            {
                "name": name,
                "doc": f"For each head, the mean of the rows of `v`{seen}, weighted by the softmax of `scale q k`.",
                "traits": ["pure", "command_buffer_compatible"],
                "operands": [{"name": letter, **HEADS} for letter in "qkv"],
                "results": [{"name": "out", **HEADS}],
                "attributes": [{"name": "scale", "kind": "scalar", "element_type": "f32"}],
                "launches": [
                    {
                        "kernel": kernel,
                        "when": "results[0].elements > 0",
                        "parameters": {
                            "q_ptr": {"operand": 0},
                            "k_ptr": {"operand": 1},
                            "v_ptr": {"operand": 2},
                            "out_ptr": {"result": 0},
                            "length": "results[0].dims[1]",
                            "scale": "attributes.scale",
                        },
                        "grid": ["ceil_div(results[0].dims[1], 64)", "results[0].dims[0]"],
                    }
                ],
            }
        )
    return made
