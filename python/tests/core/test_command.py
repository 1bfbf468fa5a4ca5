"""The command line `python -m callbox`."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest

import callbox
from callbox.__main__ import main


@pytest.fixture
def run(capsys):
    def run(*arguments) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return run


def test_inspect(run, guests):
    code, output, errors = run("inspect", guests / "add_n.wasm")
    assert (code, errors) == (0, "")
    digest = callbox.Host().load(guests / "add_n.wasm").digest
    assert output.splitlines()[0] == f"add_n.wasm: 1 targets, SHA-256 {digest}"
    assert "add_n(x: float32[..], *, n: float32) -> y: float32[..]" in output
    assert "    traits: pure, elementwise" in output.splitlines()
    assert "    | Adds the attribute `n`," in output


def test_policy(run):
    code, output, errors = run("policy")
    assert (code, errors) == (0, "")
    assert json.loads(output) == callbox.Host().policy


def test_call(run, guests, tmp_path):
    x = np.arange(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    call = ["call", guests / "add_n.wasm", "add_n", "--operand", tmp_path / "x.npy"]
    assert run(*call, "--attr", "n=4.0") == (0, "[4. 5. 6.]\n", "")
    assert run(*call, "--attr", "n=4.0", "--output", tmp_path / "y.npy") == (0, "", "")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x + 4)


def test_call_under_a_policy(run, guests, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1 << 20, np.float32))
    (tmp_path / "policy.json").write_text('{"limits": {"memory_bytes": 65536}}')
    call = ["call", guests / "add_n.wasm", "add_n", "--operand", tmp_path / "x.npy", "--attr", "n=1"]
    code, _, errors = run(*call, "--policy", tmp_path / "policy.json")
    assert code == 1
    assert errors.startswith("error: RESOURCE_EXHAUSTED: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attr", "n=-1"], "INVALID_ARGUMENT: add_n.wasm"),
        (["--attr", "n"], "expected --attr NAME=VALUE, found 'n'"),
        (["--attr", "n=text"], 'attribute "n": expected a scalar of float32'),
        ([], 'add_n(): expected the attributes "n", found no "n"'),
        (
            ["--attr", "n=1", "--output", "a.npy", "--output", "b.npy"],
            "expected one --output for each of the 1 results",
        ),
    ],
)
def test_failures_of_a_call(run, guests, tmp_path, arguments, message):
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    code, output, errors = run("call", guests / "add_n.wasm", "add_n", "--operand", tmp_path / "x.npy", *arguments)
    assert (code, output) == (1, "")
    assert errors.startswith("error: ")
    assert message in errors


def test_files_and_targets_that_are_missing(run, guests, tmp_path):
    code, _, errors = run("inspect", tmp_path / "missing.wasm")
    assert code == 1
    assert "missing.wasm" in errors
    code, _, errors = run("call", guests / "add_n.wasm", "other")
    assert (code, errors) == (1, 'error: expected a target of the module (add_n), found "other"\n')


def test_pickles_are_not_loaded(run, guests, tmp_path):
    np.save(tmp_path / "x.npy", np.array([print], dtype=object), allow_pickle=True)
    code, _, errors = run("call", guests / "add_n.wasm", "add_n", "--operand", tmp_path / "x.npy", "--attr", "n=1")
    assert code == 1
    assert "allow_pickle=False" in errors


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"'''",
        b"(" * 200,
        b"-" * 9000 + b"1",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",)}",
        b"{'descr': '\x1b[31m', 'fortran_order': False, 'shape': (1,)}",
    ],
)
def test_wrong_headers_of_arrays(run, guests, tmp_path, header):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    code, output, errors = run("call", guests / "add_n.wasm", "add_n", "--operand", path, "--attr", "n=1")
    assert (code, output) == (1, "")
    assert errors.startswith(f"error: {path}: expected a .npy file, found ")
    assert errors[:-1].isprintable()
    assert len(errors) < 1000


def test_names_of_files_are_no_lines_of_callbox(run, guests, tmp_path):
    forged = "k\x1b[31m\nerror: INTERNAL: \u202e"
    module, operand = tmp_path / f"{forged}.wasm", tmp_path / f"{forged}.npy"
    module.write_bytes((guests / "add_n.wasm").read_bytes())
    operand.write_bytes(b"x")
    code, output, _ = run("inspect", module)
    assert code == 0
    assert output.splitlines()[0].isprintable()
    assert "1 targets" in output.splitlines()[0]
    code, _, errors = run("call", module, "add_n", "--operand", operand, "--attr", "n=1")
    assert code == 1
    assert errors[:-1].isprintable()


def test_wrong_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["unknown"])
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["add_n", "rms_norm", "activation", "faults", "jax_add_n", "softmax"])
def test_stubs_are_python(run, guests, name):
    code, output, errors = run("stubs", guests / f"{name}.wasm")
    assert (code, errors) == (0, "")
    tree = ast.parse(output)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions == list(callbox.Host().load(guests / f"{name}.wasm").targets)


def test_stubs_have_types(run, guests):
    _, output, _ = run("stubs", guests / "rms_norm.wasm")
    lines = output.splitlines()
    of_forward = "def rms_norm(x: npt.ArrayLike, weight: npt.ArrayLike, *, eps: float, out: Any = ..., "
    assert any(line.startswith(of_forward) and line.endswith("-> npt.NDArray[np.float32]:") for line in lines)
    assert any(line.endswith("-> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:") for line in lines)
