"""Pytrees of operands and results, and attributes that are operands where they are traced."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax


class Pair(NamedTuple):
    x: jax.Array
    weight: jax.Array


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class Layer:
    x: jax.Array
    weight: jax.Array

    def tree_flatten(self):
        return (self.x, self.weight), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


W, G = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, -1.0, 2.0])


@pytest.fixture(scope="module")
def descend(load):
    return callbox.jax.op(load("typed_ffi").descend)


@pytest.fixture(scope="module")
def norm(load):
    module = load("rms_norm")
    return callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad, defaults={"eps": 0.5})


def norm_of_jax(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 0.5) * weight


@pytest.mark.parametrize("traced", [False, True])
def test_a_rate_is_an_attribute_or_a_traced_value(descend, traced):
    step = jax.jit(lambda w, g, rate: descend(w, g, rate=rate), static_argnums=() if traced else 2)
    for rate in (0.1, 0.25):
        np.testing.assert_allclose(step(W, G, rate), W - rate * G, rtol=1e-6)
    text = step.lower(W, G, 0.1).as_text()
    assert ("rate = 1.000000e-01" in text or "rate = 1.0" in text or "rate = 0.1" in text) != traced


def test_a_schedule_compiles_once(descend):
    traces = []

    @jax.jit
    def train(w, rates):
        traces.append(None)
        return jax.lax.scan(lambda w, rate: (descend(w, 2 * w, rate=rate), rate), w, rates)[0]

    for rates in (jnp.linspace(0.1, 0.1, 5), jnp.linspace(0.1, 0.3, 5)):
        expected = W * np.prod(1 - 2 * np.asarray(rates))
        np.testing.assert_allclose(train(W, rates), expected, rtol=1e-5)
    assert len(traces) == 1


def test_a_rate_for_each_element_of_a_batch(descend):
    rates = jnp.array([0.0, 0.5])
    found = jax.vmap(lambda rate: descend(W, G, rate=rate))(rates)
    np.testing.assert_allclose(found, W - rates[:, None] * G, rtol=1e-6)


def test_an_array_of_jax_is_an_operand_outside_of_programs(descend, load):
    np.testing.assert_allclose(descend(W, G, rate=jnp.float32(0.5)), W - 0.5 * G)
    np.testing.assert_allclose(callbox.jax.call(load("typed_ffi").descend, W, G, rate=jnp.float32(0.5)), W - 0.5 * G)
    np.testing.assert_allclose(load("typed_ffi").descend(np.asarray(W), np.asarray(G), rate=0.5), W - 0.5 * G)


def test_a_default_rate_gives_way_to_a_traced_one(load):
    descend = callbox.jax.op(load("typed_ffi").descend, defaults={"rate": 1.0})
    np.testing.assert_allclose(descend(W, G), W - G)
    np.testing.assert_allclose(jax.jit(lambda rate: descend(W, G, rate=rate))(0.5), W - 0.5 * G)


def test_gradients_with_respect_to_a_rate(load):
    descend = callbox.jax.op(
        load("typed_ffi").descend,
        vjp=lambda operands, y, ct: (ct, -operands[2] * ct, -jnp.sum(operands[1] * ct)),
    )
    found = jax.grad(lambda rate: jnp.sum(descend(W, G, rate=rate) ** 2))(0.5)
    np.testing.assert_allclose(found, -2 * jnp.sum(G * (W - 0.5 * G)), rtol=1e-6)


def test_a_traced_rate_needs_the_operands_before_it(descend):
    with pytest.raises(TypeError, match="expected the operand 'g' before traced attributes, found none"):
        jax.jit(lambda rate: descend(W, rate=rate))(0.5)


def test_a_traced_attribute_that_is_no_operand_is_refused(load):
    add_n = callbox.jax.op(load("add_n").add_n)
    with pytest.raises(TypeError, match="expected a value for the attribute 'n' that is known"):
        jax.jit(lambda n: add_n(W, n=n))(1.0)


def test_a_rate_of_another_rank_is_refused(descend):
    with pytest.raises(ValueError, match="rate"):
        jax.jit(lambda rate: descend(W, G, rate=rate))(jnp.ones(3))


@pytest.mark.parametrize(
    "tree",
    [
        lambda x, w: ((x, w),),
        lambda x, w: ([x, w],),
        lambda x, w: ({"a": x, "b": w},),
        lambda x, w: (Pair(x, w),),
        lambda x, w: (Layer(x, w),),
        lambda x, w: ([[x], {"w": w}],),
        lambda x, w: ((x,), w),
        lambda x, w: (x, (w,)),
    ],
)
def test_a_pytree_stands_for_its_leaves(norm, tree, load):
    x, weight = jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 2.0, 0.5])
    expected = norm_of_jax(x, weight)
    for call in (norm, jax.jit(norm)):
        np.testing.assert_allclose(call(*tree(x, weight)), expected, rtol=1e-5)
    direct = callbox.jax.call(load("rms_norm").rms_norm, *tree(x, weight), eps=0.5)
    np.testing.assert_allclose(direct, expected, rtol=1e-5)


def test_gradients_of_a_pytree_have_its_structure(norm):
    params = Layer(jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 2.0, 0.5]))
    found = jax.grad(lambda params: jnp.sum(norm(params) ** 2))(params)
    expected = jax.grad(lambda params: jnp.sum(norm_of_jax(params.x, params.weight) ** 2))(params)
    assert isinstance(found, Layer)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-5)
    np.testing.assert_allclose(found.weight, expected.weight, atol=1e-5)


def test_rules_get_pytrees_as_they_were_passed(load):
    def vjp(operands, results, cotangent, eps):
        (layer,) = operands
        x, weight = jax.vjp(norm_of_jax, layer["a"], layer["b"])[1](cotangent)
        return ({"a": x, "b": weight},)

    def jvp(operands, results, tangents, eps):
        (layer,), (t,) = operands, tangents
        return jax.jvp(norm_of_jax, (layer["a"], layer["b"]), (t["a"], t["b"]))[1]

    def reference(layer):
        return norm_of_jax(layer["a"], layer["b"])

    layer = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.array([1.0, 2.0, 0.5])}
    tangents = jax.tree.map(jnp.ones_like, layer)
    for rules in ({"vjp": vjp}, {"jvp": jvp}, {"vjp": vjp, "jvp": jvp}):
        op = callbox.jax.op(load("rms_norm").rms_norm, defaults={"eps": 0.5}, **rules)
        if "vjp" in rules:
            found = jax.grad(lambda layer, op=op: jnp.sum(op(layer) ** 2))(layer)
            expected = jax.grad(lambda layer: jnp.sum(reference(layer) ** 2))(layer)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
        if "jvp" in rules:
            found = jax.jvp(op, (layer,), (tangents,))[1]
            np.testing.assert_allclose(found, jax.jvp(reference, (layer,), (tangents,))[1], atol=1e-5)


def test_results_have_the_requested_structure(load):
    params = {"a": jnp.arange(3), "b": [jnp.ones((2, 2)), jnp.zeros(())]}
    copy = callbox.jax.op(load("typed_ffi").copy_remaining, result_shape_dtypes=lambda tree: tree)
    for call in (copy, jax.jit(copy)):
        found = call(params)
        assert jax.tree.structure(found) == jax.tree.structure(params)
        jax.tree.map(np.testing.assert_array_equal, found, params)


def test_an_empty_pytree_has_no_leaves(norm):
    x, weight = jnp.ones((2, 3)), jnp.ones(3)
    np.testing.assert_allclose(norm((), x, {}, weight), norm_of_jax(x, weight), rtol=1e-5)
    with pytest.raises(TypeError, match="expected 2 operands .*, found 1"):
        norm((x,), [])
