"""Kernels of Triton as CUDA targets: writes their PTX and the manifest that launches them.

Triton compiles without a GPU. A target is described as in a manifest (``guests/MANIFEST.md``), but
each launch names a compiled kernel, and its parameters by the names that the kernel gives them:

    source, target = ASTSource(scale, signature, constants), GPUTarget("cuda", 80, 32)
    compiled = triton.compile(source, target=target)
    pack_triton("kernels/scale", [{
        "name": "scale",
        "operands": [{"name": "x", "element_types": ["f32"], "dimensions": ["n"]}],
        "results": [{"name": "y", "element_types": ["f32"], "dimensions": ["n"]}],
        "launches": [{
            "kernel": compiled,
            "parameters": {
                "x_ptr": {"operand": 0}, "y_ptr": {"result": 0}, "n": "results[0].elements"
            },
            "grid": ["ceil_div(results[0].elements, 1024)"],
        }],
    }])

Triton's metadata gives the rest: the block, the shared memory, the types of numbers, and the
parameters that Triton adds. What a kernel was specialised for becomes a check of the target.

This module needs neither Triton nor the rest of the package.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

__all__ = ["pack_triton"]

# Triton's types of numbers, and the manifest's.
_NUMBERS = {
    "i1": "pred",
    "i8": "s8",
    "i16": "s16",
    "i32": "s32",
    "i64": "s64",
    "u1": "pred",
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
}


def pack_triton(
    folder: str | PathLike[str],
    targets: Sequence[Mapping[str, Any]],
    *,
    source: str | PathLike[str] | None = None,
) -> pathlib.Path:
    """Writes ``NAME.ptx`` for each kernel, and ``callbox.json``, to a folder.

    Returns the manifest's path.
    ``source`` is the file in the folder with the kernels' Python code, whose SHA-256 the manifest
    then has. Raises ``ValueError`` if a kernel cannot be launched by a manifest, or if a target's
    parameters are not those of its kernel.
    """
    folder = pathlib.Path(folder)
    images: dict[str, str] = {}
    made = [_target(target, images) for target in targets]
    digest: dict[str, str] = {}
    if source is not None:
        content = (folder / source).read_bytes()
        digest = {"source": str(source), "source_sha256": hashlib.sha256(content).hexdigest()}
    manifest = {
        "format": 1,
        "images": [{"name": name, "file": f"{name}.ptx", **digest} for name in images],
        "targets": made,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, ptx in images.items():
        (folder / f"{name}.ptx").write_text(ptx)
    path = folder / "callbox.json"
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    return path


def _target(target: Mapping[str, Any], images: dict[str, str]) -> dict[str, Any]:
    checks = list(target.get("checks", []))
    scratch = list(target.get("scratch", []))
    launches = [_launch(launch, images, checks, scratch) for launch in target["launches"]]
    made = {key: value for key, value in target.items() if key not in ("checks", "scratch", "launches")}
    if checks:
        made["checks"] = checks
    if scratch:
        made["scratch"] = scratch
    return {**made, "launches": launches}


def _launch(
    launch: Mapping[str, Any], images: dict[str, str], checks: list[dict[str, Any]], scratch: list[str]
) -> dict[str, Any]:
    kernel = launch["kernel"]
    metadata = kernel.metadata
    name = metadata.name
    _refuse_what_no_manifest_launches(name, metadata)
    ptx = kernel.asm["ptx"]
    # Line information names files of the machine that compiled the kernel.
    ptx = re.sub(r"(?m)^\s*\.(file|loc)\s.*\n", "", ptx)
    if images.setdefault(name, ptx) != ptx:
        raise ValueError(f"two kernels have the name {name!r}: give one of them another")
    grid = list(launch["grid"])
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"{name}: the grid has {len(grid)} dimensions, a launch has one to three")
    made: dict[str, Any] = {"image": name, "entry": name}
    if "when" in launch:
        made["when"] = launch["when"]
    made["parameters"] = _parameters(name, kernel, launch["parameters"], launch.get("when"), checks)
    made["parameters"] += _scratch_parameters(name, metadata, grid, scratch)
    made["grid"] = grid
    made["block"] = [str(metadata.num_warps * metadata.target.warp_size)]
    if metadata.shared:
        made["shared_memory"] = str(metadata.shared)
    unknown = launch.keys() - {"kernel", "when", "parameters", "grid"}
    if unknown:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not a field of a launch")
    return made


def _refuse_what_no_manifest_launches(name: str, metadata: Any) -> None:
    if metadata.target.backend != "cuda":
        raise ValueError(f"{name}: it was compiled for {metadata.target.backend}, not for CUDA")
    for option in ("launch_cooperative_grid", "launch_pdl"):
        if getattr(metadata, option, False):
            raise ValueError(f"{name}: a manifest cannot launch a kernel with {option}")
    if getattr(metadata, "num_ctas", 1) != 1:
        raise ValueError(f"{name}: a manifest cannot launch clusters (num_ctas is {metadata.num_ctas})")
    if getattr(metadata, "tensordesc_meta", None):
        raise ValueError(f"{name}: a manifest cannot make tensor descriptors; use pointers")


def _parameters(
    name: str, kernel: Any, given: Mapping[str, Any], when: str | None, checks: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The kernel's own parameters, in its order. Adds what it was specialised for to the checks."""
    source = kernel.src
    names = source.fn.arg_names
    constants = {path[0] for path in source.constants if len(path) == 1}
    given = dict(given)
    parameters = []
    for index, parameter in enumerate(names):
        kind = source.signature[parameter]
        if kind == "constexpr" or index in constants:
            continue
        if parameter not in given:
            raise ValueError(f"{name}: the launch does not say what parameter {parameter!r} is")
        value = given.pop(parameter)
        is_pointer = kind.startswith("*")
        if is_pointer != isinstance(value, dict):
            expected = 'a buffer such as {"operand": 0}' if is_pointer else "an expression"
            raise ValueError(f"{name}: {parameter!r} has the type {kind}: expected {expected}, found {value!r}")
        if not is_pointer:
            if kind not in _NUMBERS:
                raise ValueError(f"{name}: {parameter!r} has the type {kind}, which no manifest has")
            factor = _divisor(source, index)
            if factor > 1:
                check = _divisible(value, factor, when, parameter)
                if check not in checks:
                    checks.append(check)
            value = {"value": value, "type": _NUMBERS[kind]}
        parameters.append(value)
    if given:
        raise ValueError(f"{name}: it has no parameter {', '.join(map(repr, given))}")
    return parameters


def _divisor(source: Any, index: int) -> int:
    """The number of which a parameter must be a multiple."""
    attributes = (source.attrs or {}).get((index,), [])
    return max((value for key, value in attributes if key == "tt.divisibility"), default=1)


def _divisible(value: str, factor: int, when: str | None, parameter: str) -> dict[str, Any]:
    require = f"({value}) % {factor} == 0"
    if when:
        require = f"!({when}) || {require}"
    return {
        "require": require,
        "message": f"{parameter} must be a multiple of {factor}, found {{{value}}}",
    }


def _scratch_parameters(name: str, metadata: Any, grid: list[str], scratch: list[str]) -> list[dict[str, Any]]:
    """The two pointers that Triton adds to every kernel: its scratch memory, and a profiler's."""
    if getattr(metadata, "profile_scratch_size", 0):
        raise ValueError(f"{name}: it was compiled for a profiler")
    null = {"value": "0", "type": "u64"}
    size = getattr(metadata, "global_scratch_size", 0)
    if not size:
        return [dict(null), dict(null)]
    blocks = " * ".join(f"({blocks})" for blocks in grid)
    scratch.append(f"{size} * {blocks}")
    return [{"scratch": len(scratch) - 1}, dict(null)]
