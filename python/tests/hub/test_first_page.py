"""The example `hub.py`, README's first page: a good kernel and a hostile one in a training loop."""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

EXAMPLE = Path(__file__).parents[2] / "examples/hub.py"

ROOT = Path(__file__).parents[3]


def blocks() -> tuple[str, str]:
    """The first page of the README: the program and what it prints."""
    page = (ROOT / "README.md").read_text().split("\n## ")[1]
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    return code, printed


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + leb(len(content)) + content


def leb(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def text(name: str) -> bytes:
    return leb(len(name)) + name.encode()


def module(body: bytes, *, imports: str | None = None, declared: object = None) -> bytes:
    """A module whose target `rms_norm` has this body."""
    target = b"\x60\x01\x7f\x01\x7f"  # (i32) -> i32
    path_open = b"\x60\x09\x7f\x7f\x7f\x7f\x7f\x7e\x7e\x7f\x7f\x01\x7f"
    sections = [section(1, b"\x02" + target + path_open)]
    if imports is not None:
        sections.append(section(2, b"\x01" + text("wasi_snapshot_preview1") + text(imports) + b"\x00\x01"))
    number = 0 if imports is None else 1
    body = b"\x00" + body + b"\x0b"
    sections += [
        section(3, b"\x01\x00"),
        section(5, b"\x01\x00\x01"),
        section(7, b"\x02" + text("rms_norm") + bytes([0, number]) + text("memory") + b"\x02\x00"),
        section(10, b"\x01" + leb(len(body)) + body),
    ]
    if declared is not None:
        sections.append(section(0, text("callbox.targets") + json.dumps(declared).encode()))
    return b"\0asm\x01\0\0\0" + b"".join(sections)


SUCCEEDS = b"\x41\x00"  # i32.const 0
LOOPS = b"\x03\x40\x0c\x00\x0b" + SUCCEEDS  # loop br 0 end
WRITES_PAST_ITS_END = b"\x41\x7c\x41\x01\x36\x02\x00" + SUCCEEDS  # i32.store (i32.const -4) (i32.const 1)

#: The declared result has seven elements, whatever the operands have.
LIE = {
    "name": "rms_norm",
    "stages": ["execute"],
    "operands": [{"name": "x"}, {"name": "weight"}],
    "results": [{"name": "y", "element_types": ["f32"], "dimensions": [7]}],
    "attributes": [{"name": "eps", "kind": "scalar", "element_type": "f32"}],
    "traits": [],
    "doc": "",
}


@pytest.fixture
def evil(hub, variant) -> None:
    """evil/rms-norm: five versions, each with another attack."""
    attacks = [
        module(SUCCEEDS, imports="path_open"),
        module(LOOPS),
        module(WRITES_PAST_ITS_END),
        module(SUCCEEDS, declared=LIE),
    ]
    for number, attack in enumerate(attacks, 1):
        hub.push("evil/rms-norm", f"v{number}", variant(attack, version=f"{number}.0.0"))
    files = variant(module(SUCCEEDS), version="5.0.0")
    swapped = files["build/callbox-wasm32/rms-norm.wasm"][:-1] + b"\x00"
    hub.push("evil/rms-norm", "v5", {**files, "build/callbox-wasm32/rms-norm.wasm": swapped})


def test_a_hostile_kernel_gives_its_statuses_and_the_training_goes_on(hub, good, evil, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        env={**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    code, printed = blocks()
    # The last digits differ between processors.
    first, rest = re.sub(r"loss \S+", "loss ...", done.stdout).split("\n", 1)
    assert first == "<callbox.hub.Kernel good/rms-norm 1.0.0 with rms_norm, rms_norm_grad>"
    expected = re.sub(r"loss \S+", "loss ...", printed)
    assert doctest.OutputChecker().check_output(expected, rest, doctest.ELLIPSIS), done.stdout
    for code_of in ("PERMISSION_DENIED", "DEADLINE_EXCEEDED", "OUT_OF_RANGE", "expected an array of rank 1"):
        assert code_of in printed
    assert rest.splitlines()[-1].startswith("evil/rms-norm 5: DATA_LOSS: evil/rms-norm: ")
    # The page shows lines of the example, in its order.
    lines = iter(line.strip() for line in EXAMPLE.read_text().splitlines())
    for line in code.splitlines():
        assert line.strip() in lines, line
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]
    assert len(losses) == 5 and losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
