"""Several modules in one process, and the modules that programs keep."""

from __future__ import annotations

import gc
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox
import callbox.jax


def test_two_modules_with_a_target_of_one_name(load):
    typed, proposed = load("add_n").add_n, load("jax_add_n").add_n
    assert typed.name == proposed.name
    assert typed != proposed

    @jax.jit
    def program(x):
        a = callbox.jax.call(typed, x, n=1.0)
        b = callbox.jax.call(proposed, x, static_info=np.float32(10).tobytes(), result_shape_dtypes=x)
        return a, b

    assert [float(y) for y in program(jnp.float32(1))] == [2.0, 11.0]


def test_a_reload_changes_no_program_that_is_there(guests, tmp_path):
    path = tmp_path / "kernels.wasm"
    shutil.copy(guests / "add_n.wasm", path)
    host = callbox.Host()
    before = host.load(path)
    program = jax.jit(lambda x: callbox.jax.call(before.add_n, x, n=1.0))
    program(jnp.ones(3))
    shutil.copy(guests / "jax_add_n.wasm", path)
    after = host.load(path)
    assert (before.digest == after.digest, before.add_n == after.add_n) == (False, False)
    np.testing.assert_array_equal(program(jnp.ones(3)), np.full(3, 2))
    # The program is traced again for another shape.
    np.testing.assert_array_equal(program(jnp.ones(5)), np.full(5, 2))


def test_a_program_keeps_its_module(guests):
    def make():
        module = callbox.Host().load(guests / "add_n.wasm")
        compiled = (
            jax.jit(lambda x, target=module.add_n: callbox.jax.call(target, x, n=1.0)).lower(jnp.ones(3)).compile()
        )
        return compiled

    program = make()
    gc.collect()
    np.testing.assert_array_equal(program(jnp.ones(3)), np.full(3, 2))


def test_hosts_of_other_policies_have_other_programs(guests, failure):
    patient = callbox.Host(policy={"limits": {"deadline_ms": 400}}).load(guests / "faults.wasm")
    hasty = callbox.Host(policy={"limits": {"deadline_ms": 20}}).load(guests / "faults.wasm")
    assert (patient.digest == hasty.digest, patient.key == hasty.key) == (True, False)
    for module, limit in ((patient, "400ms"), (hasty, "20ms")):
        program = jax.jit(lambda x, target=module.infinite_loop: callbox.jax.call(target, x, result_shape_dtypes=x))
        assert limit in failure(program, jnp.ones(2))


COUNTS = jax.ShapeDtypeStruct((7,), np.int32)


def test_a_fresh_instance_knows_nothing_of_the_call_before(guests):
    for isolation, executed in (("fresh", [1, 1, 1]), ("executable", [1, 2, 3])):
        module = callbox.Host(isolation=isolation).load(guests / "typed_ffi.wasm")
        program = jax.jit(
            lambda target=module.counts: callbox.jax.call(target, result_shape_dtypes=COUNTS, has_side_effect=True)
        )
        assert [int(program()[3]) for _ in range(3)] == executed


def test_memory_that_a_fresh_instance_never_wrote_is_zero(guests):
    module = callbox.Host(isolation="fresh").load(guests / "typed_ffi.wasm")
    secret = jnp.full(1 << 16, 7.0)
    hide = jax.jit(lambda x: callbox.jax.call(module.scratch, x, kib=np.uint32(64), fails=False, result_shape_dtypes=x))
    result = jax.ShapeDtypeStruct((), np.int32)
    look = jax.jit(
        lambda: callbox.jax.call(
            module.scratch_alignment, size=np.uint32(1 << 20), alignment=np.uint32(64), result_shape_dtypes=result
        )
    )
    for _ in range(3):
        np.testing.assert_array_equal(hide(secret), secret)
        assert int(look()) == 1


def test_call_sites_of_a_program_that_differ_in_attributes_share_an_instance(counter):
    """A program of more than 256 call sites made an instance for each call."""
    count = callbox.Host().load(counter).count
    result = jax.ShapeDtypeStruct((), np.int32)

    @jax.jit
    def program(x):
        results = []
        for k in range(300):
            x = callbox.jax.call(count, x, k=k, result_shape_dtypes=result, has_side_effect=True)
            results.append(x)
        return jnp.stack(results)

    assert list(map(int, program(jnp.int32(0)))) == [1, *range(2, 301)]
    assert list(map(int, program(jnp.int32(0)))) == list(range(301, 601))


def test_many_threads_with_good_and_failing_calls_are_counted_exactly(guests):
    """Acceptance check 8: 8 threads make 300 calls each, of which four of five trap."""
    # A policy that no other host has, because programs find modules by file and policy.
    host = callbox.Host(policy={"limits": {"deadline_ms": 9_002}})
    faults = host.load(guests / "faults.wasm")
    names = ["healthy", "unreachable", "read_out_of_bounds", "divide_by_zero", "infinite_recursion"]
    programs = {
        name: jax.jit(
            lambda x, target=faults[name]: callbox.jax.call(target, x, result_shape_dtypes=x, on_error="status")
        )
        for name in names
    }
    x = jnp.arange(4.0)
    for program in programs.values():
        program(x)
    before = host.stats()
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(300):
            name = names[(i + number) % 5]
            operand = np.full(4, i + number, np.float32)
            y, status = programs[name](operand)
            is_right = np.array_equal(y, operand) if name == "healthy" else bool(np.isnan(y).all())
            if not is_right or (int(status) == 0) != (name == "healthy"):
                wrong.append(f"{name}: {y} {status}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    after = host.stats()
    assert after["calls"] - before["calls"] == 2400
    counted = {code: count - before["failures"].get(code, 0) for code, count in after["failures"].items()}
    assert counted == {"ABORTED": 960, "OUT_OF_RANGE": 480, "RESOURCE_EXHAUSTED": 480}


@pytest.mark.parametrize("traps", ["explicit", "signals"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("unreachable", "ABORTED"),
        ("divide_by_zero", "ABORTED"),
        ("index_out_of_bounds", "ABORTED"),
        ("read_out_of_bounds", "OUT_OF_RANGE"),
        ("write_out_of_bounds", "OUT_OF_RANGE"),
        ("infinite_recursion", "RESOURCE_EXHAUSTED"),
        ("grow_memory", "RESOURCE_EXHAUSTED"),
        ("infinite_loop", "DEADLINE_EXCEEDED"),
        ("wrong_status_code", "INTERNAL"),
    ],
)
def test_each_fault_is_its_code_with_the_targets_name_and_the_next_call_is_right(guests, failure, traps, fault, code):
    module = callbox.Host(traps=traps, policy={"limits": {"deadline_ms": 100, "memory_bytes": 4 << 20}}).load(
        guests / "faults.wasm"
    )
    bad, good = (
        jax.jit(lambda x, target=module[name]: callbox.jax.call(target, x, result_shape_dtypes=x))
        for name in (fault, "healthy")
    )
    x = jnp.arange(4.0)
    for _ in range(2):
        message = failure(bad, x)
        assert code in message
        assert f'"{fault}"' in message
        np.testing.assert_array_equal(good(x), x)
