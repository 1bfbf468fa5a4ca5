"""Compiles the guests' Triton kernels to PTX: triton_images.py [--check]

Runs in the repository's root. Each folder guests/triton/NAME has NAME.py, whose function `targets`
describes the targets for `callbox.triton.pack_triton`. With --check nothing is written, and the
exit code is 1 if a file would change.
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile

GUESTS = pathlib.Path("guests/triton")
PACKER = pathlib.Path("python/callbox/triton.py")

# The oldest architecture with asynchronous copies, and the oldest PTX that has all instructions.
ARCHITECTURE = 80
PTX_VERSION = 80

# Without names of files, the PTX is the same in every checkout.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
# Not the user's own cache.
os.environ.setdefault("TRITON_CACHE_DIR", "target/triton-cache")


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    # Triton finds a function's source through its module.
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def compiled(function, signature, *, divisible=(), name=None, num_warps=4, num_stages=3, **constants):
    """Compiles a kernel. Buffers begin at multiples of 16, which `divisible` numbers are."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = {key: signature.get(key, "constexpr") for key in names}
    aligned = [key for key, kind in signature.items() if kind.startswith("*") or key in divisible]
    attributes = {(names.index(key),): [["tt.divisibility", 16]] for key in aligned}
    source = ASTSource(function, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": num_warps, "num_stages": num_stages, "ptx_version": PTX_VERSION, "enable_fp_fusion": True}
    kernel = triton.compile(source, target=GPUTarget("cuda", ARCHITECTURE, 32), options=options)
    return renamed(kernel, name) if name else kernel


def renamed(kernel, name):
    """The kernel under another name, so that one function can make several."""
    old = kernel.metadata.name
    kernel.metadata = kernel.metadata._replace(name=name)
    kernel.asm = {"ptx": kernel.asm["ptx"].replace(f" {old}(", f" {name}(").replace(f"{old}_param_", f"{name}_param_")}
    return kernel


def main(arguments):
    check = arguments == ["--check"]
    packer = module("callbox_triton", PACKER)
    changed = []
    count = 0
    for folder in sorted(path for path in GUESTS.iterdir() if path.is_dir()):
        source = folder / f"{folder.name}.py"
        targets = module(f"guest_{folder.name}", source).targets(compiled)
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made)
            shutil.copy(source, made)
            packer.pack_triton(made, targets, source=source.name)
            for path in sorted(made.iterdir()):
                count += path.suffix == ".ptx"
                committed = folder / path.name
                if not committed.exists() or committed.read_bytes() != path.read_bytes():
                    changed.append(committed)
                    if not check:
                        shutil.copy(path, committed)
            stale = {path.name for path in folder.glob("*.ptx")} - {path.name for path in made.iterdir()}
            for name in sorted(stale):
                changed.append(folder / name)
                if not check:
                    (folder / name).unlink()
    print(f"   {count} images of Triton, changed: {', '.join(map(str, changed)) or 'none'}")
    if check and changed:
        sys.exit("the committed PTX is not what the sources make: run `cargo xtask ptx`")


if __name__ == "__main__":
    main(sys.argv[1:])
