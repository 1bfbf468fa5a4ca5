"""Derivatives of ops, by targets and by functions."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import callbox
import callbox.jax

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8), np.float32)
W = RNG.standard_normal(8, np.float32)


def reference(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + eps) * weight


@pytest.fixture
def rms_norm(load):
    return callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad)


@pytest.fixture
def add_n(load):
    return load("add_n").add_n


def loss(function, x, weight):
    return jnp.sum(jnp.sin(function(x, weight, eps=1e-5)))


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_a_gradient_by_a_target_is_jaxs_own(rms_norm):
    for transform in (lambda f: f, jax.jit):
        gradient = transform(jax.grad(lambda x, w: loss(rms_norm, x, w), (0, 1)))
        close(gradient(X, W), jax.grad(lambda x, w: loss(reference, x, w), (0, 1))(X, W))
    check_grads(lambda x: rms_norm(x, W, eps=1e-5), (X,), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)


def test_a_gradient_by_one_of_several_operands(rms_norm):
    close(jax.grad(lambda w: loss(rms_norm, X, w))(W), jax.grad(lambda w: loss(reference, X, w))(W))


@pytest.mark.parametrize("in_axes", [(0, None), (0, 0), (None, 0), (-1, None)])
def test_gradients_have_batches(rms_norm, in_axes):
    x = X if in_axes[0] == 0 else X[0] if in_axes[0] is None else X.T
    w = np.stack([W + i for i in range(4)]) if in_axes[1] == 0 else W

    def gradients(function):
        each = jax.grad(lambda x, w: loss(function, x, w), (0, 1))
        whole = jax.grad(lambda x, w: jax.vmap(lambda x, w: loss(function, x, w), in_axes)(x, w).sum(), (0, 1))
        return jax.jit(jax.vmap(each, in_axes))(x, w), jax.jit(whole)(x, w)

    close(gradients(rms_norm), gradients(reference))


def test_gradients_through_a_scan_and_a_checkpoint(rms_norm):
    def run(function, x, w, wrap):
        step = wrap(lambda x, _: (function(x, w, eps=1e-5) + x, None))
        return jnp.sum(jax.lax.scan(step, x, None, length=3)[0] ** 2)

    for wrap in (lambda f: f, jax.checkpoint):
        found = jax.jit(jax.grad(lambda x, w, wrap=wrap: run(rms_norm, x, w, wrap), (0, 1)))(X, W)
        expected = jax.grad(lambda x, w, wrap=wrap: run(reference, x, w, wrap), (0, 1))(X, W)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def test_a_gradient_by_a_function(load):
    def vjp(operands, result, cotangent, *, eps):
        assert eps == 1e-5
        assert result.shape == operands[0].shape
        return jax.vjp(lambda x, w: reference(x, w, eps), *operands)[1](cotangent)

    function = callbox.jax.op(load("rms_norm").rms_norm, vjp=vjp)
    found = jax.jit(jax.grad(lambda x, w: loss(function, x, w), (0, 1)))(X, W)
    close(found, jax.grad(lambda x, w: loss(reference, x, w), (0, 1))(X, W))


def test_a_function_for_one_operand_may_return_one_array(load, add_n):
    function = callbox.jax.op(add_n, vjp=lambda _operands, _result, cotangent, n: 3 * cotangent)
    assert float(jax.grad(lambda x: function(x, n=1.0))(2.0)) == 3.0


def test_a_function_has_to_return_a_cotangent_for_each_operand(load):
    function = callbox.jax.op(load("rms_norm").rms_norm, vjp=lambda operands, _result, _cotangent, eps: operands[0])
    with pytest.raises(ValueError, match="expected vjp to return one array for each of the 2 operands, found 1"):
        jax.grad(lambda x: loss(function, x, W))(X)


def test_attributes_that_have_no_hash_reach_the_rule(load):
    """`jax.custom_vjp` cannot take attributes, so the rule closes over them."""
    seen = []

    def vjp(_operands, _results, cotangents, **attributes):
        seen.append(attributes)
        return cotangents[0]

    # The target declares no attributes. It is traced, but not run.
    target = load("c_typed").c_add_n
    function = callbox.jax.op(target, vjp=vjp, result_shape_dtypes=lambda x, **_: (x,))
    given = {"array": np.arange(3), "nested": {"text": "a", "inner": {"number": 1}}}
    gradient = jax.eval_shape(jax.grad(lambda x: function(x, **given)[0].sum()), jnp.ones(3))
    assert gradient.shape == (3,)
    assert seen[0]["nested"] == given["nested"]
    np.testing.assert_array_equal(seen[0]["array"], given["array"])


def test_integers_have_no_cotangents(load):
    def vjp(operands, results, cotangents):
        assert [ct is None for ct in cotangents] == [False, True]
        return cotangents[0], None

    function = callbox.jax.op(load("typed_ffi").copy_remaining, vjp=vjp, result_shape_dtypes=lambda x, i: (x, i))
    x, i = jnp.ones(3), jnp.arange(3)
    np.testing.assert_array_equal(jax.grad(lambda x: (function(x, i)[0] * 2).sum())(x), np.full(3, 2))
    _, pullback = jax.vjp(function, x, i)
    dx, di = pullback((x, np.zeros(3, jax.dtypes.float0)))
    np.testing.assert_array_equal(dx, x)
    assert di.dtype == jax.dtypes.float0


def test_a_target_gets_no_cotangents_of_integers(load):
    """The target copies its operands: x, i and the cotangent of the result with the type of x."""
    copy = load("typed_ffi").copy_remaining
    function = callbox.jax.op(copy, vjp=copy, result_shape_dtypes=lambda x, i: (x, i))
    np.testing.assert_array_equal(
        jax.grad(lambda x: function(x, jnp.arange(3))[0].sum())(jnp.full(3, 5.0)), np.full(3, 5)
    )


def test_forward_derivatives_by_a_function(add_n):
    function = callbox.jax.op(add_n, jvp=lambda operands, result, tangents, n: tangents[0] * 2)
    x = jnp.arange(3.0)
    y, dy = jax.jvp(lambda x: function(x, n=1.0), (x,), (jnp.ones(3),))
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(dy, np.full(3, 2))
    # The function is linear and uses JAX's operations, so JAX can transpose it.
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: function(x, n=1.0).sum()))(x), np.full(3, 2))
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: function(x, n=1.0)))(x), np.full(3, 2))


def test_forward_derivatives_by_a_target(load):
    # squareplus is elementwise, so its gradient also computes tangents.
    squareplus = callbox.jax.op(load("activation").squareplus, jvp=load("activation").squareplus_grad)
    function = lambda x: squareplus(x, beta=4.0)  # noqa: E731
    close(jax.jvp(function, (X,), (X,)), jax.jvp(lambda x: (x + jnp.sqrt(x * x + 4)) / 2, (X,), (X,)))
    close(
        jax.vmap(lambda x: jax.jvp(function, (x,), (x,)))(X),
        jax.jvp(lambda x: (x + jnp.sqrt(x * x + 4)) / 2, (X,), (X,)),
    )


def test_forward_derivatives_of_integers_are_none(load):
    def jvp(operands, _results, tangents):
        assert [t is None for t in tangents] == [False, True]
        return tangents[0], None

    function = callbox.jax.op(load("typed_ffi").copy_remaining, jvp=jvp, result_shape_dtypes=lambda x, i: (x, i))
    x, i = jnp.ones(3), jnp.arange(3)
    zero = np.zeros(3, jax.dtypes.float0)
    _, (dx, di) = jax.jvp(function, (x, i), (x, zero))
    np.testing.assert_array_equal(dx, x)
    assert di.dtype == jax.dtypes.float0


def test_second_derivatives(add_n):
    function = callbox.jax.op(add_n, vjp=lambda operands, _result, cotangent, n: cotangent * jnp.sin(operands[0]))
    second = jax.grad(jax.grad(lambda x: function(x, n=1.0)))(1.0)
    assert float(second) == pytest.approx(np.cos(1.0), 1e-6)


def test_second_derivatives_by_a_target_name_it(rms_norm):
    gradient = jax.grad(lambda x: loss(rms_norm, x, W))
    with pytest.raises(ValueError, match="target 'rms_norm_grad' cannot be differentiated"):
        jax.grad(lambda x: gradient(x).sum())(X)


def exact_squareplus(x, beta=4.0):
    return (x + jnp.sqrt(x * x + beta)) / 2


@pytest.fixture
def squareplus(load):
    """Both modes by one kernel, which has derivatives of both modes by functions."""
    kernels = load("activation")

    def curvature(x, beta):
        return beta / (2 * (x * x + beta) ** 1.5)

    def jvp(operands, _result, tangents, *, beta):
        (x, dy), (tx, tdy) = operands, tangents
        return tx * dy * curvature(x, beta) + tdy * (1 + x / jnp.sqrt(x * x + beta)) / 2

    def vjp(operands, _result, cotangent, *, beta):
        x, dy = operands
        return cotangent * dy * curvature(x, beta), cotangent * (1 + x / jnp.sqrt(x * x + beta)) / 2

    derivative = callbox.jax.op(kernels.squareplus_grad, vjp=vjp, jvp=jvp)
    return callbox.jax.op(kernels.squareplus, vjp=derivative, jvp=derivative, defaults={"beta": 4.0})


TRANSFORMATIONS = {
    "jvp": lambda f, a: jax.jvp(f, (a[0],), (a[1],)),
    "linearize": lambda f, a: jax.linearize(f, a[0])[1](a[1]),
    "jacfwd": lambda f, a: jax.jacfwd(f)(a[0]),
    "jacrev": lambda f, a: jax.jacrev(f)(a[0]),
    "grad": lambda f, a: jax.grad(lambda x: f(x).sum())(a),
    "grad of vmap": lambda f, a: jax.grad(lambda x: jax.vmap(f)(x).sum())(a),
    "vmap of grad": lambda f, a: jax.vmap(jax.grad(lambda x: jnp.tanh(f(x)).sum()))(a),
    "grad of checkpoint": lambda f, a: jax.grad(lambda x: jax.checkpoint(lambda x: f(f(x)))(x).sum())(a),
    "grad of scan": lambda f, a: jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(c), 0), x, None, 3)[0].sum())(a),
    "hessian": lambda f, a: jax.hessian(lambda x: jnp.sin(f(x)).sum())(a[0]),
    "reverse over reverse": lambda f, a: jax.jacrev(jax.jacrev(lambda x: jnp.sin(f(x)).sum()))(a[0]),
    "forward over forward": lambda f, a: jax.jacfwd(jax.jacfwd(lambda x: jnp.sin(f(x)).sum()))(a[0]),
    "reverse over forward": lambda f, a: jax.jacrev(jax.jacfwd(lambda x: jnp.sin(f(x)).sum()))(a[0]),
    "vmap of hessian": lambda f, a: jax.vmap(jax.hessian(lambda x: jnp.sin(f(x)).sum()))(a),
    "grad of grad of grad": lambda f, a: jax.grad(jax.grad(jax.grad(lambda x: jnp.sin(f(x)))))(a[0, 0]),
    "Hessian-vector product": lambda f, a: jax.jvp(jax.grad(lambda x: jnp.sin(f(x)).sum()), (a,), (a,)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_both_modes_and_second_derivatives_are_jaxs_own(squareplus, name, wrap):
    transform = TRANSFORMATIONS[name]
    found, expected = wrap(functools.partial(transform, squareplus))(X), transform(exact_squareplus, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected)


def test_both_modes_check_as_each_others_transpose(squareplus):
    check_grads(squareplus, (X,), order=2, modes=["fwd", "rev"], atol=2e-2, rtol=2e-2)


def test_each_mode_uses_its_own_rule(load):
    """A wrong factor in each rule tells which one was used."""
    target = load("add_n").add_n
    function = callbox.jax.op(
        target,
        vjp=lambda _operands, _result, cotangent, n: cotangent * 3,
        jvp=lambda _operands, _result, tangents, n: tangents[0] * 2,
        defaults={"n": 1.0},
    )
    assert float(jax.jvp(function, (1.0,), (1.0,))[1]) == 2.0
    assert float(jax.jacfwd(function)(1.0)) == 2.0
    assert float(jax.grad(function)(1.0)) == 3.0
    np.testing.assert_array_equal(jax.vmap(jax.grad(function))(jnp.ones(3)), np.full(3, 3.0))


def test_a_rule_of_both_modes_that_returns_another_type_is_refused(add_n):
    function = callbox.jax.op(
        add_n,
        vjp=lambda _operands, _result, cotangent, n: cotangent[None],
        jvp=lambda _operands, _result, tangents, n: tangents[0],
        defaults={"n": 1.0},
    )
    message = r"expected a derivative rule to return float32\[3\], found float32\[1, 3\]"
    for wrap in (lambda f: f, jax.jit):
        with pytest.raises(TypeError, match=message):
            wrap(jax.grad(lambda x: function(x).sum()))(jnp.ones(3))


def test_both_modes_by_one_of_several_operands(load):
    kernels = load("rms_norm")
    function = callbox.jax.op(
        kernels.rms_norm,
        vjp=kernels.rms_norm_grad,
        jvp=lambda operands, _result, tangents, eps: jax.jvp(lambda x, w: reference(x, w, eps), operands, tangents)[1],
    )
    for transform in (jax.jacfwd, jax.jacrev):
        for by in (0, 1, (0, 1)):
            found = jax.jit(transform(lambda x, w: function(x, w, eps=1e-5), by))(X[0], W)
            close(found, transform(lambda x, w: reference(x, w, 1e-5), by)(X[0], W))
    # The kernel of the gradient has no derivatives.
    with pytest.raises(ValueError, match="target 'rms_norm_grad' cannot be differentiated"):
        jax.hessian(lambda x: loss(function, x, W))(X[0])


def test_both_modes_beside_integers_and_a_status(load):
    """Integers and the status have neither tangents nor cotangents."""
    copy = load("typed_ffi").copy_remaining
    function = callbox.jax.op(
        copy,
        jvp=lambda _operands, _results, tangents: (tangents[0] * 2, None),
        vjp=lambda _operands, _results, cotangents: (cotangents[0] * 2, None),
        result_shape_dtypes=lambda x, i: (x, i),
        on_error="status",
    )
    x, i = jnp.ones(3), jnp.arange(3)
    zero = np.zeros(3, jax.dtypes.float0)
    (_, _, status), (dx, di, _) = jax.jvp(function, (x, i), (x, zero))
    assert int(status) == 0
    np.testing.assert_array_equal(dx, 2 * x)
    assert di.dtype == jax.dtypes.float0
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: function(x, i)[0].sum()))(x), 2 * x)


def test_an_op_as_a_rule_has_its_own_defaults(load):
    kernels = load("activation")
    derivative = callbox.jax.op(kernels.squareplus_grad, defaults={"beta": 100.0})
    function = callbox.jax.op(kernels.squareplus, vjp=derivative)
    # The attributes of the call have priority.
    close(jax.grad(lambda x: function(x, beta=4.0).sum())(X), jax.grad(lambda x: exact_squareplus(x).sum())(X))


def test_a_wrapper_of_an_op_is_a_function_of_its_own(load):
    """`functools.wraps` copies the attributes of a function."""
    derivative = callbox.jax.op(load("activation").squareplus_grad)

    @functools.wraps(derivative)
    def vjp(operands, _result, cotangent, **attributes):
        return derivative(*operands, cotangent, **attributes) * 2

    function = callbox.jax.op(load("activation").squareplus, vjp=vjp)
    assert float(jax.grad(lambda x: function(x, beta=4.0))(0.0)) == 1.0


def test_forward_derivatives_beside_a_status(load):
    """The status has no derivative."""
    add_n = load("add_n").add_n
    squareplus, tangent = load("activation").squareplus, load("activation").squareplus_grad
    for function, slope in (
        (callbox.jax.op(add_n, jvp=lambda _operands, _result, tangents, n: tangents[0], on_error="status"), 1.0),
        (callbox.jax.op(squareplus, jvp=tangent, on_error="status"), 0.5),
    ):
        attributes = {"n": 1.0} if slope == 1.0 else {"beta": 4.0}
        (_, status), (dy, dstatus) = jax.jvp(lambda x, f=function, a=attributes: f(x, **a), (0.0,), (1.0,))
        assert (int(status), float(dy), dstatus.dtype) == (0, slope, jax.dtypes.float0)


def test_without_a_rule_the_error_names_the_target_and_what_to_do(add_n):
    function = callbox.jax.op(add_n)
    advice = r"target 'add_n' cannot be differentiated: .* vjp= or jvp= to callbox\.jax\.op"
    for differentiate in (
        lambda: jax.grad(lambda x: function(x, n=1.0))(1.0),
        lambda: jax.jvp(lambda x: function(x, n=1.0), (1.0,), (1.0,)),
        lambda: jax.jit(jax.grad(lambda x: function(x, n=1.0)))(1.0),
        lambda: jax.vmap(jax.grad(lambda x: function(x, n=1.0)))(jnp.ones(3)),
        lambda: jax.grad(lambda x: callbox.jax.call(add_n, x, n=1.0))(1.0),
        lambda: jax.grad(lambda x: callbox.jax.call(add_n, x, n=1.0, has_side_effect=True))(1.0),
    ):
        with pytest.raises(ValueError, match=advice):
            differentiate()


def test_what_is_not_differentiated_by_needs_no_rule(add_n):
    def program(x, y):
        step = lambda carry, _: (carry * callbox.jax.call(add_n, y, n=1.0), None)  # noqa: E731
        return jax.lax.scan(step, x, None, length=2)[0]

    assert float(jax.jit(jax.grad(program))(1.0, 2.0)) == 9.0


def test_rules_are_callable_and_have_no_side_effects(add_n):
    rule = lambda *_, **__: None  # noqa: E731
    with pytest.raises(ValueError, match="expected no vjp for a call with has_side_effect=True"):
        callbox.jax.op(add_n, vjp=rule, has_side_effect=True)
    with pytest.raises(TypeError, match="expected jvp to be a target or a function, found int"):
        callbox.jax.op(add_n, jvp=1)
    with pytest.raises(TypeError, match="expected target to be a target of a module"):
        callbox.jax.op(len)


def test_an_op_is_described_as_its_target_is(load, rms_norm):
    assert rms_norm.__name__ == "rms_norm"
    assert "root of the mean" in rms_norm.__doc__
    assert str(inspect.signature(rms_norm)) == "(x, weight, *, eps)"
    assert "rms_norm" in repr(load("rms_norm").rms_norm)


def test_a_training_loop_goes_downhill(load):
    squareplus = callbox.jax.op(load("activation").squareplus, vjp=load("activation").squareplus_grad)

    def model(parameters, x):
        return squareplus(x @ parameters["a"], beta=4.0) @ parameters["b"]

    def error(parameters, x, y):
        return jnp.mean((model(parameters, x) - y) ** 2)

    @jax.jit
    def step(parameters, x, y):
        value, gradients = jax.value_and_grad(error)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients), value

    x = jnp.asarray(RNG.standard_normal((64, 3), np.float32))
    y = jnp.abs(x).sum(-1, keepdims=True)
    parameters = {
        name: jnp.asarray(RNG.standard_normal(shape, np.float32)) / 4
        for name, shape in (("a", (3, 16)), ("b", (16, 1)))
    }
    values = []
    for _ in range(60):
        parameters, value = step(parameters, x, y)
        values.append(float(value))
    assert values[-1] < 0.2 * values[0]


def test_a_call_of_arrays_that_nothing_traces_costs_no_rule(load, rms_norm, monkeypatch):
    """Without tracers there are no derivatives, and a rule costs more than a small call."""
    from callbox.jax import _derivatives, _rules

    def unexpected(*_):
        raise AssertionError("a wrapper for derivatives")

    add_n = load("add_n").add_n
    function = callbox.jax.op(add_n)
    x, w = jnp.asarray(X), jnp.asarray(W)
    with monkeypatch.context() as patched:
        patched.setattr(_derivatives, "_guard", unexpected)
        patched.setattr(_rules, "with_vjp", unexpected)
        patched.setattr(_rules, "with_jvp", unexpected)
        np.testing.assert_array_equal(function(x, n=1.0), X + 1)
        np.testing.assert_array_equal(callbox.jax.call(add_n, x, n=1.0), X + 1)
        close(rms_norm(x, w, eps=1e-5), reference(x, w, 1e-5))
        with pytest.raises(AssertionError, match="a wrapper"):
            jax.jvp(lambda x: function(x, n=1.0), (x,), (x,))
    # Only one of two operands is a tracer.
    close(jax.grad(lambda w: loss(rms_norm, x, w))(w), jax.grad(lambda w: loss(reference, x, w))(w))


@pytest.mark.parametrize("transformed", ["grad", "jvp", "jit"])
def test_rules_of_both_modes_may_use_the_axis_of_a_batch(load, transformed):
    """The rules take the mean slope of the batch, by the name of its axis."""

    def slope(operands):
        (x,) = operands
        return jax.lax.pmean(1 + x, "batch")

    both = callbox.jax.op(
        load("activation").squareplus,
        vjp=lambda operands, results, ct, beta: (slope(operands) * ct,),
        jvp=lambda operands, results, tangents, beta: slope(operands) * tangents[0],
        defaults={"beta": 4.0},
    )
    x = jnp.array([0.0, 1.0, 5.0])

    def pushed(x):
        return jax.jvp(both, (x,), (jnp.float32(1),))[1]

    program = jax.vmap(pushed if transformed == "jvp" else jax.grad(both), axis_name="batch")
    found = (jax.jit(program) if transformed == "jit" else program)(x)
    np.testing.assert_allclose(found, np.full(3, 3.0), rtol=1e-6)


def test_rules_of_both_modes_may_use_the_axes_of_nested_batches(load):
    def slope(operands):
        return jax.lax.psum(operands[0], "rows") + 10 * jax.lax.axis_index("columns")

    both = callbox.jax.op(
        load("activation").squareplus,
        vjp=lambda operands, results, ct, beta: (slope(operands) * ct,),
        jvp=lambda operands, results, tangents, beta: slope(operands) * tangents[0],
        defaults={"beta": 4.0},
    )
    x = jnp.arange(6.0).reshape(2, 3)
    found = jax.vmap(jax.vmap(jax.grad(both), axis_name="columns"), axis_name="rows")(x)
    expected = np.broadcast_to(np.asarray(x.sum(0)) + 10 * np.arange(3), (2, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
