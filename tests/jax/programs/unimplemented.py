"""Instructions that callbox does not implement.

Each program must be rejected before it starts, with the instruction's name.
"""

import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, lattice

SUBJECT = Subject("unimplemented")


def refuse(opcode, function, *operands, optimized=False):
    """Adds an unsupported program, which must give UNIMPLEMENTED.

    It has a text after optimisation only where XLA:CPU keeps the instruction.
    """
    reason = f"callbox does not implement `{opcode}`"
    SUBJECT.add(
        "unimplemented_" + opcode.replace("-", "_"),
        function,
        *operands,
        status={"code": "UNIMPLEMENTED", "contains": opcode},
        unsupported={"before": reason, "after": reason},
        optimized=optimized,
    )


refuse(
    "rng-bit-generator",
    lambda key: lax.rng_bit_generator(key, (3,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1],
    np.array([1, 2, 3, 4], np.uint32),
)
refuse("fft", lambda x: jnp.fft.fft(x), lattice((4,)), optimized=True)
refuse("topk", lambda x: lax.top_k(x, 2), lattice((5,)))
