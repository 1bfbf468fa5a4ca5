"""Programs of a person who attacks the package, through its Python side and with modules."""

from __future__ import annotations

import gc
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import callbox

X = np.arange(4, dtype=np.float32)

#: The exceptions with which bad input is refused.
REFUSED = (callbox.CallError, TypeError, ValueError, OverflowError, BufferError)


@pytest.fixture(scope="module")
def module(guests) -> callbox.Module:
    return callbox.Host().load(guests / "add_n.wasm")


@pytest.fixture(scope="module")
def typed(guests) -> callbox.Module:
    return callbox.Host().load(guests / "typed_ffi.wasm")


def is_healthy(module) -> bool:
    return module.add_n(X, n=1.0).tolist() == [1.0, 2.0, 3.0, 4.0]


ON_A_SMALL_STACK = """
import sys, threading, callbox

def load():
    try:
        if sys.argv[1].endswith("json"):
            callbox.Host().load(sys.argv[2], native=sys.argv[1])
        else:
            callbox.load(sys.argv[1])
    except callbox.CallError as error:
        print(error)
    else:
        print("loaded")

callbox.Host()
threading.stack_size(32 << 10)
thread = threading.Thread(target=load)
thread.start()
thread.join()
"""


def custom_section(name: bytes, content: bytes) -> bytes:
    content = bytes([len(name)]) + name + content
    return bytes([0, len(content) & 127 | 128, len(content) >> 7]) + content


@pytest.mark.parametrize(
    ("grid", "outcome"),
    [
        # The deepest that is allowed.
        ('"' + "(" * 31 + "1" + ")" * 31 + '"', "loaded"),
        ("[" * 120 + "]" * 120, "INVALID_ARGUMENT"),
    ],
)
def test_deep_manifests_on_a_thread_with_a_small_stack(tmp_path, guests, grid, outcome):
    sources = Path(__file__).parents[3] / "guests/add_n"
    text = (sources / "callbox.json").read_text()
    path = tmp_path / "callbox.json"
    path.write_text(text.replace('"min(ceil_div(results[0].elements, 256), 65536)"', grid))
    shutil.copy(sources / "add_n.ptx", tmp_path)
    command = [sys.executable, "-c", ON_A_SMALL_STACK, path, guests / "add_n.wasm"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(outcome), ran.stdout


NESTED = """
import sys, threading
import numpy as np
import callbox

_, guest, depth, use, folder = sys.argv
f = callbox.Host().load(bytes.fromhex(guest)).f
x = np.ones(1, np.float32)
attribute = 1
for _ in range(int(depth)):
    attribute = {"a": attribute}

def call():
    try:
        if use == "call":
            f(x, a=attribute)
        elif use == "record":
            with callbox.record(folder) as recording:
                try:
                    f(x, a=attribute)
                finally:
                    print(len(recording.capsules), "recorded")
        else:
            f.xla_attributes([x], [x], {"a": attribute})
    except (callbox.CallError, ValueError) as error:
        print(error)
    else:
        print("done")

f(x, a=1)
threading.stack_size(32 << 10)
thread = threading.Thread(target=call)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    ("use", "depth", "outcome"),
    [
        # A guest needs more stack than such a thread has.
        ("call", 63, "RESOURCE_EXHAUSTED: the module was not called: expected a thread with"),
        ("record", 63, "1 recorded"),
        ("trace", 63, "done"),
        *((use, 70, "expected dictionaries that nest at most 64 deep") for use in ("call", "record", "trace")),
    ],
)
def test_deep_attributes_on_a_thread_with_a_small_stack(assemble, tmp_path, use, depth, outcome):
    result = {"element_types": ["f32"], "dimensions": ["1"]}
    guest = assemble({"f": b"\x41\x00"}, [{"name": "f", "results": [result]}])
    command = [sys.executable, "-c", NESTED, guest.hex(), str(depth), use, tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert outcome in ran.stdout, ran.stdout


def shared(depth):
    """2 ** depth dictionaries, made of `depth`."""
    attribute = {"a": 1}
    for _ in range(depth):
        attribute = {"a": attribute, "b": attribute}
    return attribute


def test_attributes_that_share_dictionaries_have_a_limit(assemble, host, tmp_path):
    result = {"element_types": ["f32"], "dimensions": ["1"]}
    f = host.load(assemble({"f": b"\x41\x00"}, [{"name": "f", "results": [result]}])).f
    f(X[:1], a=shared(10))
    refused = pytest.raises(ValueError, match="attribute .*: expected at most 262144 attributes.*, found more")
    for attribute in (shared(18), shared(40)):
        with refused:
            f(X[:1], a=attribute)
        with refused:
            f.xla_attributes([X[:1]], [X[:1]], {"a": attribute})
        with refused, callbox.record(tmp_path):
            f(X[:1], a=attribute)
    # All attributes count together.
    with refused:
        f(X[:1], **{f"a{i}": shared(12) for i in range(12)})
    # So do their bytes.
    large = "x" * (1 << 20)
    strings = {str(i): large for i in range(256)}
    with pytest.raises(ValueError, match="expected strings of at most 268435456 bytes in all attributes together"):
        f(X[:1], a=strings, b="y")
    array = np.broadcast_to(True, (1 << 26,))
    with pytest.raises(ValueError, match="expected arrays of at most 89478485 elements in all attributes together"):
        f.xla_attributes([X[:1]], [X[:1]], {"a": array, "b": array})


def test_deep_json_is_refused_on_a_thread_with_a_small_stack(tmp_path):
    deep = b'{"name":' + b"[" * 900
    weights = deep + b"]" * 900 + b"}"
    for name, contents, message in [
        (
            "k.wasm",
            b"\0asm\1\0\0\0" + custom_section(b"callbox.targets", deep),
            "section callbox.targets: expected lists and objects at most 16 deep",
        ),
        ("w.safetensors", len(weights).to_bytes(8, "little") + weights, "lists and objects do not end, or nest more"),
    ]:
        path = tmp_path / name
        path.write_bytes(contents)
        ran = subprocess.run([sys.executable, "-c", ON_A_SMALL_STACK, path], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, ""), name
        assert message in ran.stdout


def test_modules_with_flipped_bits(guests, module):
    original = (guests / "add_n.wasm").read_bytes()
    host = callbox.Host(policy={"limits": {"deadline_ms": 500}})
    flips = random.Random(17)
    for _ in range(60):
        mutated = bytearray(original)
        for _ in range(flips.randint(1, 4)):
            mutated[flips.randrange(len(mutated))] ^= 1 << flips.randrange(8)
        try:
            found = host.load(bytes(mutated))
            for name in found:
                found[name](X, attributes={"n": 1.0}, result_shape_dtypes=X)
        except REFUSED:
            pass
    assert is_healthy(module)


def test_modules_that_end_early(guests, host):
    original = (guests / "add_n.wasm").read_bytes()
    for end in range(0, len(original), 401):
        with pytest.raises(callbox.CallError) as caught:
            host.load(original[:end])
        assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("name", ["", "__class__", "__dict__", "n\0", "é" * 1000, "n" * 100_000, "\ud800", "\x1b[31m"])
def test_names_of_attributes(module, name):
    with pytest.raises((TypeError, ValueError, UnicodeEncodeError)) as caught:
        module.add_n(X, attributes={"n": 1.0, name: 1.0})
    assert "\x1b" not in str(caught.value)
    assert is_healthy(module)


def test_attributes_that_are_nested_deeply(typed, module):
    nested: dict = {}
    for _ in range(100_000):
        nested = {"a": nested}
    with pytest.raises((*REFUSED, RecursionError)):
        typed.depth(nested=nested, result_shape_dtypes=("int32", (2,)))
    # Freed without recursion, too.
    del nested
    assert is_healthy(module)


def test_many_attributes(module, assemble):
    """A time that grows with the square of their number would be minutes here."""
    declaration = {"name": "takes_all", "operands": [], "results": []}
    takes_all = callbox.Host().load(assemble({"takes_all": b"\x41\x00"}, [declaration])).takes_all
    many = {f"a{number}": number for number in range(300_000)}
    assert takes_all(**many) == takes_all(attributes=many) == ()
    with pytest.raises(TypeError, match='expected the attribute "a7" once, found it twice'):
        takes_all(a7=1, attributes=many)
    with pytest.raises(TypeError, match='expected the attributes "n", found another "a0"'):
        module.add_n(X, n=1.0, **many)


def test_attributes_that_contain_themselves(typed):
    loop: dict = {}
    loop["a"] = loop
    with pytest.raises((*REFUSED, RecursionError)):
        typed.depth(nested=loop, result_shape_dtypes=("int32", (2,)))
    ring: list = []
    ring.append(ring)
    with pytest.raises((*REFUSED, RecursionError)):
        typed.depth(nested={"a": ring}, result_shape_dtypes=("int32", (2,)))


class Evil:
    """An operand that does what it likes when it is converted."""

    def __init__(self, convert):
        self.convert = convert

    def __array__(self, dtype=None, copy=None):
        return self.convert()


def test_operands_that_misbehave_while_they_are_converted(module):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        module.add_n(Evil(fail), n=1.0)
    with pytest.raises((TypeError, ValueError)):
        module.add_n(Evil(lambda: "not an array"), n=1.0)
    with pytest.raises(TypeError):
        module.add_n(Evil(lambda: np.array([object()])), n=1.0)
    assert is_healthy(module)


def test_an_operand_that_calls_its_target_while_it_is_converted(module):
    def again(depth):
        return X if depth == 0 else module.add_n(Evil(lambda: again(depth - 1)), n=1.0)

    np.testing.assert_array_equal(module.add_n(Evil(lambda: again(20)), n=1.0), X + 21)


def test_an_operand_that_closes_its_module_while_it_is_converted(host, guests):
    victim = host.load(guests / "add_n.wasm")

    def close():
        victim.close()
        return X

    with pytest.raises(callbox.CallError, match="FAILED_PRECONDITION: add_n.wasm: the module is closed"):
        victim.add_n(Evil(close), n=1.0)


class Lying:
    """An array interface over memory that is not there."""

    def __init__(self, **changes):
        self.kept = np.zeros(4, np.float32)
        self.__array_interface__ = {**self.kept.__array_interface__, **changes}


@pytest.mark.parametrize("changes", [{"typestr": "<x9"}, {"shape": (-1,)}, {"shape": "4"}, {"strides": (4, 4)}])
def test_array_interfaces_that_are_wrong(module, changes):
    with pytest.raises((TypeError, ValueError)):
        module.add_n(Lying(**changes), n=1.0)


class Tensor:
    """A tensor whose capsule is no capsule."""

    def __init__(self, given):
        self.given = given

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


@pytest.mark.parametrize("given", [None, 0, b"", object(), ZeroDivisionError(), BufferError("no")])
def test_tensors_without_a_capsule(module, given):
    with pytest.raises((*REFUSED, ZeroDivisionError)):
        module.add_n(Tensor(given), n=1.0)
    with pytest.raises((*REFUSED, ZeroDivisionError)):
        module.add_n(X, n=1.0, out=Tensor(given))
    assert is_healthy(module)


@pytest.mark.parametrize(
    "dtype", [">f4", "f2", "O", "V4", "M8[s]", "U2", "S4", [("a", "<f4")], "c8", "g", np.dtype((np.float32, (2,)))]
)
def test_other_dtypes_are_not_taken_for_numbers(module, dtype):
    """Bytes in another order are converted or refused, and never read as they are."""
    try:
        operand = np.zeros(4, dtype)
        operand[:] = 2
    except (TypeError, ValueError):
        operand = np.zeros(4, dtype)
    try:
        found = module.add_n(operand, n=1.0)
    except TypeError:
        return
    np.testing.assert_array_equal(found, np.asarray(operand, np.float32) + 1)


@pytest.mark.parametrize(
    "shape", [(-1,), (2**63,), (2**31, 2**31, 2**31), (2**62, 4), ("4",), (4.0,), (None,), 4, (1,) * 1000]
)
def test_shapes_that_are_none(module, shape):
    with pytest.raises(REFUSED):
        module.add_n(X, n=1.0, result_shape_dtypes=("float32", shape))
    assert is_healthy(module)


@pytest.mark.parametrize("deadline", [float("nan"), -1.0, -0.001, "1", [], 1j, b"1"])
def test_deadlines_that_are_none(module, deadline):
    with pytest.raises(REFUSED):
        module.add_n(X, n=1.0, deadline=deadline)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 0},
        {"threads": -1},
        {"threads": 2**70},
        {"opaque": "text"},
        {"static_info": 3},
        {"platform": "TPU"},
        {"api_version": "API_VERSION_X"},
        {"attributes": 3},
        {"out": 3},
        {"out": (None, None, None)},
    ],
    ids=str,
)
def test_options_that_are_none(module, options):
    with pytest.raises(REFUSED):
        module.add_n(X, n=1.0, **options)
    assert is_healthy(module)


@pytest.mark.parametrize(
    "policy",
    [
        "[" * 100_000,
        '{"limits": {"memory_bytes": 1e999}}',
        '{"limits": NaN}',
        '{"limits": {"deadline_ms": -5}}',
        '{"grants": {"everything": true}}',
        '{"limits": {"memory_bytes": "all"}}',
        "null",
        b"\xff\xfe",
        '{"a": 1}',
    ],
    ids=range(9),
)
def test_policies_that_are_none(policy):
    with pytest.raises((*REFUSED, RecursionError)):
        callbox.Host(policy=policy)


def test_memory_that_changes_its_size_during_a_call(guests):
    """A bytearray cannot be resized while a call reads it."""
    slow = callbox.Host().load(guests / "faults.wasm").infinite_loop
    memory = bytearray(16)
    began, refused = threading.Event(), []

    def resize():
        began.wait()
        while not stop.is_set():
            try:
                memory.extend(b"1")
                memory.clear()
                memory.extend(bytes(16))
            except BufferError as error:
                refused.append(error)

    stop = threading.Event()
    thread = threading.Thread(target=resize)
    thread.start()
    began.set()
    view = np.frombuffer(memory, np.float32)
    with pytest.raises(callbox.CallError, match="DEADLINE_EXCEEDED"):
        slow(view, result_shape_dtypes=view, deadline=0.3)
    stop.set()
    thread.join()
    assert refused


def test_classes_cannot_be_made_or_changed(module):
    for kind in (callbox.Target, callbox.Module, callbox.Buffer, callbox.Attribute):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(TypeError):
        type("Derived", (callbox.Target,), {})
    for name in ("name", "module", "core", "new"):
        with pytest.raises(AttributeError):
            setattr(module.add_n, name, None)
    with pytest.raises(TypeError):
        module.targets["add_n"] = None
    with pytest.raises(TypeError):
        callbox.Target.__call__(object(), X)


def test_pickles_that_were_changed(module):
    rebuild, identity = module.__reduce__()
    for i, wrong in [(0, "0" * 64), (0, ""), (0, "../../etc/passwd"), (0, "\n\x1b[31m")]:
        changed = [*identity]
        changed[i] = wrong
        with pytest.raises(callbox.CallError, match="NOT_FOUND"):
            rebuild(*changed)
    forged = pickle.dumps(module.add_n).replace(b"add_n\x94", b"add_m\x94")
    with pytest.raises((KeyError, callbox.CallError)):
        pickle.loads(forged)


class Dying:
    """Calls a target when it is freed."""

    def __init__(self, target, results):
        self.target, self.results, self.own = target, results, self

    def __del__(self):
        self.results.append(self.target(X, n=1.0).tolist())


def test_calls_while_garbage_is_collected(module):
    results: list = []
    for _ in range(5):
        Dying(module.add_n, results)
    gc.collect()
    assert results == [[1.0, 2.0, 3.0, 4.0]] * 5


def test_a_signal_handler_that_calls_during_a_call(guests, module):
    slow = callbox.Host().load(guests / "faults.wasm").infinite_loop
    results = []
    before = signal.signal(signal.SIGALRM, lambda *_: results.append(module.add_n(X, n=1.0).tolist()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        with pytest.raises(callbox.CallError, match="DEADLINE_EXCEEDED"):
            slow(X, result_shape_dtypes=X, deadline=0.3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert is_healthy(module)
    assert results[:1] == [[1.0, 2.0, 3.0, 4.0]]


def test_failing_calls_between_healthy_ones(guests):
    host = callbox.Host()
    faults = host.load(guests / "faults.wasm")
    codes = {"panic": "ABORTED", "unreachable": "ABORTED", "write_out_of_bounds": "OUT_OF_RANGE"}
    for number in range(60):
        name = [*codes][number % 3]
        with pytest.raises(callbox.CallError) as caught:
            faults[name](X, result_shape_dtypes=X)
        assert caught.value.code == codes[name]
        np.testing.assert_array_equal(faults.healthy(X, result_shape_dtypes=X), X)
    assert host.stats()["failures"] == {"ABORTED": 40, "OUT_OF_RANGE": 20}


def test_threads_that_load_call_and_close(guests):
    host = callbox.Host(idle_seconds=0.01, idle_bytes=0)
    wrong = []

    def work(seed):
        choices = random.Random(seed)
        for _ in range(8):
            try:
                with host.load(guests / "add_n.wasm") as module:
                    for _ in range(choices.randint(1, 20)):
                        x = np.zeros(choices.randint(0, 5000), np.float32)
                        assert (module.add_n(x, n=1.0) == 1).all()
            except Exception as error:  # noqa: BLE001  reported by the main thread
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_text_of_a_guest_cannot_forge_an_error(guests):
    faults = callbox.Host().load(guests / "faults.wasm")
    with pytest.raises(callbox.CallError) as caught:
        faults.huge_message(X, result_shape_dtypes=X)
    assert len(str(caught.value)) < 100_000
    assert all(character.isprintable() or character == "\n" for character in str(caught.value))
    assert caught.value.target == "huge_message"


def test_the_name_of_a_target_is_no_text_of_callbox(host):
    def section(number: int, content: bytes) -> bytes:
        return bytes([number, len(content)]) + content

    name = b"OK: signed by callbox"
    module = host.load(
        b"\0asm\1\0\0\0"
        + section(1, b"\1\x60\1\x7f\1\x7f")
        + section(3, b"\1\0")
        + section(5, b"\1\0\1")
        + section(7, b"\2\6memory\2\0" + bytes([len(name)]) + name + b"\0\0")
        + section(10, b"\1\4\0\x41\0\x0b")
    )
    target = getattr(module, name.decode())
    assert repr(target) == '<callbox.Target "OK: signed by callbox"(*arrays) -> ...>'
    for call in (lambda: target(np.zeros(2), out=[1, 2]), lambda: target(np.zeros(2), a={1: 2})):
        with pytest.raises(TypeError, match=r'^"OK: signed by callbox"\(\): '):
            call()
