"""Compiles the guests' CUDA sources to PTX with NVRTC: images.py [--check] LIBRARIES OPTION...

LIBRARIES is the folder of libnvrtc, and each OPTION one of NVRTC's. Runs in the repository's root.
Each image NAME.cu becomes NAME.ptx beside it, and its manifest gets the SHA-256 of the source. With
--check nothing is written, and the exit code is 1 if a file would change. It is also 1 if a source
does not compile: its log goes to the standard error.
"""

import ctypes
import hashlib
import json
import pathlib
import sys

GUESTS = pathlib.Path("guests")

# The sources in this folder are images of libraries, which have no manifest.
LIBRARIES = GUESTS / "cuda"


def images():
    """The images: each CUDA source with its manifest, or with None."""
    for source in sorted(LIBRARIES.glob("*.cu")):
        yield source, None
    for manifest in sorted(GUESTS.glob("*/callbox.json")):
        for image in json.loads(manifest.read_text())["images"]:
            source = manifest.parent / image["source"]
            if manifest.parent / image["file"] != source.with_suffix(".ptx"):
                sys.exit(f"the PTX of {source} must be beside it and have its name, found {image['file']}")
            yield source, manifest


def with_digest(manifest, source, digest):
    """Returns the manifest's text with this digest of a source. The rest keeps its format.

    >>> text = '[{"source": "b.cu", "source_sha256": "1"}, {"source": "a.cu", "source_sha256": ""}]'
    >>> with_digest(text, "a.cu", "22")
    '[{"source": "b.cu", "source_sha256": "1"}, {"source": "a.cu", "source_sha256": "22"}]'

    An image without a digest does not get that of the next image:

    >>> with_digest('[{"source": "a.cu"}, {"source": "b.cu", "source_sha256": "1"}]', "a.cu", "22")
    Traceback (most recent call last):
    SystemExit: "source": "a.cu" must be followed by "source_sha256": "..." in its image
    """
    begin, name, rest = manifest.partition(f'"source": "{source}"')
    between, key, rest = rest.partition('"source_sha256": "')
    if not key or "}" in between:
        sys.exit(f'"source": "{source}" must be followed by "source_sha256": "..." in its image')
    return begin + name + between + key + digest + rest[rest.index('"') :]


def load(folder):
    """Loads the library, after the one that it opens by name."""
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
    """A text that NVRTC has of a program. Its size includes a NUL."""
    size = ctypes.c_size_t()
    call(nvrtc, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(nvrtc, f"nvrtcGet{what}", program, buffer)
    return buffer.value.decode()


def compile_source(nvrtc, path, source, options):
    """The PTX of a source. The program has the file's name without its folder, so that the PTX is
    the same in every checkout."""
    program = ctypes.c_void_p()
    call(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), source, path.name.encode(), 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array) != 0
    log = text(nvrtc, program, "ProgramLog")
    if failed or log.strip():
        # Shipped kernels must compile without warnings.
        sys.exit(f"{path} does not compile without errors and warnings:\n{log}")
    ptx = text(nvrtc, program, "PTX")
    call(nvrtc, "nvrtcDestroyProgram", ctypes.byref(program))
    return ptx


def main(arguments):
    check = arguments[0] == "--check"
    libraries, *options = arguments[check:]
    nvrtc = load(pathlib.Path(libraries))
    texts = {}
    count = 0
    for path, manifest in images():
        source = path.read_bytes()
        digest = hashlib.sha256(source).hexdigest()
        ptx = compile_source(nvrtc, path, source, options)
        # NVRTC's own lines, with its version, come next.
        texts[path.with_suffix(".ptx")] = f"// {path.name}, SHA-256 {digest}\n// NVRTC {' '.join(options)}\n{ptx}"
        if manifest:
            texts[manifest] = with_digest(texts.get(manifest) or manifest.read_text(), path.name, digest)
        count += 1
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    print(f"   {count} images, changed: {', '.join(map(str, changed)) or 'none'}")
    if check and changed:
        sys.exit("the committed PTX is not what the sources make: run `cargo xtask ptx`")
    for path in changed:
        path.write_text(texts[path])


if __name__ == "__main__":
    main(sys.argv[1:])
