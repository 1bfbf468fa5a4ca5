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


def test_open_dimensions_of_larger_results(assemble):
    """The stand-ins of open dimensions are large numbers, and no sizes of arrays."""

    def array(name, *dimensions):
        return {"name": name, "element_types": ["f32"], "dimensions": list(dimensions)}

    # Names that Rust allows for dimensions, and Python does not.
    operands = [array("a", "lambda", "3"), array("b", "in", "3")]
    declared = {"name": "f", "operands": operands, "results": [array("z", "lambda", "in", "4096*in", "3")]}
    f = callbox.Host().load(assemble({"f": b"\x41\x00"}, [declared])).f
    program = exported_of(lambda a, b: callbox.jax.call(f, a, b), "n, 3", "m, 3")
    assert str(program.out_avals[0].shape) == "(n, m, 4096*m, 3)"
    assert program.call(np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)).shape == (2, 1, 4096, 3)


@pytest.mark.parametrize("on_error", ["raise", "status"])
def test_open_dimensions_of_results_that_are_too_large(assemble, on_error):
    """The sizes are known when the program runs."""

    def array(name, *dimensions):
        return {"name": name, "element_types": ["f32"], "dimensions": list(dimensions)}

    results = [array("y", "..", "100000*n")]
    declared = {"name": "f", "traits": ["rows"], "operands": [array("x", "..", "n")], "results": results}
    host = callbox.Host(policy={"limits": {"memory_bytes": 1 << 20}})
    f = host.load(assemble({"f": b"\x41\x00"}, [declared])).f
    program = exported_of(lambda x: callbox.jax.call(f, x, on_error=on_error), "b, 1")
    jax.block_until_ready(program.call(np.ones((2, 1), np.float32)))
    with pytest.raises(Exception, match="expected declared results of at most 1048768 bytes"):
        jax.block_until_ready(program.call(np.ones((3, 1), np.float32)))


def test_open_dimensions_that_disagree(load):
    def program(x, weight):
        return callbox.jax.call(load("rms_norm").rms_norm, x, weight, eps=0.5)

    with pytest.raises(
        callbox.InvalidArgumentError, match=r"expected weight: \[n\] with n = m \(from x\) but got \[k\]"
    ):
        exported_of(program, "n, m", "k")


@pytest.mark.parametrize("shape", [(2, 6), (1, 10), (3, 0)])
def test_computed_dimensions(load, shape):
    module = load("typed_ffi")
    pair_sums, every_other = callbox.jax.op(module.pair_sums), callbox.jax.op(module.every_other)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    pairs = x.reshape(shape[0], -1, 2)
    np.testing.assert_array_equal(jax.jit(pair_sums)(x), pairs.sum(-1))
    np.testing.assert_array_equal(jax.vmap(every_other)(x), x[:, ::2])
    sums = exported_of(pair_sums, "m, 2*n")
    assert str(sums.out_avals[0].shape) == "(m, n)"
    halves = exported_of(every_other, "m, n")
    assert str(halves.out_avals[0].shape) == "(m, floordiv(n + 1, 2))"
    if shape[1]:
        np.testing.assert_array_equal(halves.call(x), x[:, ::2])
        np.testing.assert_array_equal(sums.call(x), pairs.sum(-1))
        both = exported_of(lambda x: every_other(pair_sums(x)), "m, 4*n + 2")
        assert str(both.out_avals[0].shape) == "(m, n + 1)"
        np.testing.assert_array_equal(both.call(x), pairs.sum(-1)[:, ::2])


def test_computed_dimensions_that_disagree(load):
    pair_sums = callbox.jax.op(load("typed_ffi").pair_sums)
    with pytest.raises(ValueError, match=r"expected x: \[\.\., 2\*n\] but got \[3,5\]"):
        jax.jit(pair_sums)(np.ones((3, 5), np.float32))
    with pytest.raises(callbox.InvalidArgumentError, match=r"expected x: \[\.\., 2\*n\] but got \[m,k\]"):
        exported_of(pair_sums, "m, k")


@pytest.mark.parametrize(
    ("expression", "rank", "results"),
    [
        # JAX multiplied them out for half a minute.
        ("(n/m+m/k+1)*(n/k+k/m+1)*(m/n+k/n+1)", 4, 1),
        # For four minutes, of which it took a quarter of a second for each result.
        ("(n+m+k)*(n+m+1)*(n+k+1)*(m+k+2)", 1, 1024),
        ("n/m*k/(m+1)", 1, 1024),
        # No term is left, of many on the way.
        ("(n+m+k)*(n+m+1)*(n+k+1)*(m+k+2)*(n-n)+1", 1, 1024),
    ],
)
def test_open_dimensions_of_many_terms_are_refused(assemble, expression, rank, results):
    x = {"name": "x", "element_types": ["f32"], "dimensions": ["n", "m", "k"]}
    y = {"element_types": ["f32"], "dimensions": [expression] * rank}
    declared = [{"name": f"y{number}", **y} for number in range(results)]
    module = callbox.Host().load(assemble({"f": b"\x41\x00"}, [{"name": "f", "operands": [x], "results": declared}]))
    with pytest.raises(ValueError, match="products of at most 256 terms in all, found more"):
        exported_of(lambda x: module.f(x), "n, m, k")


def bundled(function, *args):
    return callbox.jax.export(jax.jit(function), bundle=True)(*args)


RUN_BUNDLE = """
import sys
import jax
import callbox.jax
program = callbox.jax.deserialize(open(sys.argv[1], "rb").read())
print(program.call(jax.numpy.arange(3.0)).tolist(), [sorted(module) for module in program.modules])
"""


def test_a_bundle_needs_no_file(load, python, tmp_path):
    add_n, norm = callbox.jax.op(load("add_n").add_n), callbox.jax.op(load("rms_norm").rms_norm)
    program = bundled(
        lambda x: norm(add_n(x, n=4.0), jax.numpy.ones(3), eps=0.0), jax.ShapeDtypeStruct((3,), np.float32)
    )
    path = tmp_path / "bundle"
    path.write_bytes(program.serialize())
    printed = python(RUN_BUNDLE, str(path), CALLBOX_GUESTS="/nowhere")
    values, names = printed.split("] [", 1)
    x = np.arange(3) + 4.0
    np.testing.assert_allclose(eval(values + "]"), x / np.sqrt((x * x).mean()), rtol=1e-5)
    assert "add_n" in names
    assert "rms_norm" in names


def test_a_program_without_a_bundle_is_jaxs(load):
    from jax import export

    add_n = callbox.jax.op(load("add_n").add_n)
    made = callbox.jax.export(jax.jit(lambda x: add_n(x, n=4.0)))(jax.ShapeDtypeStruct((3,), np.float32))
    assert [module.digest for module in made.modules] == [load("add_n").digest]
    data = made.serialize()
    for program in (export.deserialize(bytearray(data)), callbox.jax.deserialize(data)):
        np.testing.assert_array_equal(program.call(np.zeros(3, np.float32)), np.full(3, 4.0))


def test_a_bundle_is_differentiated(load):
    module = load("rms_norm")
    norm = callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad, defaults={"eps": 0.5})
    x, weight = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    program = bundled(norm, x, weight)
    again = callbox.jax.deserialize(program.serialize(vjp_order=1))
    found = jax.grad(lambda x: again.call(x, weight).sum())(x)
    np.testing.assert_allclose(found, jax.grad(lambda x: norm(x, weight).sum())(x), atol=1e-5)


def test_a_bundle_keeps_its_policy(guests):
    strict = callbox.Host(policy={"limits": {"deadline_ms": 3210}})
    add_n = callbox.jax.op(strict.load(guests / "add_n.wasm").add_n)
    data = bundled(lambda x: add_n(x, n=4.0), np.zeros(3, np.float32)).serialize()
    with pytest.raises(callbox.CallError, match="FAILED_PRECONDITION: .* another policy, which differs in limits"):
        callbox.jax.deserialize(data)
    same = callbox.Host(policy=strict.policy)
    np.testing.assert_array_equal(callbox.jax.deserialize(data, host=same).call(np.zeros(3, np.float32)), np.full(3, 4))


def test_bundles_that_were_changed(load):
    add_n = callbox.jax.op(load("add_n").add_n)
    data = bundled(lambda x: add_n(x, n=4.0), np.zeros(3, np.float32)).serialize()
    digest = load("add_n").key.encode()
    wrong = {
        "shorter": (data[:-1], ValueError, "expected a bundle of"),
        "longer": (data + b"\0", ValueError, "expected a bundle of"),
        "no header": (data[:17], ValueError, "expected the header|expected a bundle"),
        "a long header": (data[:17] + b"\xff" * 8 + data[25:], ValueError, "with a header of"),
        "another key": (data.replace(digest, b"0" * 64, 1), callbox.CallError, "FAILED_PRECONDITION: .*was changed"),
        "no JSON": (data.replace(b'{"modules"', b'["modules"', 1), ValueError, "expected the header of a bundle"),
        "a negative length": (data.replace(b'"length": ', b'"length":-', 1), ValueError, "a length is -"),
        "a text as length": (data.replace(b'"program": ', b'"program":"', 1), ValueError, "expected the header"),
        "a changed module": (data[:-1] + bytes([data[-1] ^ 1]), callbox.CallError, "FAILED_PRECONDITION|INVALID"),
    }
    for changed, error, match in wrong.values():
        with pytest.raises(error, match=match):
            callbox.jax.deserialize(changed)
    module = b'"name": "add_n.wasm"'
    assert data.count(module) == 1
    texts = {
        "a name": (
            data.replace(b'"add_n.wasm"', b'"\\u001b[2J\\n"', 1).replace(digest, b"0" * 64, 1),
            "of the key 0000",
        ),
        "half a character": (data.replace(b'"add_n.wasm"', b'"\\ud800"', 1), "expected the header of a bundle"),
        "a key of a policy": (data.replace(b'"traps"', b'"\\u001b["', 1), r"differs in '\\x1b\[', traps: pass"),
        "a length": (data.replace(b'"program": ', b'"program":"' + b"9" * 999 + b'", "x": ', 1), "a length is '9{79}"),
    }
    for changed, match in texts.values():
        header = int.from_bytes(data[17:25], "little") + len(changed) - len(data)
        changed = changed[:17] + header.to_bytes(8, "little") + changed[25:]
        with pytest.raises((ValueError, callbox.CallError), match=match) as caught:
            callbox.jax.deserialize(changed)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 300
        assert (getattr(caught.value, "module", None) or "").isprintable()
    for end in range(0, len(data), 997):
        with pytest.raises(Exception):  # noqa: B017, PT011  whichever, but no crash
            callbox.jax.deserialize(data[:end])


def test_a_closed_module_is_not_left_out_of_a_bundle(guests):
    # No other test loads the file.
    module = callbox.Host(policy={"limits": {"deadline_ms": 4321}}).load(guests / "add_n.wasm")
    program = jax.jit(lambda x: callbox.jax.op(module.add_n)(x, n=4.0))
    x = np.zeros(3, np.float32)
    exported = callbox.jax.export(program, bundle=True)(x)
    assert exported.modules == (module,)
    module.close()
    with pytest.raises(
        callbox.CallError, match=f"FAILED_PRECONDITION: .*{module.key}.* is closed and cannot be bundled"
    ):
        callbox.jax.export(program, bundle=True)(x)
    # The bundle that was made before has the file.
    again = callbox.jax.deserialize(exported.serialize(), host=callbox.Host(policy=module.policy))
    np.testing.assert_array_equal(again.call(x), np.full(3, 4))
