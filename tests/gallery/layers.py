"""Cases of the layers. Gradients are products with the matrix of complex-step derivatives."""

import numpy as np
from scipy import special

from case import Writer

f32 = np.float32


def slope(function, x, step=1e-30):
    """Returns the derivative of a function of one number, by a complex step."""
    return np.imag(function(x + 1j * step)) / step


def gradient(function, operands, index, cotangent):
    """Returns the cotangent of an operand, by a complex step in each of its elements."""
    operands = [np.asarray(operand, np.complex128) for operand in operands]
    found = np.zeros(operands[index].shape)
    for place in np.ndindex(found.shape):
        moved = [operand.copy() for operand in operands]
        moved[index][place] += 1e-30j
        found[place] = np.sum(np.imag(function(*moved)) / 1e-30 * cotangent)
    return found


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def softmax(x, mask):
    weights = np.where(mask, np.exp(x - np.max(x.real)), 0)
    total = weights.sum(-1, keepdims=True)
    return np.where(total == 0, 0, weights / np.where(total == 0, 1, total))


def rotary(x, positions, base):
    half = x.shape[-1] // 2
    speeds = float(base) ** (-np.arange(half) / half)
    turns = np.exp(1j * positions[..., None, None] * speeds)
    turned = (x[..., :half] + 1j * x[..., half:]) * turns
    return np.concatenate([turned.real, turned.imag], -1)


def attention(q, k, v, scale, causal):
    scores = scale * np.einsum("...nd,...md->...nm", q, k)
    n, m = scores.shape[-2:]
    seen = np.tril(np.ones((n, m), bool), m - n) if causal else np.ones((n, m), bool)
    return softmax(scores, np.broadcast_to(seen, scores.shape)) @ v


def write():
    rng = np.random.default_rng(1)
    out = Writer("layers", "the definition in NumPy and SciPy, in F64")
    normal = lambda *sizes: rng.normal(size=sizes).astype(f32)
    wide = lambda array: np.asarray(array, np.float64)

    x = np.array([-3, -1.5, -0.5, -0.0, 0.25, 1, 2, 4], f32)
    up, dy = normal(8), normal(8)
    # Phi(x) loses digits below 0, and sigmoid(x) none.
    out.case("gelu", [x], [(wide(x) * special.ndtr(wide(x))).astype(f32)], ulps=512)
    density = np.exp(-(wide(x) ** 2) / 2) / np.sqrt(2 * np.pi)
    expected = dy * (special.ndtr(wide(x)) + x * density)
    out.case("gelu_grad", [x, dy], [expected.astype(f32)], ulps=512)
    silu = lambda x: x / (1 + np.exp(-x))
    out.case("silu", [x], [silu(wide(x)).astype(f32)], ulps=8)
    out.case("silu_grad", [x, dy], [(dy * slope(silu, wide(x))).astype(f32)], ulps=64)
    out.case("swiglu", [x, up], [(silu(wide(x)) * up).astype(f32)], ulps=8)
    expected = [(dy * up * slope(silu, wide(x))).astype(f32), (dy * silu(wide(x))).astype(f32)]
    out.case("swiglu_grad", [x, up, dy], expected, ulps=64)

    x, weight, bias = normal(2, 3, 10), normal(10), normal(10)
    eps = f32(1e-5)
    operands = [wide(x), wide(weight), wide(bias)]
    out.case(
        "layer_norm",
        [x, weight, bias],
        [layer_norm(*operands, eps).astype(f32)],
        {"eps": eps},
        ulps=2,
    )
    dy = normal(2, 3, 10)
    function = lambda *operands: layer_norm(*operands, float(eps))
    found = [gradient(function, operands, i, wide(dy)).astype(f32) for i in range(3)]
    out.case("layer_norm_grad", [x, weight, dy], found, {"eps": eps}, ulps=8)
    out.refused(
        "layer_norm_eps",
        "layer_norm",
        [x, weight, bias],
        ["f32[2,3,10]"],
        {"eps": f32(-1)},
        "INVALID_ARGUMENT",
        "expected eps to be finite and not negative, found -1",
    )

    mask = rng.random((2, 3, 10)) < 0.6
    mask[1, 1] = False
    y = softmax(wide(x), mask)
    out.case("masked_softmax", [x, mask], [y.astype(f32)], ulps=8)
    y = y.astype(f32)
    expected = wide(y) * (dy - np.sum(wide(y) * dy, -1, keepdims=True))
    out.case("masked_softmax_grad", [y, dy], [expected.astype(f32)], ulps=8)

    x = normal(2, 3, 2, 8)
    positions = np.array([[0, 1, 2], [7, 100, 4095]], np.int32)
    base = f32(10000)
    # The products of a rotation may cancel.
    expected = rotary(wide(x), positions, base).astype(f32)
    out.case("rotary", [x, positions], [expected], {"base": base}, ulps=64)
    out.case("rotary_back", [expected, -positions], [x], {"base": base}, ulps=256, target="rotary")

    for name, causal, n, m in [("", False, 70, 5), ("_causal", True, 4, 6), ("_blind", True, 5, 3)]:
        q, k, v, do = normal(2, n, 4), normal(2, m, 4), normal(2, m, 3), normal(2, n, 3)
        scale = f32(0.5)
        attributes = {"scale": scale, "causal": causal}
        operands = [wide(q), wide(k), wide(v)]
        function = lambda *operands, causal=causal: attention(*operands, 0.5, causal)
        expected = function(*operands).astype(f32)
        out.case(f"attention{name}", [q, k, v], [expected], attributes, 4096, "attention")
        if n < 10:
            found = [gradient(function, operands, i, wide(do)).astype(f32) for i in range(3)]
            name = f"attention_grad{name}"
            out.case(name, [q, k, v, do], found, attributes, 4096, "attention_grad")

    # Quarters, of which products and sums are exact.
    quarters = lambda *sizes: (rng.integers(-16, 17, size=sizes) / 4).astype(f32)
    x, weight, bias, dy = quarters(3, 4), quarters(4, 5), quarters(5), quarters(3, 5)
    out.case("linear", [x, weight, bias], [x @ weight + bias])
    out.case("linear_grad", [x, weight, bias, dy], [dy @ weight.T, x.T @ dy, dy.sum(0)])
