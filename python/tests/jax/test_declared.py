"""Derivatives that a module declares."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax

#: In pseudocode: copy the bytes of operand `i`, whose record is 36 bytes long, to the first result.
_FIRST = b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x08\x28\x02\x00"
_SECOND = b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x08\x28\x02\x24"
_COPY = b"\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0a\x00\x00\x41\x00"


def _array(name: str) -> dict:
    return {"name": name, "element_types": ["f32"], "dimensions": [".."]}


def _identity(assemble, *modes: str) -> callbox.Module:
    """The target `same`, with derivatives of these modes."""
    bodies = {"same": _FIRST + _COPY} | {f"same_{mode}": _SECOND + _COPY for mode in modes}
    declarations = [{"name": "same", "operands": [_array("x")], "results": [_array("y")]}]
    for mode in modes:
        declarations.append(
            {
                "name": f"same_{mode}",
                "operands": [_array("x"), _array("d")],
                "results": [_array("z")],
                "derivative_of": "same",
                "derivative_mode": mode,
            }
        )
    return callbox.Host().load(assemble(bodies, declarations))


def test_a_declared_derivative_needs_no_argument(load):
    rms_norm = callbox.jax.op(load("rms_norm").rms_norm, defaults={"eps": 0.5})
    given = callbox.jax.op(load("rms_norm").rms_norm, vjp=load("rms_norm").rms_norm_grad, defaults={"eps": 0.5})
    x, w = jnp.arange(12.0).reshape(3, 4), jnp.linspace(1, 2, 4)

    def of(f):
        return jax.jit(jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)))(x, w)

    for found, expected in zip(of(rms_norm), of(given), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_calls_of_targets_have_them_too(load):
    target = load("activation").squareplus
    x = jnp.array([-3.0, 0.0, 3.0])
    for function in (
        lambda x: target(x, beta=16.0),
        lambda x: callbox.jax.call(target, x, beta=16.0),
    ):
        np.testing.assert_allclose(jax.grad(lambda x, f=function: f(x).sum())(x), [0.2, 0.5, 0.8])


@pytest.mark.parametrize("modes", [("vjp",), ("jvp",), ("vjp", "jvp")])
def test_each_mode_is_found(assemble, modes):
    module = _identity(assemble, *modes)
    assert (module.same.vjp, module.same.jvp) == tuple(
        module[f"same_{mode}"] if mode in modes else None for mode in ("vjp", "jvp")
    )
    same, x, d = callbox.jax.op(module.same), jnp.arange(3.0), jnp.array([5.0, 6.0, 7.0])
    if "vjp" in modes:
        np.testing.assert_array_equal(jax.vjp(same, x)[1](d)[0], d)
    if "jvp" in modes:
        found = jax.jit(lambda x, d: jax.jvp(same, (x,), (d,)))(x, d)
        np.testing.assert_array_equal(found[1], d)


def test_arguments_replace_declarations(assemble):
    module = _identity(assemble, "vjp", "jvp")
    doubled = callbox.jax.op(module.same, vjp=lambda operands, results, ct: (2 * ct,))
    np.testing.assert_array_equal(jax.grad(lambda x: doubled(x).sum())(jnp.ones(3)), np.full(3, 2.0))


def test_derivatives_of_derivatives_are_found(assemble):
    """`f(x) = x` with a derivative `g(x, d) = d`, whose derivative is `h(x, d, e) = (x, e)`."""
    bodies = {"f": _FIRST + _COPY, "g": _SECOND + _COPY}
    # Two results: `h` copies its first operand to both, so that only the use of `h` is tested.
    second = b"\x20\x00\x28\x02\x10\x28\x02\x24\x20\x00\x28\x02\x08\x28\x02\x00"
    body = (_FIRST + _COPY)[:-2] + (second + _COPY)
    bodies["h"] = body
    declarations = [
        {"name": "f", "operands": [_array("x")], "results": [_array("y")]},
        {"name": "g", "operands": [_array("x"), _array("d")], "results": [_array("z")], "derivative_of": "f"},
        {
            "name": "h",
            "operands": [_array("x"), _array("d"), _array("e")],
            "results": [_array("z"), _array("w")],
            "derivative_of": "g",
        },
    ]
    f = callbox.jax.op(callbox.Host().load(assemble(bodies, declarations)).f)
    x = jnp.array([3.0, 4.0])
    found = jax.grad(lambda x: jax.grad(lambda x: f(x).sum())(x).sum())(x)
    np.testing.assert_array_equal(found, x)


def test_a_call_with_a_side_effect_has_none(load):
    target = load("activation").squareplus
    effect = callbox.jax.op(target, has_side_effect=True)
    x = jnp.ones(3)
    np.testing.assert_array_equal(effect(x, beta=0.0), x)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: effect(x, beta=0.0).sum())(x)


def test_wrong_declarations_are_refused(assemble):
    declarations = [
        {"name": "f", "operands": [_array("x")], "results": [_array("y")]},
        {"name": "g", "operands": [_array("x")], "results": [_array("z")], "derivative_of": "f"},
    ]
    bodies = {"f": _FIRST + _COPY, "g": _FIRST + _COPY}
    with pytest.raises(callbox.CallError, match="expected the vjp of f to have 2 operands, found 1"):
        callbox.Host().load(assemble(bodies, declarations))
