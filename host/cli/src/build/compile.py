"""Compiles the function of a file, for `callbox build`: FILE.py NAME OUTPUT."""

import importlib.util
import sys

path, name, output = sys.argv[1:]
try:
    import callbox
except ModuleNotFoundError:
    sys.exit(
        f"{sys.executable} has no package callbox, which compiles kernels in Python: install "
        "callbox[jit], or name another Python in CALLBOX_PYTHON"
    )
try:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not hasattr(function, "save"):
        sys.exit(f"{path}: expected a function {name} with @callbox.jit, found {function!r}")
    function.save(output)
except callbox.CompileError as error:
    sys.exit(f"{path}: {error}")
