"""Instructions that callbox does not implement.

Each program must be rejected before it starts, with the instruction's name.
"""

import numpy as np
from jax import lax

from .registry import Subject

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


refuse("rng", lambda low, high: lax.rng_uniform(low, high, (3,)), np.float32(0), np.float32(1))
