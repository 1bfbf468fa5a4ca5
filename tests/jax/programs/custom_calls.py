"""Programs with custom calls. JAX lowers the calls; `jax.numpy` computes the expected results."""

import contextlib
import ctypes
import enum

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, s32, wave

SUBJECT = Subject("custom_calls")

# The guests that the repository builds, one target each.
GUESTS = {name: f"{name}.wasm#{name}" for name in ("broadcast_add", "add_n", "softmax")}


def targets(*names):
    return {name: GUESTS[name] for name in names}


# Set while expected results are computed: `jax.numpy` functions then replace the calls.
_computing = False


@contextlib.contextmanager
def computing():
    """Within this context the targets are `jax.numpy` functions, elsewhere custom calls."""
    global _computing
    _computing = True
    try:
        yield
    finally:
        _computing = False


def call(target, result, *operands, **attributes):
    return jax.ffi.ffi_call(target, result, vmap_method="sequential")(*operands, **attributes)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def broadcast_add(b, c):
    """c[i] + b[i % len(b)]"""
    if _computing:
        return jnp.resize(b, c.shape) + c
    return call("broadcast_add", like(c), b, c)


def add_n(x, n):
    if _computing:
        return x + np.float32(n)
    return call("add_n", like(x), x, n=np.float32(n))


def softmax(x):
    if _computing:
        return jax.nn.softmax(x, axis=-1)
    return call("softmax", like(x), x)


def softmax_reference(x):
    """`softmax` with the platform's long double."""
    e = np.exp(x.astype(np.longdouble) - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def _placeholder(frame):
    """An XLA FFI handler that only reports its API version, which XLA needs to compile a call.

    `XLA_FFI_CallFrame` and the metadata extension are laid out in xla/ffi/api/c_api.h of jaxlib.
    """

    def pointer(address):
        return ctypes.c_void_p.from_address(address).value

    extension = pointer(frame + 8)
    metadata = pointer(extension + 24)
    major, minor, traits = (ctypes.c_int32.from_address(metadata + offset) for offset in (24, 28, 32))
    major.value, minor.value, traits.value = 0, 1, 0


def register_placeholders():
    """Registers the targets with XLA:CPU, so that programs compile. Running one would fail."""
    for name in GUESTS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_placeholder), platform="cpu")


@SUBJECT.program(
    np.arange(128, dtype=np.float32), np.arange(2048, dtype=np.float32) / 8 - 16, targets=targets("broadcast_add")
)
def call_broadcast_add(b, c):
    """f32[128] repeated along f32[2048], the example in XLA's documentation of custom calls."""
    return broadcast_add(b, c)


@SUBJECT.program(f32([10, 20, 30]), lattice((8,)), targets=targets("broadcast_add"))
def call_uneven_lengths(b, c):
    return broadcast_add(b, c)


@SUBJECT.program(lattice((2, 3)), targets=targets("add_n"))
def call_add_n(x):
    return add_n(x, 4.0)


@SUBJECT.program(f32(1.5), np.zeros((0, 2), np.float32), targets=targets("add_n"))
def call_scalar_and_empty(x, y):
    return add_n(x, 0.25), add_n(y, 1.0)


SUBJECT.add(
    "call_softmax",
    lambda x: softmax(x),
    wave((2, 5), scale=4.0),
    ulps=8,
    targets=targets("softmax"),
)
SUBJECT.add(
    "call_softmax_f64",
    lambda x: softmax(x),
    wave((2, 2, 3), np.float64, scale=4.0),
    ulps=8,
    reference=softmax_reference,
    x64=True,
    targets=targets("softmax"),
)


@SUBJECT.program(lattice((4,)), lattice((8,)), targets=targets("broadcast_add", "add_n"))
def call_chain(b, c):
    """Each call takes the result of the one before."""
    x = c
    for n in (1.0, 2.0, 3.0):
        x = add_n(broadcast_add(b, x), n)
    return x


@SUBJECT.program(lattice((4,)), lattice((8,)), lattice((8,), step=0.25), ulps=[6, 0, 0], targets=GUESTS)
def call_among_others(b, c, d):
    """Operands and results of other instructions; one result goes to two calls."""
    x = broadcast_add(b * 2, c + d)
    y = add_n(x.reshape(2, 4).T, 0.5)
    return softmax(y), add_n(x, 1.0) * 2, x[::2]


@SUBJECT.program(lattice((2,)), lattice((6,)), targets=targets("broadcast_add", "add_n"))
def call_in_loop(b, c):
    """The call site runs ten times, with other operands each time."""
    return lax.fori_loop(0, 10, lambda i, x: add_n(broadcast_add(b, x), 0.5), c)


@SUBJECT.program(f32([1.0, 0.5]), targets=targets("add_n"))
def call_in_while(x):
    return lax.while_loop(lambda s: s[0].sum() < 20, lambda s: (add_n(s[0], 1.0) * 1.5, s[1] + 1), (x, jnp.int32(0)))


@SUBJECT.program(lattice((3,)), lattice((4, 6)), targets=targets("broadcast_add"))
def call_in_scan(b, rows):
    def step(carry, row):
        carry = broadcast_add(b, carry)
        return carry, broadcast_add(carry, row)

    return lax.scan(step, b, rows)


@SUBJECT.program(s32([0, 1]), lattice((4,)), targets=targets("add_n"))
def call_in_branch(index, x):
    """Only the branch that is taken calls; a failure in the other (n below 0) never happens."""
    branches = [lambda x: add_n(x, 2.0), lambda x: x * 2, lambda x: add_n(x, -1.0)]
    return lax.switch(index[0], branches, x), lax.switch(index[1], branches, x)


@SUBJECT.program(lattice((2,)), lattice((3, 4)), targets=targets("broadcast_add"))
def call_under_vmap(b, rows):
    """`vmap_method="sequential"` becomes a loop over slices."""
    return jax.vmap(broadcast_add, in_axes=(None, 0))(b, rows)


@SUBJECT.program(lattice((2, 3)), wave((2, 3)), targets=targets("softmax"), ulps=8)
def call_under_gradient(x, cotangent):
    """`custom_vjp`: the call is in the forward pass, and in the backward pass once more."""

    @jax.custom_vjp
    def function(x):
        return softmax(x)

    def forward(x):
        y = softmax(x)
        return y, y

    def backward(y, g):
        return (y * (g - (y * g).sum(axis=-1, keepdims=True)),)

    function.defvjp(forward, backward)
    return jax.value_and_grad(lambda x: (function(x) * cotangent).sum())(x)


@SUBJECT.program(lattice((4,)), targets=targets("add_n"))
def call_in_called_function(x):
    """The same call site in a computation that is called twice."""

    @jax.jit
    def inner(x):
        return add_n(x, 3.0) * 2

    return inner(inner(x))


@SUBJECT.program(lattice((4,)), targets=targets("add_n"), jit={"donate_argnums": 0})
def call_aliased(x):
    """The result takes the operand's place: `output_to_operand_aliasing`."""
    if _computing:
        return x + 2
    return jax.ffi.ffi_call("add_n", like(x), input_output_aliases={0: 0})(x, n=np.float32(2))


@SUBJECT.program(lattice((2, 4)), targets=targets("add_n"))
def call_with_side_effect(x):
    """A call that must run although nothing uses its result."""
    if not _computing:
        jax.ffi.ffi_call("add_n", like(x), has_side_effect=True)(x, n=np.float32(5))
    return add_n(x, 1.0)


@SUBJECT.program(lattice((3, 4)), targets=targets("add_n"))
def call_column_major(x):
    """A column-major call between row-major instructions, and a result whose layout is
    column-major."""
    if _computing:
        return x + 1, x * 2 + 1
    # JAX lists dimensions from major to minor, HLO from minor to major.
    options = {"input_layouts": [(1, 0)], "output_layouts": (1, 0)}
    call = jax.ffi.ffi_call("add_n", like(x), **options)
    return call(x, n=np.float32(1)), call(x * 2, n=np.float32(1))


@SUBJECT.program(
    lattice((3,)),
    targets=targets("add_n"),
    status={"code": "INVALID_ARGUMENT", "contains": "Info must be >= 0"},
)
def call_that_fails(x):
    """The target refuses a negative n, and nothing comes out of the program."""
    return add_n(x, -1.0) + 1


@SUBJECT.program(
    lattice((3,)),
    status={"code": "NOT_FOUND", "contains": "every_attribute"},
    optimized=False,
)
def call_every_attribute(x):
    """Each kind of attribute that JAX lowers, and a tuple of results, for a target that is not
    there."""
    attributes = {
        "flag": True,
        "i": -3,
        "i8": np.int8(-128),
        "u8": np.uint8(255),
        "u64": np.uint64(2**63 - 1),
        "big": 2**62,
        "f": 1.5,
        "f32": np.float32(0.1),
        "inf": float("inf"),
        "nan": float("nan"),
        "f16": np.float16(2.5),
        "bf16": ml_dtypes.bfloat16(1.0),
        "text": 'quotes ", backslash \\, newline \n, tab \t, zero \0, é, 漢',
        "empty": "",
        "ints": np.arange(3),
        "matrix": np.array([[1.5, -2.5], [float("inf"), 0.1]], np.float32),
        "splat": np.zeros((2, 3), np.int32),
        "bools": np.array([True, False]),
        "none_left": np.zeros((0,), np.float32),
        "rank_0": np.array(3, np.int16),
        "unsigned": np.array([1, 2**32 - 1], np.uint32),
        "complex": np.array([1 + 2j, -0.5j], np.complex64),
        # More than a hundred elements are written as the bytes of the array.
        "many": np.arange(101, dtype=np.float32),
        "third": np.float32(1 / 3),
        "tiny": 1e-300,
        "dict": {"k": 1, "s": "v", "n": np.float32(2)},
    }
    results = [like(x), jax.ShapeDtypeStruct((2, 2), jnp.int32), jax.ShapeDtypeStruct((), jnp.bool_)]
    return jax.ffi.ffi_call("every_attribute", results)(x, **attributes)


class Mode(enum.IntEnum):
    SAME = 1
    VALID = 2


class Padding(str, enum.Enum):
    SAME = "same"


@SUBJECT.program(
    lattice((3,)), status={"code": "NOT_FOUND", "contains": "every_other_attribute"}, optimized=False
)
def call_every_other_attribute(x):
    """Attributes of ml_dtypes' types and of Python's own, for a target that is not there."""
    narrow = ("float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz")
    narrow += ("float8_e4m3", "float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn", "bfloat16")
    attributes = {name: np.array([1, 0.5, 2]).astype(getattr(ml_dtypes, name)) for name in narrow}
    for name in ("int4", "uint4", "int2", "uint2", "uint1"):
        dtype = getattr(ml_dtypes, name)
        attributes[name] = np.array([1, 0, 1]).astype(dtype)
        attributes[f"{name}_many"] = (np.arange(101) % 2).astype(dtype)
    attributes |= {
        "mode": Mode.VALID,
        "padding": Padding.SAME,
        "numpy_text": np.str_("text"),
        "bytes": b"\xff\x00ab",
        "many_bools": np.arange(101) % 3 == 0,
        "fortran": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        "nothing": {},
        # A tuple of numbers of one type is an array.
        "tuple": (1, 2),
        "tuple_of_floats": (1.5, 2.0),
        "tuple_of_bools": (True, False),
        "tuple_of_numpy": (np.int32(1), np.int32(2)),
        "@a b": 1,
        "c128": np.array([[1 + 2j, complex(-0.0, float("-inf"))]]),
        "rank_0_bool": np.array(True),
        "no_columns": np.zeros((2, 0), np.uint16),
    }
    return jax.ffi.ffi_call("every_other_attribute", like(x))(x, **attributes)


def refused(name, value, about):
    """A program whose attribute `a` JAX lowers and XLA refuses."""

    def function(x):
        return call("add_n", like(x), x, a=value)

    function.__doc__ = f"{about}, which JAX lowers and XLA refuses, with this status"
    SUBJECT.add(name, function, f32(1.5), refused=True, targets=targets("add_n"))


refused("call_with_a_type", np.dtype(ml_dtypes.float8_e5m2), "A type as an attribute")
refused("call_with_texts", ("a", "b"), "A tuple of texts as an attribute")
refused("call_with_a_mixed_tuple", (1, "x"), "A tuple of a number and a text as an attribute")
refused("call_with_nested_tuples", ((1, 2), (3, 4)), "A tuple of tuples as an attribute")
refused("call_with_an_empty_tuple", (), "An empty tuple as an attribute")


@SUBJECT.program(
    lattice((3,)), status={"code": "NOT_FOUND", "contains": "xla_ffi_python_cpu_callback"}, optimized=False
)
def call_python(x):
    """A callback into Python, which JAX makes a custom call as well."""
    return jax.pure_callback(lambda x: np.asarray(x) + 1, like(x), x) * 2


@SUBJECT.program(f32([[4, 0], [2, 5]]), optimized=False)
def call_lapack(x):
    """A call of a library's, which callbox runs: a tuple of results, one of them aliased,
    column-major layouts, an attribute of type u8."""
    return lax.linalg.cholesky(x, symmetrize_input=False)
