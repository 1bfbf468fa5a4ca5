"""Small functions such as users of JAX write. `everyday.py` runs them."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.scipy import linalg, signal, special, stats

RANDOM = np.random.default_rng(7)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(high, *shape):
    return RANDOM.integers(0, high, shape).astype(np.int32)


FUNCTIONS = {}

# Functions that need a routine of LAPACK which callbox lacks. The error must name the routine.
REFUSED = {"eigenvalues_symmetric": "lapack_ssyevd_ffi", "singular_values": "lapack_sgesdd_ffi"}


def add(function, *arguments, name=""):
    FUNCTIONS[name or function.__name__] = function, arguments


def function(*arguments):
    def register(function):
        add(function, *arguments)
        return function

    return register


X, Y, W = normal(8, 16), normal(8, 16), normal(16, 16)
LINE, IMAGE, IDS = normal(64), normal(2, 8, 8, 3), integers(8, 12)
POSITIVE = X @ X.T + 8 * np.eye(8, dtype=np.float32)


# Neural networks.
@function(X, W, normal(16, 32), normal(32, 16))
def transformer_block(x, w, up, down):
    def norm(x):
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    q, k, v = (norm(x) @ jnp.roll(w, i, axis=1) for i in range(3))
    scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), q @ k.T / 4, -jnp.inf)
    x = x + jax.nn.softmax(scores) @ v
    return x + jax.nn.gelu(norm(x) @ up) @ down


@function(normal(2, 8, 16), integers(16, 2, 8))
def cross_entropy_masked(logits, labels):
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]
    mask = labels != 0
    return (losses * mask).sum() / mask.sum()


@function(normal(2, 6, 4, 8))
def rotary(x):
    angles = jnp.arange(6.0)[:, None] / 100.0 ** (jnp.arange(4) / 4)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@function(normal(5, 4), normal(4, 32), normal(8, 32))
def lstm(xs, w, u):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), c

    return lax.scan(step, (jnp.zeros(8), jnp.zeros(8)), xs)


@function(IMAGE, normal(3, 3, 3, 4))
def convolution_gradient(x, w):
    def loss(w):
        y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (jax.nn.relu(y) ** 2).mean()

    return jax.value_and_grad(loss)(w)


@function(X, W, integers(16, 8))
def classifier_gradient(x, w, y):
    def loss(w):
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ w) * jax.nn.one_hot(y, 16), -1))

    return jax.grad(loss)(w)


@function(X, W, normal(16, 4))
def mixture_of_experts(x, w, gate):
    values, experts = lax.top_k(jax.nn.softmax(x @ gate), 2)
    weights = jnp.stack([w, -w, w.T, 2 * w])[experts]
    return jnp.einsum("bk,bd,bkde->be", values, x, weights)


add(lambda x: jax.nn.standardize(x, axis=(1, 2)), IMAGE, name="instance_norm")
add(lambda x: jax.image.resize(x, (2, 16, 16, 3), "bilinear"), IMAGE, name="resize_bilinear")
add(lambda x: jax.image.resize(x, (2, 4, 4, 3), "cubic"), IMAGE, name="resize_cubic")
add(lambda x: jax.nn.glu(jax.nn.mish(x)), X, name="mish_glu")
add(lambda x: jax.nn.selu(x) + jax.nn.celu(x) + jax.nn.hard_swish(x), X, name="hard_activations")
add(
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    *(normal(2, 6, 2, 4) for _ in "qkv"),
    name="attention",
)
add(lambda table, ids: jax.grad(lambda t: (t[ids] ** 2).sum())(table), X, IDS, name="embedding_gradient")
add(lambda x: jnp.round(x / jnp.abs(x).max(1, keepdims=True) * 127).astype(jnp.int8), X, name="quantize_rows")
add(
    lambda x, w: jnp.dot(x.astype(jnp.int8), w.astype(jnp.int8), preferred_element_type=jnp.int32),
    9 * X,
    9 * W,
    name="dot_int8",
)


# Optimisation and differentiation.
@function(LINE, LINE * 2)
def newton(x, y):
    f = lambda t: ((x * t[0] + t[1] - y) ** 2).mean()  # noqa: E731
    t = jnp.ones(2)
    return t - linalg.solve(jax.hessian(f)(t), jax.grad(f)(t), assume_a="pos")


@function(POSITIVE, normal(8))
def conjugate_gradient(a, b):
    return jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=8)[0]


@function(normal(2))
def rosenbrock_descent(x):
    f = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2  # noqa: E731
    return lax.fori_loop(0, 50, lambda _, x: x - 1e-4 * jax.grad(f)(x), x)


@function(np.float32(7))
def square_root_by_while(x):
    return lax.while_loop(lambda y: abs(y * y - x) > 1e-4, lambda y: (y + x / y) / 2, x)


add(jax.jacfwd(lambda x: jnp.sin(x) * jnp.roll(x, 1)), LINE[:6], name="jacobian_forward")
add(jax.jacrev(lambda x: jnp.cumsum(x**2)), LINE[:6], name="jacobian_reverse")
add(lambda x: jax.jvp(special.logsumexp, (x,), (jnp.ones_like(x),)), LINE, name="forward_mode")
add(jax.vmap(lambda x, w: jnp.tanh(w @ x), (0, None)), X, W, name="vmap_dot")
add(jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), LINE, name="checkpointed")
add(jax.grad(lambda x: jnp.sort(x)[:5].sum()), LINE, name="gradient_of_sort")
add(jax.grad(lambda x: jnp.linalg.det(x)), POSITIVE / 8, name="gradient_of_determinant")
add(jax.grad(lambda x: jnp.linalg.norm(jnp.linalg.cholesky(x))), POSITIVE, name="gradient_of_cholesky")


# Linear algebra.
add(lambda a, b: linalg.cho_solve(linalg.cho_factor(a), b), POSITIVE, normal(8, 2), name="cho_solve")
add(lambda a: jnp.linalg.slogdet(a), POSITIVE, name="slogdet")
add(lambda a: linalg.expm(a / 30), POSITIVE, name="matrix_exponential")
add(lambda a: jnp.abs(jnp.linalg.qr(a)[0]), normal(6, 3), name="qr_thin")
add(lambda x, y: jnp.linalg.solve(x.T @ x + jnp.eye(16), y), X, LINE[:16], name="ridge")
add(lambda x: jnp.linalg.matrix_norm(x) + jnp.trace(x[:, :8]), X, name="norm_and_trace")
add(lambda x, y: jnp.tensordot(x.reshape(2, 4, 16), y, ((1, 2), (0, 1))), X, normal(4, 16, 3), name="tensordot")
add(lambda a, b, c: jnp.einsum("ij,kj,kl->il", a, b, c), X, Y, normal(8, 3), name="einsum_chain")
add(lambda x: jnp.linalg.eigvalsh(x), POSITIVE, name="eigenvalues_symmetric")
add(lambda x: jnp.linalg.svd(x, compute_uv=False), X, name="singular_values")


# Signals and statistics.
add(lambda x: jnp.fft.ifft(jnp.fft.fft(x) * jnp.exp(-jnp.arange(64) / 8.0)).real, LINE, name="filter_spectrum")
add(lambda x: jnp.abs(jnp.fft.fft2(x)), X, name="spectrum_2d")
add(lambda x: signal.convolve2d(x, x[:3, :3], "same"), X, name="convolve_2d")
add(lambda x: jnp.abs(signal.stft(x, nperseg=16)[2]), LINE, name="short_time_transform")
add(lambda x: stats.norm.logpdf(x) + stats.norm.cdf(x) + special.gammaln(abs(x) + 1), LINE, name="densities")
add(lambda x: special.erfinv(jnp.tanh(x)) + special.digamma(abs(x) + 1) + special.i0(x), LINE, name="special_functions")
add(lambda x: (jnp.percentile(x, 30.0), jnp.std(x), jnp.histogram(x, 5, (-3, 3))[0]), LINE, name="describe")
add(lambda x: jnp.corrcoef(x), X, name="correlation")
add(lambda x, y: jnp.searchsorted(jnp.sort(x), y, side="right"), LINE, Y, name="search_sorted")
add(lambda x: jnp.unique(x, size=8, fill_value=-1, return_counts=True), IDS, name="unique_counts")
add(lambda x: jnp.lexsort((x[0], x[1] > 0)), X, name="lexsort")
add(lambda x: jnp.bincount(x, length=8), IDS, name="bincount")
add(lambda x: (lax.associative_scan(jnp.maximum, x), jnp.diff(x), jnp.gradient(x)), LINE, name="running_maximum")
add(lambda x, i: jax.ops.segment_max(x, i, 8), LINE[:12], IDS, name="segment_max")


# Simulation, random numbers, bits.
@function(normal(6, 3))
def gravity(x):
    def acceleration(x):
        d = x[None] - x[:, None]
        return (d / ((d**2).sum(-1, keepdims=True) + 0.1) ** 1.5).sum(1)

    return lax.scan(
        lambda s, _: ((s[0] + 0.01 * s[1], s[1] + 0.01 * acceleration(s[0])), s[0].sum()), (x, 0 * x), length=10
    )


@function(integers(2, 10, 12))
def life(cells):
    around = sum(jnp.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return lax.fori_loop(0, 1, lambda _, c: ((around == 3) | ((c == 1) & (around == 2))).astype(c.dtype), cells)


@function(np.uint32([3, 4]))
def samples(key):
    a, b, c = jax.random.split(key, 3)
    return (
        jax.random.normal(a, (9,)),
        jax.random.categorical(b, jnp.arange(5.0), shape=(9,)),
        jax.random.gamma(c, 2.0, (3,)),
    )


@function(np.uint32([5, 6]), X)
def dropout(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)


@function(np.arange(32, dtype=np.uint32))
def hash_bits(x):
    x = (x ^ (x >> 16)) * jnp.uint32(0x45D9F3B)
    return lax.population_count(x) + lax.clz(x) + (x << 3 | x >> 29)


@function(IDS, X)
def switch_by_element(ids, x):
    branches = [jnp.sin, jnp.cos, lambda x: x * 2]
    return jax.vmap(lambda i, x: lax.switch(i % 3, branches, x))(ids[:8], x)


@function(LINE)
def pack_bits(x):
    bits = (x > 0).reshape(8, 8)
    return jnp.packbits(bits, axis=1), lax.bitcast_convert_type(x, jnp.int32) & 0xFF, jnp.unpackbits(jnp.packbits(bits))


@function(X, integers(8, 5), integers(16, 5))
def scatter_maximum(x, i, j):
    return x.at[i, j].max(0.5).at[:, 3].multiply(2.0)


@function(LINE)
def trapezoid_polynomial(x):
    return jnp.trapezoid(jnp.polyval(jnp.array([1.0, -2.0, 3.0]), x)), jnp.vander(x[:5], 4)
