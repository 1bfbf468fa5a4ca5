"""`jax.export`: programs that another process runs if it has the module."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import callbox
import callbox.jax

RUN = """
import os, sys
import jax
from jax import export
import callbox.jax
guests = os.environ["CALLBOX_GUESTS"]
program = export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
module = callbox.Host().load(f"{guests}/add_n.wasm")
if sys.argv[2] == "registered":
    module.register()
try:
    print(program.call(jax.numpy.arange(3.0)).tolist())
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def exported(load, tmp_path_factory):
    jax = pytest.importorskip("jax")
    pytest.importorskip("flatbuffers")
    export = pytest.importorskip("jax.export")
    add_n = callbox.jax.op(load("add_n").add_n)
    program = jax.jit(lambda x: add_n(x, n=4.0))
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    made = export.export(program, disabled_checks=callbox.jax.export_checks())(shape)
    path = tmp_path_factory.mktemp("export") / "program"
    path.write_bytes(made.serialize())
    return path


def test_a_program_runs_in_a_process_that_has_the_module(exported, python):
    assert python(RUN, str(exported), "registered") == "[4.0, 5.0, 6.0]\n"


def test_a_program_without_its_module_fails_by_name(exported, python, load):
    printed = python(RUN, str(exported), "loaded")
    assert "NOT_FOUND" in printed
    assert load("add_n").key[:8] in printed


def test_without_the_checks_a_program_is_not_exported(load):
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    add_n = callbox.jax.op(load("add_n").add_n)
    with pytest.raises(ValueError, match=r"callbox\.v1"):
        export.export(jax.jit(lambda x: add_n(x, n=4.0)))(jax.ShapeDtypeStruct((3,), np.float32))


CACHED = """
import os, sys
import jax, jax.numpy as jnp, callbox.jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/rms_norm.wasm")
rms_norm = callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad)
program = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(lambda x: rms_norm(x, jnp.ones(4), eps=0.5) ** 2)(x))))
x = jnp.arange(8.0).reshape(2, 4)
hits.clear()
y = program(x)
print(len(hits), [round(float(value), 4) for value in y.ravel()])
"""


def test_a_program_from_the_compilation_cache_runs_in_a_second_process(python, tmp_path):
    first, second = (python(CACHED, str(tmp_path)).split(" ", 1) for _ in range(2))
    assert (first[0], second[0]) == ("0", "1")
    assert first[1] == second[1]


def exported_of(function, *shapes: str):
    """Exports a function of float32 arrays with open dimensions, such as ``"n, 3"``."""
    from jax import export

    scope = export.SymbolicScope()
    types = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32) for shape in shapes]
    return export.export(jax.jit(function), disabled_checks=callbox.jax.export_checks())(*types)


def norm_reference(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5) * weight


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (7, 16)])
def test_open_dimensions(load, shape):
    from jax import export

    module = load("rms_norm")
    rms_norm = callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad)
    generator = np.random.default_rng(0)
    x, weight = generator.standard_normal(shape, np.float32), generator.standard_normal(shape[-1], np.float32)

    def norm(x, weight):
        return rms_norm(x, weight, eps=0.5)

    program = exported_of(norm, "n, m", "m")
    assert str(program.out_avals[0].shape) == "(n, m)"
    np.testing.assert_allclose(program.call(x, weight), norm_reference(x, weight), atol=1e-5)
    again = export.deserialize(program.serialize())
    np.testing.assert_allclose(again.call(x, weight), norm_reference(x, weight), atol=1e-5)
    of_batch = exported_of(jax.vmap(norm, in_axes=(0, None)), "b, n, m", "m")
    np.testing.assert_allclose(of_batch.call(x[None], weight)[0], norm_reference(x, weight), atol=1e-5)
    gradient = exported_of(jax.grad(lambda x, weight: norm(x, weight).sum()), "n, m", "m")
    expected = jax.grad(lambda x, weight: norm(x, weight).sum())(x, weight)
    np.testing.assert_allclose(gradient.call(x, weight), expected, atol=1e-5)


def test_open_dimensions_of_given_results(load):
    program = exported_of(lambda x: callbox.jax.call(load("faults").healthy, x, result_shape_dtypes=x), "2*n")
    np.testing.assert_array_equal(program.call(np.ones(4, np.float32)), np.ones(4))


def test_open_dimensions_that_disagree(load):
    def program(x, weight):
        return callbox.jax.call(load("rms_norm").rms_norm, x, weight, eps=0.5)

    with pytest.raises(
        callbox.InvalidArgumentError, match=r"expected weight: \[n\] with n = m \(from x\) but got \[k\]"
    ):
        exported_of(program, "n, m", "k")
