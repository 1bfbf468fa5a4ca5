"""The requirements and effects of `import callbox.jax`."""

from __future__ import annotations

import pytest

FAKE = """
import sys, types
jax = types.ModuleType("jax")
jax.__version__, jax.__version_info__ = "0.4.38", (0, 4, 38)
sys.modules["jax"] = jax
import callbox
try:
    import callbox.jax
except ImportError as error:
    print(error)
"""

NONE = """
import sys
sys.modules["jax"] = None
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name == "jax" or name.startswith("jax."):
            raise ModuleNotFoundError(f"No module named {name!r}", name="jax")
del sys.modules["jax"]
sys.meta_path.insert(0, Nothing())
import callbox
assert "jax" not in sys.modules
try:
    import callbox.jax
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(("program", "found"), [(FAKE, "found 0.4.38"), (NONE, "found none")])
def test_an_old_jax_or_none_is_an_import_error_that_says_so(python, program, found):
    printed = python(program)
    assert printed.startswith(f"callbox.jax needs JAX 0.5.0 or newer, {found}: ")
    assert "pip install" in printed


def test_callbox_alone_imports_no_framework(python):
    assert python("import sys, callbox; print({'jax', 'torch', 'jaxlib'} & set(sys.modules))") == "set()\n"


def test_handlers_are_registered_once_however_often_the_modules_are_loaded(python):
    program = """
    import importlib, os, sys
    import jax
    registered = []
    register = jax.ffi.register_ffi_target
    jax.ffi.register_ffi_target = lambda name, *args, **options: (registered.append(name), register(name, *args, **options))
    import callbox, callbox.jax
    def reload():
        for name in sorted(name for name in sys.modules if name.startswith("callbox.jax")):
            importlib.reload(sys.modules[name])
        importlib.reload(callbox)
    reload()
    module = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/add_n.wasm")
    program = jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=1.0))
    assert float(program(1.0)) == 2.0
    reload()
    assert float(program(2.0)) == 3.0
    assert float(jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=2.0))(1.0)) == 3.0
    assert sorted(registered) == [callbox.FFI_TARGET] * 2 + [callbox.FFI_TARGET_COMMAND_BUFFER] * 2
    # A program may copy the registration from a tutorial.
    capsules = callbox.ffi_capsules()
    jax.ffi.register_ffi_target(callbox.FFI_TARGET, capsules["cpu"], platform="cpu")
    assert float(jax.jit(lambda x: callbox.jax.call(module.add_n, x, n=3.0))(1.0)) == 4.0
    del sys.modules["callbox.jax"], sys.modules["callbox"]
    import callbox.jax as again
    print(float(jax.jit(lambda x: again.call(module.add_n, x, n=4.0))(1.0)))
    """
    assert python(program) == "5.0\n"


def test_the_handlers_structures_are_those_of_jaxs_own_header():
    """Compares the numbers of enumerators with those in the header that jaxlib ships."""
    import re
    from pathlib import Path

    import jax

    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    assert re.search(r"XLA_FFI_ExecutionStage_EXECUTE\s*=\s*3\b", header)
    for attribute, number in {"ARRAY": 1, "DICTIONARY": 2, "SCALAR": 3, "STRING": 4}.items():
        assert re.search(rf"XLA_FFI_AttrType_{attribute}\s*=\s*{number}\b", header)
    for dtype, number in {"PRED": 1, "S32": 4, "S64": 5, "F32": 11, "F64": 12, "C64": 15, "BF16": 16}.items():
        assert re.search(rf"XLA_FFI_DataType_{dtype}\s*=\s*{number}\b", header)
    for code, number in {"INVALID_ARGUMENT": 3, "OUT_OF_RANGE": 11, "UNAUTHENTICATED": 16}.items():
        assert re.search(rf"XLA_FFI_Error_Code_{code}\s*=\s*{number}\b", header)
