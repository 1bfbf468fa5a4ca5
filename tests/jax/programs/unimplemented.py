"""Instructions that callbox does not run: each program must be refused by the instruction's name, before it starts."""

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, f32, lattice, s32

SUBJECT = Subject("unimplemented")


def refuse(opcode, function, *operands, optimized=False):
    """Adds a program that must give UNIMPLEMENTED.

    It has a text after optimisation only where XLA:CPU leaves the instruction in it.
    """
    SUBJECT.add(
        "unimplemented_" + opcode.replace("-", "_"),
        function,
        *operands,
        status={"code": "UNIMPLEMENTED", "contains": opcode},
        optimized=optimized,
    )


refuse("gather", lambda x, i: x[i], lattice((5,)), s32(0, 2, 2), optimized=True)
refuse("scatter", lambda x, i: x.at[i].add(1.0), lattice((5,)), s32(0, 2, 2))
refuse("sort", lambda x: lax.sort(x), f32(3, 1, 2), optimized=True)
refuse("reduce-window", lambda x: jnp.cumsum(x), lattice((5,)), optimized=True)
refuse(
    "convolution",
    lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
    lattice((1, 1, 6)),
    lattice((1, 1, 3)),
)
refuse(
    "rng-bit-generator",
    lambda key: lax.rng_bit_generator(key, (3,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1],
    np.array([1, 2, 3, 4], np.uint32),
)
refuse("fft", lambda x: jnp.fft.fft(x), lattice((4,)), optimized=True)
refuse(
    "select-and-scatter",
    lambda x: jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID").sum())(x),
    lattice((4,)),
)
