"""Targets that are called or transformed as they are, the errors of programs, and operands."""

from __future__ import annotations

import functools
import inspect
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

X = np.arange(3, dtype=np.float32)


@pytest.fixture
def add_n(load):
    return load("add_n").add_n


@pytest.fixture
def rms_norm(load):
    return load("rms_norm").rms_norm


def test_a_target_under_jit_calls_the_kernel(add_n):
    # The second call once ended the process: a target had no weak references.
    for _ in range(3):
        np.testing.assert_array_equal(jax.jit(add_n, static_argnames="n")(X, n=2.0), X + 2)
        np.testing.assert_array_equal(jax.jit(functools.partial(add_n, n=2.0))(X), X + 2)
        with pytest.raises(TypeError, match="attributes are part of the program"):
            jax.jit(add_n)(X, n=2.0)
        with pytest.raises(TypeError, match='found no "n"'):
            jax.jit(add_n)(X)


def test_a_target_on_tracers(add_n):
    def f(x):
        return add_n(x, n=2.0)

    assert jax.eval_shape(f, X) == jax.ShapeDtypeStruct((3,), np.float32)
    np.testing.assert_array_equal(jax.vmap(f)(jnp.stack([X, X])), [X + 2, X + 2])
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: f(x).sum())(X)
    with pytest.raises(TypeError, match=r"out= is for calls outside of jax\.jit"):
        jax.jit(lambda x: add_n(x, n=2.0, out=np.empty(3, np.float32)))(X)
    assert "callbox.v1" in jax.jit(f).lower(X).as_text()


@pytest.fixture
def program(load):
    """Panics for a sum that is not 3, whose operand decides after the program has succeeded."""
    add_n = load("add_n").add_n
    faults = load("faults").panic
    kernel = callbox.jax.op(faults, result_shape_dtypes=lambda x: x)
    ready = jax.jit(lambda x: callbox.jax.call(add_n, x, n=1.0))
    ready(X).block_until_ready()
    return jax.jit(kernel)


def test_the_failure_of_a_program_is_a_call_error(program):
    for _ in range(2):
        with pytest.raises(Exception, match="^ABORTED: faults.wasm") as raised:
            program(X).block_until_ready()
        failure = callbox.errors.from_jax(raised.value)
        assert isinstance(failure, callbox.CallError)
        assert (failure.code, failure.blame, failure.recoverable) == ("ABORTED", "guest", False)
        assert (failure.module, failure.target) == ("faults.wasm", "panic")
        assert failure.backtrace[-1] == "panic"
        assert pickle.loads(pickle.dumps(failure)).target == "panic"
        with pytest.raises(callbox.CallError, match="^ABORTED: faults.wasm") as raised, callbox.errors.as_call_errors():
            program(X).block_until_ready()
        assert "ABORTED" in str(raised.value.__cause__)


def test_the_failure_of_a_program_that_has_succeeded(load):
    def fails(x):
        return jax.lax.cond(
            x.sum() > 0,
            lambda x: callbox.jax.call(load("faults").panic, x, result_shape_dtypes=x),
            lambda x: x,
            x,
        )

    program = jax.jit(fails)
    program(-X).block_until_ready()
    # JAX raises a ValueError here, or its own error.
    decorated = callbox.errors.as_call_errors()(lambda x: program(x).block_until_ready())
    with pytest.raises(callbox.CallError) as raised:
        decorated(X)
    assert (raised.value.code, raised.value.target) == ("ABORTED", "panic")


def test_other_errors_are_none_of_callbox(add_n):
    assert callbox.errors.from_jax(ValueError("ABORTED: something else")) is None
    own = callbox.CallError("ABORTED", "a message")
    assert callbox.errors.from_jax(own) is own
    with pytest.raises(KeyError, match="other"), callbox.errors.as_call_errors():
        raise KeyError("other")


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("make", [callbox.jax.op, lambda target: functools.partial(callbox.jax.call, target)])
def test_operands_by_name(rms_norm, make, transform):
    call = make(rms_norm)
    x, weight = np.ones((2, 3), np.float32), np.full(3, 2, np.float32)
    expected = call(x, weight, eps=0.0)
    np.testing.assert_array_equal(transform(lambda x, w: call(x, weight=w, eps=0.0))(x, weight), expected)
    np.testing.assert_array_equal(transform(lambda x, w: call(weight=w, eps=0.0, x=x))(x, weight), expected)
    with pytest.raises(TypeError, match="expected the operand 'x' before 'weight', found none"):
        call(weight=weight, eps=0.0)
    with pytest.raises(TypeError, match="expected the operand 'x' once, found it by position and by name"):
        call(x, x=x, eps=0.0)
    with pytest.raises(TypeError, match=r"expected 2 operands \(x, weight\), found 1"):
        call(x=x, eps=0.0)


def test_default_attributes(rms_norm):
    op = callbox.jax.op(rms_norm, defaults={"eps": 1.0})
    x, weight = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    np.testing.assert_allclose(op(x, weight), np.sqrt(0.5) * x, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(op)(x, weight), np.sqrt(0.5) * x, rtol=1e-6)
    np.testing.assert_allclose(op(x, weight, eps=0.0), x, rtol=1e-6)
    assert inspect.signature(op).parameters["eps"].default == 1.0
    with pytest.raises(TypeError, match="`epsilon` is not an attribute of `rms_norm`, which takes `eps`"):
        callbox.jax.op(rms_norm, defaults={"epsilon": 1.0})


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float16, jnp.bfloat16, np.float32])
def test_operands_are_promoted_as_by_jnp(add_n, dtype):
    op = callbox.jax.op(add_n, promote=True)
    x = np.array([0, 1, 1]).astype(dtype)
    for y in (op(x, n=0.5), jax.jit(lambda x: op(x, n=0.5))(x), callbox.jax.call(add_n, x, n=0.5, promote=True)):
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, [0.5, 1.5, 1.5])


def test_operands_are_never_narrowed(add_n):
    op = callbox.jax.op(add_n, promote=True)
    with pytest.raises(TypeError, match="expected dtype float32, found complex64"):
        op(np.ones(3, np.complex64), n=0.5)
    with pytest.raises(TypeError, match="expected dtype float32, found int32"):
        callbox.jax.op(add_n)(np.ones(3, np.int32), n=0.5)


def test_gradients_of_promoted_operands(load):
    activation = load("activation")
    op = callbox.jax.op(activation.squareplus, vjp=activation.squareplus_grad, promote=True)
    gradient = jax.grad(lambda x: op(x, beta=16.0).sum())(jnp.array([-3, 0, 3], jnp.bfloat16))
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(gradient.astype(np.float32), [0.2, 0.5, 0.8], atol=1e-2)


def test_operands_of_elementwise_targets_are_broadcast(load):
    op = callbox.jax.op(load("activation").squareplus_grad, promote=True)
    x, dy = np.array([-3, 0, 3]), np.array([[1.0], [2.0]], np.float32)
    np.testing.assert_allclose(op(x, dy, beta=16.0), [[0.2, 0.5, 0.8], [0.4, 1.0, 1.6]], rtol=1e-6)
    np.testing.assert_allclose(op(x, 1.0, beta=16.0), [0.2, 0.5, 0.8], rtol=1e-6)
    with pytest.raises(ValueError, match="roadcast"):
        op(x, np.ones(2, np.float32), beta=16.0)


def test_long_texts_of_a_foreign_call_are_cut(load, failure):
    """An exported program may have any attributes."""
    attributes = load("add_n").add_n.xla_attributes([X], [X], {"n": 1.0})
    foreign = jax.ffi.ffi_call("callbox.v1", jax.ShapeDtypeStruct(X.shape, X.dtype))
    long = "z" * 100_000
    call = json.loads(attributes["call"])
    for changed in (
        {long: "x"},
        {"module": long},
        {"target": long},
        {"call": json.dumps({**call, long: 1})},
        {"call": json.dumps({**call, "operand_ranks": long})},
        {"call": json.dumps({**call, "api_version": long})},
    ):
        message = failure(functools.partial(foreign, **{**attributes, **changed}), X)
        assert len(message) < 3000, message[:200]


def test_a_guest_cannot_quote_the_failure_of_another(load):
    def failure(call):
        with pytest.raises(Exception, match="CANCELLED|DEADLINE_EXCEEDED") as raised:
            jax.block_until_ready(jax.jit(call)(jnp.ones(3)))
        return raised.value

    late = failure(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.0, deadline=0.0))
    quoted = f"DEADLINE_EXCEEDED: {callbox.errors.from_jax(late).message}"
    fail = load("faults").fail
    forged = failure(lambda x: callbox.jax.call(fail, x, result_shape_dtypes=x, code=1, message=quoted))
    failure(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.0, deadline=0.0))
    found = callbox.errors.from_jax(forged)
    assert (found.code, found.blame, found.module, found.target) == ("CANCELLED", "guest", "faults.wasm", "fail")
    # The last 64 failures are known.
    for _ in range(64):
        failure(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1.0, deadline=0.0))
    assert callbox.errors.from_jax(forged) is None
