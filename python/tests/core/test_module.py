"""Modules and targets as Python objects."""

from __future__ import annotations

import inspect

import pytest

import callbox


def test_targets_are_attributes_and_items(load):
    module = load("typed_ffi")
    assert module.scale == module["scale"] == module.targets["scale"]
    assert "scale" in module
    assert "nothing" not in module
    assert "scale" in dir(module)
    assert sorted(module) == sorted(module.targets)
    assert len(module) == len(list(module))


def test_an_unknown_target_is_an_attribute_error_or_a_key_error(load):
    with pytest.raises(AttributeError, match=r'expected a target of the module \(add_n\), found "add"'):
        _ = load("add_n").add
    with pytest.raises(KeyError, match="found .*add"):
        _ = load("add_n")["add"]
    assert not hasattr(load("add_n"), "add")


def test_names_that_are_no_identifiers_are_items(load):
    assert load("functions")["xla.graph.launch"].name == "xla.graph.launch"


def test_names_that_tools_ask_for_are_no_attributes(assemble):
    names = ("_repr_html_", "__jax_array__", "_f")
    guest = assemble(dict.fromkeys(names, b"\x41\x00"), [{"name": name} for name in names])
    module = callbox.Host().load(guest)
    for name in names:
        assert module[name].name == name
        assert name not in dir(module)
        with pytest.raises(AttributeError, match=r'expected module\["_'):
            getattr(module, name)


def test_modules_are_equal_by_file_and_policy(guests, load):
    same = callbox.Host().load(guests / "add_n.wasm")
    other = callbox.Host(isolation="fresh").load(guests / "add_n.wasm")
    assert same == load("add_n")
    assert hash(same) == hash(load("add_n"))
    assert other != same
    assert (other.digest, other.key == same.key) == (same.digest, False)
    assert len({same.add_n, load("add_n").add_n, other.add_n}) == 2
    assert same.add_n.module == same
    assert same != "add_n"


def test_nothing_can_be_put_into_a_module(load):
    with pytest.raises(AttributeError):
        load("add_n").add = 1


def test_a_target_says_what_it_is(load):
    target = load("add_n").add_n
    assert target.name == target.__name__ == target.__qualname__ == "add_n"
    assert repr(target) == "<callbox.Target add_n(x: float32[..], *, n: float32) -> y: float32[..]>"
    assert "Adds the attribute" in target.__doc__
    assert "add_n" in repr(load("add_n"))
    assert {"pure", "elementwise"} <= set(target.traits)
    assert target.api_versions == ("API_VERSION_TYPED_FFI",)
    assert target.has_native is False
    assert target.module.native is None


def test_a_signature_has_operands_by_either_and_attributes_by_name(load):
    parameters = inspect.signature(load("typed_ffi").scale).parameters
    assert parameters["x"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert parameters["factor"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["out"].default is None
    assert inspect.signature(load("typed_ffi").optional).parameters["bias"].default is None


def test_metadata_are_there_to_be_read(load):
    target = load("rms_norm").rms_norm
    x, weight = target.operands
    (y,) = target.results
    (eps,) = target.attributes
    assert (x.name, x.dtypes, x.rank, x.dimensions, x.optional) == ("x", ("float32",), None, ("..", "n"), False)
    assert (weight.name, weight.dimensions) == ("weight", ("n",))
    assert y.dimensions == ("..", "n")
    assert (eps.name, eps.kind, eps.dtype, eps.optional) == ("eps", "scalar", "float32", False)
    assert "float32" in repr(x)
    assert "eps" in repr(eps)
    assert load("do_custom_call").do_custom_call.operands is None


def test_results_are_inferred(load):
    target = load("rms_norm").rms_norm
    assert target.infer([("float32", (2, 3, 4)), ("float32", (4,))]) == [("float32", (2, 3, 4))]
    assert load("activation").squareplus.infer([("float64", ())]) == [("float64", ())]
    with pytest.raises(TypeError, match=r"expected dtype float32, found int32"):
        target.infer([("int32", (2, 4)), ("float32", (4,))])
    with pytest.raises(ValueError, match="Wrong buffer dimensions: expected weight"):
        target.infer([("float32", (2, 3)), ("float32", (4,))])
    with pytest.raises(ValueError, match="does not declare them"):
        load("typed_ffi").describe.infer([("float32", (2,))])


def test_the_extension_has_what_frameworks_need():
    assert set(callbox.ffi_capsules()) == {"cpu", "cuda", "cuda_command_buffer"}
    assert callbox.FFI_TARGET != callbox.FFI_TARGET_COMMAND_BUFFER
    assert callbox.error_name(0) == "OK"
    assert callbox.error_name(11) == "OUT_OF_RANGE"
    assert callbox.__version__.count(".") == 2


def test_call_site_attributes_are_text(load):
    given = load("add_n").add_n.xla_attributes([("float32", (3,))], [("float32", (3,))], {"n": 4.0}, deadline=0.5)
    assert all(isinstance(value, str) for value in given.values())
    assert given["module"] == load("add_n").key
    assert given["target"] == "add_n"
    assert "4.0" in given["attributes"]
    assert "500" in given["call"]


def test_declared_derivatives_are_targets(load):
    norm = load("rms_norm")
    assert norm.rms_norm.vjp == norm.rms_norm_grad
    assert norm.rms_norm.vjp.name == "rms_norm_grad"
    assert (norm.rms_norm.jvp, norm.rms_norm_grad.vjp, load("add_n").add_n.vjp) == (None, None, None)
