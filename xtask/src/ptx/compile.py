"""Compiles CUDA sources to PTX with NVRTC: compile.py LIBRARIES OUT OPTION... -- SOURCE...

LIBRARIES is the folder of libnvrtc. For each source NAME.cu, OUT/NAME.ptx is written, and the SHA-256 of the source is printed. Where a
source does not compile, its log goes to the standard error, and the exit code is 1.
"""

import ctypes
import hashlib
import pathlib
import sys


def load(folder):
    """The library, once what it opens by name is loaded."""
    (builtins,) = folder.glob("libnvrtc-builtins.so.[0-9]*")
    (library,) = folder.glob("libnvrtc.so.[0-9]*")
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def call(nvrtc, function, *arguments):
    code = getattr(nvrtc, function)(*arguments)
    if code != 0:
        sys.exit(f"{function} failed: {nvrtc.nvrtcGetErrorString(code).decode()}")


def text(nvrtc, program, what):
    """A text that NVRTC has of a program: its size includes a NUL."""
    size = ctypes.c_size_t()
    call(nvrtc, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(nvrtc, f"nvrtcGet{what}", program, buffer)
    return buffer.value.decode()


def compile_source(nvrtc, path, source, options):
    """The PTX of a source. It is named by its file name alone, so that the PTX is the same in every folder."""
    program = ctypes.c_void_p()
    call(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), source, path.name.encode(), 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array) != 0
    log = text(nvrtc, program, "ProgramLog")
    if failed or log.strip():
        # Warnings are as good as errors: a kernel that is shipped has none.
        sys.exit(f"{path} does not compile without complaint:\n{log}")
    ptx = text(nvrtc, program, "PTX")
    call(nvrtc, "nvrtcDestroyProgram", ctypes.byref(program))
    return ptx


def main(arguments):
    libraries, out, *rest = arguments
    end = rest.index("--")
    options, sources = rest[:end], rest[end + 1 :]
    nvrtc = load(pathlib.Path(libraries))
    for path in map(pathlib.Path, sources):
        source = path.read_bytes()
        digest = hashlib.sha256(source).hexdigest()
        ptx = compile_source(nvrtc, path, source, options)
        # What NVRTC says of itself comes next, its version among it.
        head = f"// {path.name}, SHA-256 {digest}\n// NVRTC {' '.join(options)}\n"
        pathlib.Path(out, path.stem + ".ptx").write_text(head + ptx)
        print(digest)


main(sys.argv[1:])
