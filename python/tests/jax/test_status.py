"""Failures as results: ``on_error="status"`` and `check`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

FAULTS = {
    "unreachable": "ABORTED",
    "divide_by_zero": "ABORTED",
    "panic": "ABORTED",
    "read_out_of_bounds": "OUT_OF_RANGE",
    "write_out_of_bounds": "OUT_OF_RANGE",
    "infinite_recursion": "RESOURCE_EXHAUSTED",
    "infinite_loop": "DEADLINE_EXCEEDED",
    "wrong_status_code": "INTERNAL",
    "healthy": None,
}


def program(target, **options):
    return jax.jit(
        lambda x: callbox.jax.call(target, x, result_shape_dtypes=x, on_error="status", deadline=0.1, **options)
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_status(load, fault):
    x = jnp.arange(4.0)
    y, status = program(load("faults")[fault])(x)
    assert (status.shape, status.dtype) == ((), np.int32)
    if FAULTS[fault] is None:
        assert int(status) == 0
        callbox.jax.check(status)
        np.testing.assert_array_equal(y, x)
        return
    assert callbox.error_name(int(status)) == FAULTS[fault]
    assert np.isnan(y).all()
    assert np.asarray(y).tobytes() == b"\xff" * 16
    with pytest.raises(callbox.CallError, match=f"{FAULTS[fault]}: .*{fault}") as raised:
        callbox.jax.check(status)
    assert raised.value.code == FAULTS[fault]


@pytest.mark.parametrize("code", [1, 3, 9, 16])
def test_every_code_and_its_message_reach_check(load, code):
    target = load("faults").fail
    fail = jax.jit(
        lambda x: callbox.jax.call(
            target, x, result_shape_dtypes=x, on_error="status", code=code, message=f"number {code}"
        )
    )
    _, status = fail(jnp.ones(2))
    assert int(status) == code
    with pytest.raises(callbox.CallError, match=f"number {code}") as raised:
        callbox.jax.check(status)
    assert raised.value.code == callbox.error_name(code)


@pytest.mark.parametrize(
    ("attributes", "recoverable", "blame"),
    [({"n": -1.0}, True, "guest"), ({"n": 1.0, "deadline": 0.0}, False, "caller")],
)
def test_check_tells_whose_failure_it_is(load, attributes, recoverable, blame):
    _, status = callbox.jax.call(load("add_n").add_n, jnp.ones(2), on_error="status", **attributes)
    with pytest.raises(callbox.CallError) as raised:
        callbox.jax.check(status)
    assert (raised.value.recoverable, raised.value.blame) == (recoverable, blame)


@pytest.mark.newest
def test_the_stopped_calls_of_a_run_share_the_limit(guests):
    """XLA tells the run of a call."""
    host = callbox.Host(policy={"limits": {"deadline_ms": 300}})
    loop, add_n = host.load(guests / "faults.wasm").infinite_loop, host.load(guests / "add_n.wasm").add_n

    def step(x, _):
        _, late = callbox.jax.call(loop, x, result_shape_dtypes=x, on_error="status", deadline=0.1)
        y, healthy = callbox.jax.call(add_n, x, n=1.0, on_error="status")
        return y, (late, healthy)

    steps = jax.jit(lambda x, count: jax.lax.scan(step, x, length=count), static_argnums=1)
    for count, message in ((6, "in this run of the program"), (2, "ran past its deadline")):
        x, (late, healthy) = steps(jnp.zeros(3), count)
        assert float(x[0]) == count
        assert {callbox.error_name(int(code)) for code in late} == {"DEADLINE_EXCEEDED"}
        np.testing.assert_array_equal(healthy, 0)
        with pytest.raises(callbox.CallError, match=message) as raised:
            callbox.jax.check(late[-1])
        assert raised.value.blame == "guest"


@pytest.mark.newest
def test_calls_of_a_run_that_are_stopped_while_they_prepare_share_the_limit(assemble):
    array = {"name": "x", "element_types": ["f32"], "dimensions": [3]}
    target = {"name": "f", "stages": ["instantiate", "execute"], "operands": [array], "results": [array]}
    # (loop (br 0)) (i32.const 0)
    functions = {"f": b"\x41\x00", "f.instantiate": b"\x03\x40\x0c\x00\x0b\x41\x00"}
    module = callbox.Host(policy={"limits": {"deadline_ms": 300}}).load(assemble(functions, [target]))

    def step(x, _):
        # Each call takes what the one before returned: XLA makes equal ones once.
        return callbox.jax.call(module.f, x, on_error="status", deadline=0.1)

    _, late = jax.jit(lambda x: jax.lax.scan(step, x, length=6))(jnp.zeros(3))
    assert {callbox.error_name(int(code)) for code in late} == {"DEADLINE_EXCEEDED"}
    with pytest.raises(callbox.CallError, match="in this run of the program"):
        callbox.jax.check(late[-1])


def test_a_batch_has_a_status_for_each_element(load):
    def norm(x, eps):
        return callbox.jax.call(load("broadcast_add").broadcast_add, x, x, on_error="status")

    x = jnp.ones((3, 4))
    y, status = jax.jit(jax.vmap(norm, (0, None)))(x, 1.0)
    assert status.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(y, 2 * x)


def test_elements_of_a_batch_fail_alone(load):
    """The operand of `fail` selects the outcome: 1 for success, 2 for a recoverable failure."""
    target = load("jax_misc").fail

    def fail(how):
        result = jax.ShapeDtypeStruct((), np.int32)
        return callbox.jax.call(
            target, how, result_shape_dtypes=result, on_error="status", api_version="API_VERSION_JAX_FFI"
        )

    y, status = jax.jit(jax.vmap(fail))(jnp.array([0, 1, 4, 2], np.int32))
    assert (np.asarray(status) != 0).tolist() == [False, True, False, True]
    assert y.tolist() == [0, -1, 4, -1]
    with pytest.raises(callbox.CallError, match="2 calls failed"):
        callbox.jax.check(status)


def test_nested_batches_have_nested_statuses(load):
    add_n = callbox.jax.op(load("add_n").add_n, on_error="status")
    _, status = jax.vmap(jax.vmap(lambda x: add_n(x, n=1.0)))(jnp.ones((2, 3, 4)))
    assert status.shape == (2, 3)
    callbox.jax.check(status)


def test_derivatives_of_a_failed_call_are_nan(load):
    faults = load("faults")
    like = lambda x, *_: x  # noqa: E731
    broken = callbox.jax.op(faults.healthy, vjp=faults.panic, result_shape_dtypes=like, on_error="status")
    # `panic` takes one operand, but the op's operand and the cotangent are two.
    with pytest.raises(TypeError, match="panic"):
        jax.grad(lambda x: broken(x)[0].sum())(jnp.ones(3))
    rms_norm = callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad, on_error="status")
    (y, status), pullback = jax.vjp(lambda x, w: rms_norm(x, w, eps=-1.0), jnp.ones((2, 3)), jnp.ones(3))
    dx, dweight = pullback((y, np.zeros((), jax.dtypes.float0)))
    assert int(status) == 3
    assert np.isnan(dx).all()
    assert np.isnan(dweight).all()


def test_booleans_of_a_failed_call_are_booleans(load):
    """A boolean of XLA must be 0 or 1, so 0xFF would be invalid."""
    x = jnp.array([True, False, True])

    def copy(x, length):
        result = jax.ShapeDtypeStruct((length,), np.bool_)
        y, status = callbox.jax.call(load("typed_ffi").copy_any, x, result_shape_dtypes=result, on_error="status")
        return y, jnp.sum(y), status

    y, total, status = jax.jit(copy, static_argnums=1)(x, 3)
    assert (y.tolist(), int(total), int(status)) == ([True, False, True], 2, 0)
    y, total, status = jax.jit(copy, static_argnums=1)(x, 4)
    assert int(status) != 0
    assert (y.tolist(), int(total)) == ([True] * 4, 4)
    assert np.asarray(y).tobytes() == b"\1" * 4


def test_a_call_that_can_not_be_made_ready_is_a_status(load, guests):
    """The failure precedes the first call of a site, and affects all of its calls."""
    small = callbox.Host(policy={"limits": {"memory_bytes": 4 << 20}}).load(guests / "softmax.wasm").softmax
    made = callbox.StaticInfo.reference("make_failure", "free_it", b"no luck")
    proposed = {"api_version": "API_VERSION_JAX_FFI", "static_info": made}
    calls = {
        "RESOURCE_EXHAUSTED": (lambda x: callbox.jax.call(small, x, on_error="status"), jnp.ones(4 << 20)),
        "INVALID_ARGUMENT": (
            lambda x: callbox.jax.call(
                load("jax_misc").read_counter, x, result_shape_dtypes=x, on_error="status", **proposed
            ),
            jnp.int32(0),
        ),
        "FAILED_PRECONDITION": (
            lambda x: callbox.jax.call(
                load("typed_ffi").fails_at, x, stage="instantiate", result_shape_dtypes=x, on_error="status"
            ),
            jnp.ones(3),
        ),
    }
    for code, (call, x) in calls.items():
        for program, operand in ((call, x), (jax.jit(call), x), (jax.jit(jax.vmap(call)), jnp.stack([x, x]))):
            _, status = jax.block_until_ready(program(operand))
            assert {callbox.error_name(int(found)) for found in np.ravel(status)} == {code}


def test_results_keep_no_container(load):
    given = [jax.ShapeDtypeStruct((3,), np.float32)]
    results = callbox.jax.call(
        load("typed_ffi").copy_remaining, jnp.ones(3), result_shape_dtypes=given, on_error="status"
    )
    assert isinstance(results, tuple)
    assert len(results) == 2


@pytest.mark.parametrize(
    "status", [0, np.int32(0), np.zeros((2, 3), np.int32), [0, 0], np.zeros(0, np.int64), jnp.zeros(2, np.int32)]
)
def test_check_takes_any_array_of_zeros(status):
    callbox.jax.check(status)


def test_check_raises_the_highest_code():
    with pytest.raises(callbox.CallError) as raised:
        callbox.jax.check(np.array([[0, 3], [11, 0]]))
    assert raised.value.code == "OUT_OF_RANGE"


@pytest.mark.parametrize("status", [1.0, jnp.ones(2), np.array(["a"]), None])
def test_check_takes_integers_alone(status):
    with pytest.raises(TypeError, match="expected a status"):
        callbox.jax.check(status)


@pytest.mark.parametrize(
    ("status", "found"), [(-1, -1), (17, 17), ([0, -1, 3], -1), ([11, 11 + 8, 0], 19), ([-5, 20], -5)]
)
def test_check_takes_codes_alone(status, found):
    """A sum of codes is another code, or none."""
    with pytest.raises(ValueError, match=rf"expected a status, which is 0 to 16, found {found}: .*jax\.lax\.pmax"):
        callbox.jax.check(np.array(status, np.int32))


def test_check_takes_every_code():
    for code in range(1, 17):
        with pytest.raises(callbox.CallError) as raised:
            callbox.jax.check(code)
        assert raised.value.code == callbox.error_name(code)


def test_check_is_for_the_outside():
    with pytest.raises(TypeError, match="outside of jax.jit"):
        jax.jit(callbox.jax.check)(jnp.zeros(2, np.int32))
