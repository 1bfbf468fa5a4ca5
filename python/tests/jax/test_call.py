"""One call: values, shapes, options, and errors before any guest code runs."""

from __future__ import annotations

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax
from callbox.jax import _eager


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 2**20 + 4])
def test_eager_jitted_and_direct_calls_agree_with_numpy_to_the_bit(load, length):
    target = load("broadcast_add").broadcast_add
    b = np.random.default_rng(0).standard_normal(128, np.float32)
    c = np.random.default_rng(1).standard_normal(length, np.float32)
    expected = np.resize(b, length) + c
    np.testing.assert_array_equal(callbox.jax.call(target, b, c), expected)
    np.testing.assert_array_equal(jax.jit(lambda b, c: callbox.jax.call(target, b, c))(b, c), expected)
    np.testing.assert_array_equal(target(b, c), expected)


def test_a_size_that_the_kernel_refuses_is_an_error_and_not_values(load, failure):
    target = load("broadcast_add").broadcast_add
    empty, c = np.zeros(0, np.float32), np.zeros(2, np.float32)
    message = failure(lambda: callbox.jax.call(target, empty, c))
    assert "INVALID_ARGUMENT" in message
    assert "expected at least one element to repeat, found none" in message


def test_values_are_operands_too(load):
    target = load("add_n").add_n
    assert float(callbox.jax.call(target, 1.5, n=2)) == 3.5
    np.testing.assert_array_equal(callbox.jax.call(target, np.ones((2, 3), np.float32), n=1), np.full((2, 3), 2))


def test_denormals_are_kept_on_threads_of_xla_that_flush_them(load):
    target = load("add_n").add_n
    x = np.array([1e-40, -1e-42, 1.0], np.float32)
    jitted = jax.jit(lambda x: callbox.jax.call(target, x, n=0))
    for result in (target(x, n=0), callbox.jax.call(target, x, n=0), jitted(x)):
        np.testing.assert_array_equal(np.asarray(result).view(np.uint32), x.view(np.uint32))


def test_a_number_of_a_call_in_a_callback_is_not_flushed(load):
    """What Python's number becomes is kept for later calls."""
    target = load("add_n").add_n
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    x = np.zeros(2, np.float32)
    for n in (1e-41, 1e-42):
        called_back = jax.jit(lambda x, n=n: jax.pure_callback(lambda x: target(np.asarray(x), n=n), shape, x * 1))
        for result in (called_back(x), target(x, n=n)):
            assert np.asarray(result).view(np.uint32).tolist() == 2 * [int(np.float32(n).view(np.uint32))]


def test_a_number_that_a_thread_flushes_has_a_key_of_its_own():
    keys = []

    def make_keys(x):
        keys[:] = [_eager.frozen({"n": n}) for n in (1e-310, 0.0)]
        keys.append(keys[0] == keys[1])
        return np.asarray(x)

    x = np.zeros(2, np.float32)
    called_back = jax.jit(lambda x: jax.pure_callback(make_keys, jax.ShapeDtypeStruct((2,), np.float32), x * 1))
    called_back(x).block_until_ready()
    assert keys == [_eager.frozen({"n": 1e-310}), _eager.frozen({"n": 0.0}), False]


def test_results_are_in_the_container_that_was_asked_for(load):
    target = load("typed_ffi").copy_remaining
    x, y = jnp.ones(3), jnp.arange(2)
    given = (f32(3), jax.ShapeDtypeStruct((2,), np.int32))
    as_tuple = callbox.jax.call(target, x, y, result_shape_dtypes=given)
    as_list = callbox.jax.call(target, x, y, result_shape_dtypes=list(given))
    alone = callbox.jax.call(target, x, y, result_shape_dtypes=x)
    one = callbox.jax.call(target, x, y, result_shape_dtypes=[x])
    nothing = callbox.jax.call(target, x, y, result_shape_dtypes=())
    assert isinstance(as_tuple, tuple)
    assert isinstance(as_list, list)
    assert isinstance(alone, jax.Array)
    assert isinstance(one, list)
    assert nothing == ()
    for results in (as_tuple, as_list):
        np.testing.assert_array_equal(results[0], x)
        np.testing.assert_array_equal(results[1], y)


def test_shapes_are_inferred_from_metadata(load):
    y = callbox.jax.call(load("rms_norm").rms_norm, jnp.ones((2, 3, 4)), jnp.ones(4), eps=0.0)
    assert (y.shape, y.dtype) == ((2, 3, 4), np.float32)
    dx, dweight = callbox.jax.call(
        load("rms_norm").rms_norm_grad, jnp.ones((2, 4)), jnp.ones(4), jnp.ones((2, 4)), eps=0.0
    )
    assert (dx.shape, dweight.shape) == ((2, 4), (4,))


def test_shapes_that_metadata_do_not_say_have_to_be_given(load):
    with pytest.raises(ValueError, match="result"):
        callbox.jax.call(load("typed_ffi").describe, jnp.ones(3))


@pytest.mark.parametrize(
    ("given", "position", "found"),
    [
        (1.0, 0, "1.0"),
        (np.float32, 0, "<class 'numpy.float32'>"),
        ("float32", 0, "'float32'"),
        ({"a": 2.5}, 0, "2.5"),
        ((f32(), ()), 1, "()"),
        ([[f32()], None], 1, "None"),
    ],
)
def test_a_result_needs_a_shape_and_a_dtype(load, given, position, found):
    wrong = f"target 'add_n': expected result {position} to be something with a shape and a dtype, "
    message = re.escape(wrong) + ".*, found " + re.escape(found)
    with pytest.raises(TypeError, match=message):
        callbox.jax.call(load("add_n").add_n, 1.0, n=1, result_shape_dtypes=given)
    call = callbox.jax.FFICall(f"wrong result {found}")
    call.register_function(load("jax_add_n").add_n)
    if not isinstance(given, float):  # A number stands for a result of rank 0.
        with pytest.raises(TypeError, match=message):
            call(1.0, return_shape_dtype=given)


def test_pairs_are_types_of_results_as_in_direct_calls(load):
    copy = load("typed_ffi").copy_remaining
    x, i = jnp.ones(2), jnp.int32(3)
    for dtype in ("float32", np.float32, np.dtype("f4"), jnp.float32):
        alone = callbox.jax.call(copy, x, i, result_shape_dtypes=(dtype, (2,)))
        one, number = callbox.jax.call(copy, x, i, result_shape_dtypes=((dtype, [2]), ("int32", ())))
        for y in (alone, one):
            np.testing.assert_array_equal(y, x)
        assert int(number) == 3
    info = np.float32(4).tobytes()
    call = callbox.jax.FFICall("pairs")
    call.register_function(load("jax_add_n").add_n)
    assert float(call(1.0, static_info=info, return_shape_dtype=("float32", ()))) == 5.0


def test_64_bit_results_need_no_flag(load):
    assert not jax.config.jax_enable_x64
    described = callbox.jax.call(
        load("typed_ffi").describe, jnp.ones((2, 3)), result_shape_dtypes=jax.ShapeDtypeStruct((7,), np.int64)
    )
    assert described.dtype == np.int64
    # F32 is 11, followed by the rank, dimensions, layout and size in bytes.
    assert described.tolist() == [11, 2, 2, 3, 1, 0, 24]


@pytest.mark.parametrize(
    "dtype",
    "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 float8_e4m3fn float8_e5m2".split(),
)
def test_arrays_of_every_dtype_arrive_as_they_are(load, dtype):
    x = jnp.arange(6).reshape(2, 3).astype(dtype)
    y = jax.jit(lambda x: callbox.jax.call(load("typed_ffi").copy_any, x, result_shape_dtypes=x))(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_halves_are_computed_with(load):
    for dtype in (np.float16, jnp.bfloat16):
        x = jnp.linspace(-2, 2, 9, dtype=dtype)
        y = callbox.jax.call(load("typed_ffi").scale, x, factor=0.5, result_shape_dtypes=x)
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x) * np.asarray(0.5, dtype))


@pytest.mark.parametrize("permutation", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_transposed_operands_arrive_in_row_major_order(load, permutation):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    @jax.jit
    def program(x):
        return callbox.jax.call(load("add_n").add_n, jnp.transpose(x, permutation), n=1)

    np.testing.assert_array_equal(program(x), np.transpose(x, permutation) + 1)


def test_array_attributes(load):
    """JAX's example `array_attr`: a NumPy array is an attribute."""
    target = load("typed_ffi").array_shape

    def array_attr(number: int) -> jax.Array:
        array = np.arange(number, dtype=np.int32)
        length = 2 + 2 * (number > 0)
        return callbox.jax.call(target, array=array, result_shape_dtypes=jax.ShapeDtypeStruct((length,), np.int64))

    assert array_attr(5).tolist() == [1, 5, 0, 4]
    assert array_attr(3).tolist() == [1, 3, 0, 2]
    assert jax.jit(array_attr, static_argnums=0)(5).tolist() == [1, 5, 0, 4]
    with jax.disable_jit():
        assert array_attr(4).tolist() == [1, 4, 0, 3]


def test_a_program_is_traced_once_for_the_same_attributes(load):
    traced = []

    @jax.jit
    def program(x):
        traced.append(x)
        return callbox.jax.call(
            load("typed_ffi").arrays, result_shape_dtypes=jax.ShapeDtypeStruct((11,), np.float64), **arrays()
        )

    assert program(1.0).tolist() == program(2.0).tolist() == [2.0] + [3.0] * 10
    assert len(traced) == 1


def arrays() -> dict[str, np.ndarray]:
    """An array attribute of every type that the target accepts, by the type's name in HLO."""
    integers = {
        f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("s", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)
    }
    dtypes = integers | {"f32": "float32", "f64": "float64"}
    return {"pred": np.array([True, False, True])} | {name: np.array([1, 2], dtype) for name, dtype in dtypes.items()}


def test_all_attributes_as_a_dictionary(load):
    """JAX's example `dictionary_attr`."""
    target = load("typed_ffi").dictionary_attr
    results = (jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((), np.int32))

    def dictionary_attr(**attributes):
        secret, count = callbox.jax.call(target, result_shape_dtypes=results, **attributes)
        return int(secret), int(count)

    assert dictionary_attr(secret=5) == (5, 1)
    assert dictionary_attr(secret=3, a_string="hello") == (3, 2)


def test_attributes_that_the_kernel_looks_for_itself_fail_in_the_call(load, failure):
    results = (jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((), np.int32))
    target = load("typed_ffi").dictionary_attr
    assert "INVALID_ARGUMENT" in failure(lambda: callbox.jax.call(target, result_shape_dtypes=results))
    assert "INVALID_ARGUMENT" in failure(
        lambda: callbox.jax.call(target, result_shape_dtypes=results, secret="invalid")
    )


def test_dictionaries_nest(load):
    y = callbox.jax.call(
        load("typed_ffi").depth,
        nested={"deeper": {"deeper": {"leaf": np.int32(7)}}},
        result_shape_dtypes=jax.ShapeDtypeStruct((2,), np.int32),
    )
    assert y.tolist() == [3, 7]


def test_texts_arrive_as_they_are(load):
    text = 'a "quoted" \\ text,\n with {n = 4 : i32}, 漢字 and \x00'
    size = len(text.encode())
    y = callbox.jax.call(load("typed_ffi").text, text=text, result_shape_dtypes=jax.ShapeDtypeStruct((size,), np.uint8))
    assert bytes(np.asarray(y)) == text.encode()


@pytest.mark.parametrize("text", [np.bytes_(b"a\0b\0"), np.bytes_(b""), np.str_("a\0"), np.str_("\0")])
def test_strings_of_numpy_arrive_as_they_are(load, text):
    expected = str.encode(text) if isinstance(text, str) else bytes.__getitem__(text, slice(None))
    shape = jax.ShapeDtypeStruct((len(text),), np.uint8)

    def call():
        return callbox.jax.call(load("typed_ffi").text, text=text, result_shape_dtypes=shape)

    for y in (call(), jax.jit(call)()):
        assert bytes(np.asarray(y)) == expected


def test_attributes_of_the_functions_own_names_go_into_a_dictionary(load):
    y = callbox.jax.call(
        load("typed_ffi").range,
        attributes={"range": {"lo": 1, "hi": 5}},
        result_shape_dtypes=jax.ShapeDtypeStruct((2,), np.int64),
    )
    assert y.tolist() == [1, 5]
    with pytest.raises(TypeError, match="expected each attribute once, found 'n' twice"):
        callbox.jax.call(load("add_n").add_n, 1.0, attributes={"n": 1.0}, n=2.0)


def test_mappings_that_share_others_are_read_once_and_have_a_limit(load):
    target = load("typed_ffi").dictionary_attr
    results = (("int32", ()), ("int32", ()))
    shared = {"secret": 7}
    for _ in range(40):
        shared = {"a": shared, "b": shared}
    with pytest.raises(ValueError, match="expected at most 262144 attributes.*, found more"):
        callbox.jax.call(target, result_shape_dtypes=results, attributes={"x": shared})
    own = {}
    own["own"] = own
    with pytest.raises(ValueError, match="attribute 'x': expected dictionaries that nest at most 64 deep"):
        callbox.jax.call(target, result_shape_dtypes=results, attributes={"x": own})


def test_jax_arrays_that_are_known_are_attributes(load):
    assert float(callbox.jax.call(load("add_n").add_n, 1.0, n=jnp.float32(2))) == 3.0


def test_a_traced_attribute_is_an_error_that_says_why(load):
    program = jax.jit(lambda x, n: callbox.jax.call(load("add_n").add_n, x, n=n))
    with pytest.raises(
        TypeError, match=r"target 'add_n': expected a value for the attribute 'n' that is known .*static_argnames"
    ):
        program(1.0, 2.0)


def test_the_lowered_program_names_the_target(load):
    text = jax.jit(lambda x: callbox.jax.call(load("add_n").add_n, x, n=4)).lower(f32(3)).as_text()
    assert f"@{callbox.FFI_TARGET}(" in text
    assert 'target = "add_n"' in text
    assert f'module = "{load("add_n").key}"' in text


def test_profiles_show_the_target(load):
    compiled = jax.jit(lambda x: callbox.jax.call(load("add_n").add_n, x, n=4)).lower(f32(3)).compile().as_text()
    assert re.search(r'custom_call_target="callbox\.v1".*op_name="[^"]*/add_n/', compiled)


def test_a_side_effect_keeps_a_call_that_nobody_reads(load):
    target = load("faults").healthy

    def program(x, has_side_effect):
        callbox.jax.call(target, x, result_shape_dtypes=x, has_side_effect=has_side_effect)
        return x

    def calls(has_side_effect):
        lowered = jax.jit(program, static_argnums=1).lower(f32(4), has_side_effect)
        is_said = "has_side_effect = true" in lowered.as_text()
        return is_said, callbox.FFI_TARGET in lowered.compile().as_text()

    assert calls(True) == (True, True)
    assert calls(False) == (False, False)


def test_a_donated_operand_is_overwritten_in_place(load):
    target = load("add_n").add_n

    def program(x):
        return callbox.jax.call(target, x, n=1, input_output_aliases={0: 0})

    lowered = jax.jit(program, donate_argnums=0).lower(f32(1024))
    assert re.search(r"output_operand_aliases = \[.*operand_index = 0.*\]", lowered.as_text())
    x = jnp.arange(1024.0)
    before = x.unsafe_buffer_pointer()
    y = jax.jit(program, donate_argnums=0)(x)
    assert y.unsafe_buffer_pointer() == before
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.arange(1024.0) + 1)


def test_an_operand_with_an_alias_that_is_not_donated_stays(load):
    x = jnp.arange(8.0)
    y = jax.jit(lambda x: callbox.jax.call(load("add_n").add_n, x, n=1, input_output_aliases={0: 0}))(x)
    np.testing.assert_array_equal(y, np.arange(8.0) + 1)
    np.testing.assert_array_equal(x, np.arange(8.0))


@pytest.mark.parametrize(
    ("aliases", "result"),
    [({1: 0}, f32(5)), ({0: 1}, f32(5)), ({0: 0}, jax.ShapeDtypeStruct((5,), np.int32)), ({0: 0}, f32(5, 5))],
)
def test_aliases_have_to_fit(load, aliases, result):
    with pytest.raises(ValueError, match="alias|share memory"):
        callbox.jax.call(
            load("typed_ffi").copy_remaining, jnp.ones(5), result_shape_dtypes=result, input_output_aliases=aliases
        )


@pytest.mark.parametrize(
    ("aliases", "kind"),
    [([0], TypeError), ({"x": 0}, TypeError), ({0: 0.0}, TypeError), ({-1: 0}, ValueError), ({0: -1}, ValueError)],
)
def test_aliases_are_a_mapping_of_numbers(load, aliases, kind):
    message = (
        "expected input_output_aliases to be a mapping of operands' numbers to results' numbers, found "
        + re.escape(repr(aliases))
    )
    with pytest.raises(kind, match=message):
        callbox.jax.call(load("add_n").add_n, 1.0, n=1, input_output_aliases=aliases)
    with pytest.raises(kind, match=message):
        callbox.jax.op(load("add_n").add_n, input_output_aliases=aliases)


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
def test_methods_that_hand_over_the_batch_are_refused(load, method):
    with pytest.raises(ValueError, match="hands the whole batch to the target"):
        callbox.jax.call(load("add_n").add_n, 1.0, n=1, vmap_method=method)


@pytest.mark.parametrize("options", [{"vmap_method": "legacy_vectorized"}, {"on_error": "ignore"}, {"deadline": -1.0}])
def test_options_that_are_not_there_are_refused(load, options):
    with pytest.raises(ValueError, match=r"expected .* found"):
        callbox.jax.call(load("add_n").add_n, 1.0, n=1, **options)


def test_a_deadline_ends_a_call_in_time_and_the_next_is_right(load, failure):
    """Acceptance check 4."""
    options = {"result_shape_dtypes": lambda x: x, "deadline": 0.2}
    bad, good = (jax.jit(callbox.jax.op(load("faults")[name], **options)) for name in ("infinite_loop", "healthy"))
    x = jnp.arange(4.0)
    np.testing.assert_array_equal(good(x), x)
    for _ in range(2):
        began = time.monotonic()
        message = 'DEADLINE_EXCEEDED: faults.wasm: target "infinite_loop" ran past its deadline of 200ms'
        assert message in failure(bad, x)
        assert 0.2 <= time.monotonic() - began < 1.5
        np.testing.assert_array_equal(good(x), x)


def test_a_calls_deadline_and_the_policys_are_for_a_batch(guests):
    host = callbox.Host(policy={"limits": {"deadline_ms": 150}})
    loop = host.load(guests / "faults.wasm").infinite_loop

    def seconds(**options):
        call = lambda x: callbox.jax.call(loop, x, result_shape_dtypes=x, on_error="status", **options)  # noqa: E731
        program = jax.jit(jax.vmap(call)).lower(jnp.ones((8, 2))).compile()
        began = time.monotonic()
        _, status = jax.block_until_ready(program(jnp.ones((8, 2))))
        assert [callbox.error_name(int(code)) for code in status] == ["DEADLINE_EXCEEDED"] * 8
        return time.monotonic() - began

    assert 0.15 <= seconds() < 1.0
    assert 0.3 <= seconds(deadline=0.3) < 1.1


def test_a_batch_of_many_scalars_ends_with_the_policys_deadline(guests, failure):
    loop = callbox.Host(policy={"limits": {"deadline_ms": 100}}).load(guests / "faults.wasm").infinite_loop
    program = jax.jit(jax.vmap(callbox.jax.op(loop, result_shape_dtypes=lambda x: x)))
    began = time.monotonic()
    assert "DEADLINE_EXCEEDED" in failure(program, jnp.ones(100_000))
    assert time.monotonic() - began < 5


def test_a_deadline_holds_for_the_stage_instantiate(host, staged, failure):
    f = host.load(staged(instantiate="runs on")).f
    program = jax.jit(callbox.jax.op(f, result_shape_dtypes=lambda x: x, deadline=0.2))
    for number in (1, 2):
        began = time.monotonic()
        assert "DEADLINE_EXCEEDED" in failure(program, jnp.ones(4))
        assert time.monotonic() - began < 1.5
        assert host.stats()["failures"] == {"DEADLINE_EXCEEDED": number}


def test_after_the_deadline_of_a_batch_healthy_elements_fail_as_well(load):
    healthy = callbox.jax.op(load("faults").healthy, result_shape_dtypes=lambda x: x, on_error="status", deadline=0.001)
    y, status = jax.jit(jax.vmap(healthy))(jnp.ones((100_000, 1)))
    assert callbox.error_name(int(status[-1])) == "DEADLINE_EXCEEDED"
    np.testing.assert_array_equal(np.isnan(y[:, 0]), status != 0)


@pytest.mark.parametrize(
    ("operand", "found"),
    [
        (None, "None"),
        ("a", "a str"),
        (b"a", "a bytes"),
        ([1.0, 2.0], "a list: pass each array as an operand of its own"),
        (("a",), "a tuple: pass each array as an operand of its own"),
        ({"x": 1.0}, "a dict"),
        ([jnp.ones(3), None], "a list: pass each array as an operand of its own"),
        (f32(3), "ShapeDtypeStruct"),
        (object(), "object"),
        (np.array([object()]), "ndarray"),
        (np.zeros(3, jax.dtypes.float0), "dtype"),
    ],
)
def test_what_is_no_array_is_no_operand(load, operand, found):
    for call in (callbox.jax.op(load("add_n").add_n), lambda x, n: callbox.jax.call(load("add_n").add_n, x, n=n)):
        with pytest.raises(TypeError, match=rf"target 'add_n': .* as operand 0 \(x\), found {found}"):
            call(operand, n=1.0)


def test_keys_and_sparse_arrays_are_no_operands(load):
    sparse = pytest.importorskip("jax.experimental.sparse")
    copy = load("typed_ffi").copy_any
    with pytest.raises(TypeError, match=r"target 'copy_any': .* as operand 0 \(x\), found dtype key<"):
        callbox.jax.call(copy, jax.random.key(0), result_shape_dtypes=f32())
    with pytest.raises(TypeError, match=r"target 'copy_any': .* as operand 0 \(x\), found BCOO"):
        callbox.jax.call(copy, sparse.BCOO.fromdense(jnp.ones(3)), result_shape_dtypes=f32(3))


def test_numbers_take_the_declared_dtype_of_their_kind(python):
    """This includes 64-bit mode, where a Python number is a float64 by default."""
    program = """
    import os
    import jax, jax.numpy as jnp, numpy as np, callbox.jax
    jax.config.update("jax_enable_x64", True)
    host, guests = callbox.Host(), os.environ["CALLBOX_GUESTS"]
    add_n = host.load(f"{guests}/add_n.wasm").add_n
    softmax = host.load(f"{guests}/softmax.wasm").softmax
    op = callbox.jax.op(add_n, vjp=lambda operands, result, cotangent, n: 3 * cotangent)
    for call in (op, jax.jit(op, static_argnames="n"), lambda x, n: callbox.jax.call(add_n, x, n=n)):
        y = call(1.0, n=1.0)
        assert (y.dtype, float(y)) == (np.float32, 2.0), y
    assert float(jax.grad(lambda x: op(x, n=1.0))(1.0)) == 3.0
    # A value with its own dtype keeps it, and kinds of numbers are not converted.
    for operand in (np.float64(1), np.ones(2), jnp.ones(2), 1, True, 1j):
        try:
            raise AssertionError(op(operand, n=1.0))
        except TypeError as error:
            assert "expected dtype float32" in str(error), error
    assert callbox.jax.call(softmax, 2.0 * jnp.ones(3)).dtype == np.float64
    print("right")
    """
    assert python(program) == "right\n"


# Arguments that do not match the declarations, none of which reaches the guest.
WRONG = {
    "not_a_target": (
        TypeError,
        "expected target to be a target of a module, .* found builtin",
        lambda m: callbox.jax.call(len, 1.0),
    ),
    "a_dtype": (TypeError, "float32.*int32", lambda m: callbox.jax.call(m.add_n, jnp.arange(3), n=1)),
    "more_operands": (TypeError, "expected 1 operands.* found 2", lambda m: callbox.jax.call(m.add_n, 1.0, 2.0, n=1)),
    "no_operands": (TypeError, "expected 1 operands.* found 0", lambda m: callbox.jax.call(m.add_n, n=1)),
    "a_missing_attribute": (
        TypeError,
        'expected the attributes "n", found no "n"',
        lambda m: callbox.jax.call(m.add_n, 1.0),
    ),
    "an_extra_attribute": (TypeError, 'found another "m"', lambda m: callbox.jax.call(m.add_n, 1.0, n=1, m=2)),
    "an_attributes_type": (
        TypeError,
        "expected a scalar of float32, found a string",
        lambda m: callbox.jax.call(m.add_n, 1.0, n="one"),
    ),
    "an_attribute_of_no_type": (TypeError, "found object", lambda m: callbox.jax.call(m.add_n, 1.0, n=object())),
    "results_of_other_dimensions": (
        ValueError,
        r"result 0 \(y\): expected shape \(3,\) for these operands, found shape \(4,\)",
        lambda m: callbox.jax.call(m.add_n, jnp.ones(3), n=1, result_shape_dtypes=f32(4)),
    ),
    "results_of_another_dtype": (
        TypeError,
        "float32.*int32",
        lambda m: callbox.jax.call(m.add_n, jnp.ones(3), n=1, result_shape_dtypes=jax.ShapeDtypeStruct((3,), np.int32)),
    ),
    "more_results": (
        TypeError,
        "expected 1 results.* found 2",
        lambda m: callbox.jax.call(m.add_n, jnp.ones(3), n=1, result_shape_dtypes=(f32(3), f32(3))),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_the_metadata_is_an_error_while_tracing(guests, name):
    kind, message, call = WRONG[name]
    host = callbox.Host()
    module = host.load(guests / "add_n.wasm")
    with pytest.raises(kind, match=message):
        jax.jit(lambda: call(module)).lower()
    assert host.stats()["calls"] == 0


def test_a_wrong_rank_is_an_error_while_tracing(load):
    with pytest.raises(ValueError, match="rank 1.*"):
        callbox.jax.call(load("broadcast_add").broadcast_add, jnp.ones((2, 2)), jnp.ones(4))


def test_dimensions_that_disagree_are_an_error_while_tracing(load):
    with pytest.raises(ValueError, match="Wrong buffer dimensions: expected weight"):
        jax.jit(lambda: callbox.jax.call(load("rms_norm").rms_norm, jnp.ones((2, 4)), jnp.ones(3), eps=0.0)).lower()
