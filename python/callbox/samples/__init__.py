"""Two sample kernels, which the wheel carries.

>>> import numpy as np
>>> import callbox.samples
>>> add_n = callbox.Host().load(callbox.samples.add_n).add_n
>>> add_n(np.arange(3, dtype=np.float32), n=4.0)
array([4., 5., 6.], dtype=float32)

Each name is the path of a module. The repository's folder ``guests`` has their sources, and
``cargo xtask guests`` builds them.
"""

from pathlib import Path

__all__ = ["add_n", "rms_norm"]

_FOLDER = Path(__file__).parent

#: Adds the attribute ``n`` to each element: the target ``add_n``.
add_n: Path = _FOLDER / "add_n.wasm"

#: Normalises rows by their root mean square: the targets ``rms_norm`` and ``rms_norm_grad``.
rms_norm: Path = _FOLDER / "rms_norm.wasm"
