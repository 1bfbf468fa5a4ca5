"""More programs of a person who uses JAX every day, with the kernels of the gallery."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import callbox
import callbox.jax

P = PartitionSpec
KEY = jax.random.key(17)
X = np.random.default_rng(17).standard_normal((8, 6), np.float32)
EPS = 1e-5


@pytest.fixture(scope="module")
def layers(load):
    """Ops with the derivatives that their module declares."""
    return {name: callbox.jax.op(load("layers")[name]) for name in ("gelu", "attention", "cross_entropy")}


@pytest.fixture(scope="module")
def add_n(load):
    return callbox.jax.op(load("add_n").add_n)


@pytest.fixture(scope="module")
def norm(load):
    return callbox.jax.op(load("rms_norm").rms_norm, defaults={"eps": EPS})


@pytest.fixture(scope="module")
def descend(load):
    return callbox.jax.op(load("typed_ffi").descend)


def gelu_of_jax(x):
    return jax.nn.gelu(x, approximate=False)


def layer_norm_of_jax(x, weight, bias, eps=EPS):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps) * weight + bias


def norm_of_jax(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPS) * weight


def close(found, expected, atol=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-3), found, expected)


def test_adam_takes_the_same_steps_with_a_kernel(layers):
    def train(gelu):
        params = {"w": jax.random.normal(KEY, (6, 4)), "v": jax.random.normal(KEY, (4,))}

        def step(state, _):
            params, m, v = state
            value, grads = jax.value_and_grad(lambda p: jnp.mean((gelu(X @ p["w"]) @ p["v"] - X[:, 0]) ** 2))(params)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
            params = jax.tree.map(lambda p, m, v: p - 0.05 * m / (jnp.sqrt(v) + 1e-3), params, m, v)
            return (params, m, v), value

        zeros = jax.tree.map(jnp.zeros_like, params)
        return jax.jit(lambda: jax.lax.scan(step, (params, zeros, zeros), length=40)[1])()

    ours, theirs = train(layers["gelu"]), train(gelu_of_jax)
    close(ours, theirs, atol=1e-2)
    assert ours[-1] < ours[0] / 2


def test_layer_norm_has_gradients_of_all_operands(load):
    """Its gradient's kernel takes no bias, so that the rule is a function."""
    kernels = load("layers")

    def vjp(operands, result, cotangent, eps):
        x, weight, _ = operands
        return callbox.jax.call(kernels.layer_norm_grad, x, weight, cotangent, eps=eps)

    layer_norm = callbox.jax.op(kernels.layer_norm, vjp=vjp)
    operands = X, np.linspace(1, 2, 6, dtype=np.float32), np.linspace(-1, 1, 6, dtype=np.float32)
    ours = functools.partial(layer_norm, eps=EPS)
    found, expected = (
        jax.jit(jax.grad(lambda *operands, f=f: jnp.sum(jnp.sin(f(*operands))), argnums=(0, 1, 2)))(*operands)
        for f in (ours, layer_norm_of_jax)
    )
    close(found, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients(layers, causal):
    q, k, v = jax.random.normal(KEY, (3, 2, 5, 4))

    def reference(q, k, v):
        scores = jnp.einsum("hnd,hmd->hnm", q, k) / 2
        return jax.nn.softmax(jnp.where(jnp.tri(5, dtype=bool) | (not causal), scores, -jnp.inf)) @ v

    ours = functools.partial(layers["attention"], scale=0.5, causal=causal)
    close(jax.jit(ours)(q, k, v), reference(q, k, v))
    found, expected = (
        jax.grad(lambda *each, f=f: jnp.sum(f(*each) ** 2), argnums=(0, 1, 2))(q, k, v) for f in (ours, reference)
    )
    close(found, expected)


def test_a_classifier_with_labels_that_are_left_out(layers):
    labels = jnp.array([0, 1, 2, 3, -1, 5, -1, 0])
    loss = functools.partial(layers["cross_entropy"], ignored=-1)
    found, gradient = jax.value_and_grad(lambda x: jnp.sum(loss(x, labels)))(jnp.asarray(X))
    mask = labels >= 0

    def reference(x):
        return -jnp.sum(jnp.where(mask, jax.nn.log_softmax(x)[jnp.arange(8), labels], 0.0))

    close((found, gradient), jax.value_and_grad(reference)(jnp.asarray(X)))
    assert not np.asarray(gradient)[~np.asarray(mask)].any()


def test_norms_of_the_gradients_of_each_example(layers):
    params = jax.random.normal(KEY, (6, 3))

    def norms(f):
        def loss(params, x):
            return jnp.sum(f(x @ params) ** 2)

        gradients = jax.vmap(jax.grad(loss), (None, 0))(params, X)
        return jnp.sqrt(jnp.sum(gradients**2, axis=(1, 2)))

    close(jax.jit(lambda: norms(layers["gelu"]))(), norms(gelu_of_jax))


def test_gradients_are_accumulated_over_microbatches(norm):
    weight = jnp.linspace(1, 2, 6)

    def loss(weight, x):
        return jnp.sum(jnp.tanh(norm(x, weight)))

    @jax.jit
    def accumulated(weight):
        parts = X.reshape(4, 2, 6)
        return jax.lax.scan(lambda total, x: (total + jax.grad(loss)(weight, x), None), jnp.zeros(6), parts)[0]

    close(accumulated(weight), jax.grad(loss)(weight, X))


def test_a_loop_with_a_number_of_steps_that_is_traced(add_n):
    program = jax.jit(lambda n, x: jax.lax.fori_loop(0, n, lambda _, x: add_n(x, n=0.5), x))
    for n in (0, 1, 7):
        close(program(n, jnp.zeros(3)), jnp.full(3, n / 2))


def test_a_scan_backwards_with_stacked_results(descend):
    def step(total, x):
        total = descend(total, x, rate=-1.0)
        return total, total

    found = jax.jit(lambda x: jax.lax.scan(step, jnp.zeros(6), x, reverse=True)[1])(X)
    close(found, np.cumsum(X[::-1], axis=0)[::-1])


def test_each_static_attribute_has_a_program(add_n):
    traces = []

    @functools.partial(jax.jit, static_argnames="n")
    def program(x, n):
        traces.append(n)
        return add_n(x, n=n)

    for n in (1.0, 2.0, 1.0):
        close(program(jnp.zeros(2), n=n), jnp.full(2, n))
    assert traces == [1.0, 2.0]


def test_a_rule_of_the_users_own_around_a_kernel(add_n):
    """A straight-through estimator."""

    @jax.custom_vjp
    def through(x):
        return add_n(jnp.round(x), n=1.0)

    through.defvjp(lambda x: (through(x), None), lambda _, ct: (2 * ct,))
    value, gradient = jax.jit(jax.value_and_grad(lambda x: jnp.sum(through(x))))(jnp.array([0.2, 1.7]))
    assert float(value) == 4.0
    close(gradient, jnp.full(2, 2.0))


def test_named_values_are_saved_and_the_rest_is_computed_again(layers):
    from jax.ad_checkpoint import checkpoint_name

    policy = jax.checkpoint_policies.save_only_these_names("hidden")

    def model(gelu, x):
        block = jax.checkpoint(lambda x: gelu(checkpoint_name(gelu(x), "hidden")) * x, policy=policy)
        return jnp.sum(block(block(x)))

    found = jax.jit(jax.grad(functools.partial(model, layers["gelu"])))(X)
    close(found, jax.grad(functools.partial(model, gelu_of_jax))(X))


def test_a_gradient_through_a_branch(layers, norm):
    def f(flag, x, gelu, norm):
        return jnp.sum(jax.lax.cond(flag, gelu, lambda x: norm(x, jnp.ones(6)), x) ** 3)

    ours = jax.jit(jax.grad(functools.partial(f, gelu=layers["gelu"], norm=norm), argnums=1))
    theirs = jax.grad(functools.partial(f, gelu=gelu_of_jax, norm=norm_of_jax), argnums=1)
    for flag in (True, False):
        close(ours(flag, X), theirs(flag, X))


def test_nan_is_found_where_it_arises(layers):
    before = jax.config.jax_debug_nans
    jax.config.update("jax_debug_nans", True)
    try:
        close(jax.jit(layers["gelu"])(X), gelu_of_jax(X))
        with pytest.raises(FloatingPointError):
            jax.block_until_ready(jax.jit(layers["gelu"])(jnp.array([1.0, -1.0]) * jnp.array([1.0, np.nan])))
    finally:
        jax.config.update("jax_debug_nans", before)


def test_a_program_that_is_debugged_without_jit(layers):
    def program(x):
        y = layers["gelu"](x)
        seen.append(float(y[0, 0]))
        return jax.grad(lambda x: jnp.sum(layers["gelu"](x)))(y)

    seen: list = []
    with jax.disable_jit():
        found = jax.jit(program)(jnp.asarray(X))
    close(found, jax.grad(lambda x: jnp.sum(gelu_of_jax(x)))(gelu_of_jax(X)))
    close(seen[0], gelu_of_jax(X)[0, 0])


def test_a_table_that_a_kernel_computes_while_the_program_is_traced(add_n):
    @jax.jit
    def program(x):
        with jax.ensure_compile_time_eval():
            table = add_n(jnp.arange(4.0), n=1.0)
            offset = float(table.sum())
        return x + offset

    assert float(program(1.0)) == 11.0


def test_a_function_with_a_signature(norm):
    over_columns = jnp.vectorize(norm, signature="(n),(n)->(n)")
    x = jax.random.normal(KEY, (3, 1, 2, 6))
    weights = jax.random.normal(KEY, (4, 1, 6))
    close(over_columns(x, weights), norm_of_jax(x, weights))


def test_batches_over_other_axes(norm):
    weights = jax.random.normal(KEY, (6, 5))
    found = jax.jit(jax.vmap(norm, in_axes=(None, 1), out_axes=1))(X, weights)
    close(found, jax.vmap(norm_of_jax, (None, 1), 1)(X, weights))


def test_text_is_generated_token_by_token(load):
    sample = functools.partial(callbox.jax.op(load("sequences").sample_tokens), top_k=0, top_p=1.0)
    table = jax.random.normal(KEY, (16, 16)) * 4

    @functools.partial(jax.jit, static_argnames="temperature")
    def generate(key, start, temperature):
        def step(token, key):
            token = sample(table[token], jax.random.uniform(key, token.shape), temperature=temperature)
            return token, token

        return jax.lax.scan(step, start, jax.random.split(key, 12))[1]

    start = jnp.arange(3, dtype=jnp.int32)
    expected, token = [], start
    for _ in range(12):
        token = table[token].argmax(-1)
        expected.append(token)
    np.testing.assert_array_equal(generate(KEY, start, 0.0), jnp.stack(expected))
    warm = generate(KEY, start, 1.0)
    np.testing.assert_array_equal(warm, generate(KEY, start, 1.0))
    assert ((warm >= 0) & (warm < 16)).all()


def test_a_signal_is_filtered_by_transforms(load):
    transform = callbox.jax.op(load("maths").fft_rows)

    @jax.jit
    def smooth(x):
        spectrum = transform(x.astype(jnp.complex64), inverse=False)
        return transform(jnp.where(jnp.arange(32) < 4, spectrum, 0), inverse=True)

    x = jax.random.normal(KEY, (3, 32))
    close(smooth(x), jnp.fft.ifft(jnp.where(jnp.arange(32) < 4, jnp.fft.fft(x), 0)))


def test_a_direct_call_in_a_callback_of_a_program(load, add_n):
    """The callback runs on a thread of JAX, while programs of kernels run."""
    target = load("add_n").add_n

    @jax.jit
    def program(x):
        y = jax.pure_callback(
            lambda x: target(np.asarray(x), n=1.0), jax.ShapeDtypeStruct(x.shape, x.dtype), add_n(x, n=2.0)
        )
        return add_n(y, n=3.0)

    close(program(jnp.zeros(4)), jnp.full(4, 6.0))


def test_only_the_results_of_the_failed_program_are_lost(load, add_n, failure):
    # A program that is new each time has the class of error that JAX documents.
    bad = callbox.jax.op(load("faults").panic, result_shape_dtypes=lambda x: x)
    good = [jax.jit(lambda x, n=n: add_n(x, n=float(n)))(jnp.zeros(3)) for n in range(8)]
    message = failure(jax.jit(lambda x: bad(x) + 1), jnp.zeros(3))
    assert message.startswith("ABORTED: faults.wasm")
    for n, y in enumerate(good):
        close(y, jnp.full(3, float(n)))
    close(add_n(jnp.zeros(2), n=1.0), jnp.ones(2))


def test_caches_are_cleared_between_experiments(norm):
    program = jax.jit(jax.grad(lambda x: jnp.sum(norm(x, jnp.ones(6)) ** 2)))
    first = program(X)
    jax.clear_caches()
    np.testing.assert_array_equal(program(X), first)


def test_arrays_stay_on_their_device(layers):
    device = jax.devices()[2]
    x = jax.device_put(X, device)
    for y in (layers["gelu"](x), jax.jit(layers["gelu"])(x), jax.grad(lambda x: layers["gelu"](x).sum())(x)):
        assert y.devices() == {device}


def test_weights_are_reduced_and_no_row_moves(norm, descend):
    """A data-parallel step: each device has its rows, and all have the weights."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def step(norm, weight, x):
        loss, gradient = jax.value_and_grad(lambda weight: jnp.mean(jnp.tanh(norm(x, weight)) ** 2))(weight)
        return descend(weight, gradient, rate=0.1), loss

    weight = jnp.linspace(1, 2, 6)
    program = jax.jit(functools.partial(step, norm), in_shardings=(everywhere, rows), out_shardings=everywhere)
    close(program(weight, X), step(norm_of_jax, weight, jnp.asarray(X)))
    text = program.lower(weight, X).compile().as_text()
    assert "all-reduce" in text and "all-gather" not in text


def test_a_program_is_found_in_the_cache_of_another_process(python, tmp_path):
    """JAX's persistent cache has programs with kernels, too."""
    program = """
        import os, sys, jax, jax.numpy as jnp, callbox, callbox.jax
        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        kernels = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm")
        program = jax.jit(lambda x: callbox.jax.call(kernels.add_n, x, n=1.0) * 2)
        print(float(program(jnp.zeros(3)).sum()), len(os.listdir(sys.argv[1])))
    """
    first, second = (python(program, str(tmp_path)).split() for _ in range(2))
    assert first[0] == second[0] == "6.0"
    assert int(second[1]) >= int(first[1]) > 0
