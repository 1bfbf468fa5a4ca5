"""Manifests for kernels of Triton, which need not be installed: the packer reads what it left."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from callbox.triton import pack_triton

PTX = """.version 8.0
.target sm_80
.address_size 64
\t.file\t1 "/home/author" "scale.py"
.visible .entry scale(.param .u64 a, .param .u64 b, .param .u32 n, .param .u64 c, .param .u64 d)
{
\t.loc\t1 4 2
\tret;
}
"""


def compiled(**changes):
    metadata = {
        "name": "scale",
        "num_warps": 8,
        "num_ctas": 1,
        "shared": 512,
        "target": SimpleNamespace(backend="cuda", arch=80, warp_size=32),
        "global_scratch_size": 0,
        "profile_scratch_size": 0,
        "launch_cooperative_grid": False,
        "launch_pdl": False,
        "tensordesc_meta": None,
    }
    source = SimpleNamespace(
        fn=SimpleNamespace(arg_names=["x_ptr", "y_ptr", "n", "BLOCK"]),
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constants={(3,): 1024},
        attrs={(0,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16]]},
    )
    return SimpleNamespace(metadata=SimpleNamespace(**{**metadata, **changes}), src=source, asm={"ptx": PTX})


def target(kernel, **changes):
    launch = {
        "kernel": kernel,
        "parameters": {"x_ptr": {"operand": 0}, "y_ptr": {"result": 0}, "n": "results[0].elements"},
        "grid": ["ceil_div(results[0].elements, 1024)", "2"],
    }
    vector = {"element_types": ["f32"], "dimensions": ["n"]}
    return {
        "name": "scale",
        "operands": [{"name": "x", **vector}],
        "results": [{"name": "y", **vector}],
        "launches": [{**launch, **changes}],
    }


def test_a_manifest_launches_the_kernel(tmp_path):
    (tmp_path / "scale.py").write_text("# source")
    path = pack_triton(tmp_path, [target(compiled())], source="scale.py")
    manifest = json.loads(path.read_text())
    digest = hashlib.sha256(b"# source").hexdigest()
    assert manifest["images"] == [{"name": "scale", "file": "scale.ptx", "source": "scale.py", "source_sha256": digest}]
    (made,) = manifest["targets"]
    null = {"value": "0", "type": "u64"}
    assert made["launches"] == [
        {
            "image": "scale",
            "entry": "scale",
            "parameters": [
                {"operand": 0},
                {"result": 0},
                {"value": "results[0].elements", "type": "s32"},
                null,
                null,
            ],
            "grid": ["ceil_div(results[0].elements, 1024)", "2"],
            "block": ["256"],
            "shared_memory": "512",
        }
    ]
    # What the kernel was specialised for.
    (check,) = made["checks"]
    assert check["require"] == "(results[0].elements) % 16 == 0"
    # Names of the author's files are gone.
    assert "author" not in (tmp_path / "scale.ptx").read_text()


def test_scratch_memory_is_that_of_all_blocks(tmp_path):
    path = pack_triton(tmp_path, [target(compiled(global_scratch_size=64))])
    (made,) = json.loads(path.read_text())["targets"]
    assert made["scratch"] == ["64 * (ceil_div(results[0].elements, 1024)) * (2)"]
    assert made["launches"][0]["parameters"][3] == {"scratch": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_ctas": 2}, "clusters"),
        ({"launch_cooperative_grid": True}, "launch_cooperative_grid"),
        ({"tensordesc_meta": [{}]}, "tensor descriptors"),
        ({"profile_scratch_size": 8}, "profiler"),
        ({"target": SimpleNamespace(backend="hip", arch="gfx942", warp_size=64)}, "hip"),
    ],
)
def test_what_no_manifest_launches_is_an_error(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pack_triton(tmp_path, [target(compiled(**changes))])
    assert not (tmp_path / "callbox.json").exists()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"x_ptr": {"operand": 0}, "y_ptr": {"result": 0}}, "what parameter 'n' is"),
        ({"x_ptr": {"operand": 0}, "y_ptr": "0", "n": "1"}, "'y_ptr' has the type"),
        ({"x_ptr": {"operand": 0}, "y_ptr": {"result": 0}, "n": {"operand": 0}}, "'n' has the type i32"),
        ({"x_ptr": {"operand": 0}, "y_ptr": {"result": 0}, "n": "1", "m": "2"}, "no parameter 'm'"),
    ],
)
def test_parameters_are_those_of_the_kernel(tmp_path, parameters, message):
    with pytest.raises(ValueError, match=message):
        pack_triton(tmp_path, [target(compiled(), parameters=parameters)])


def test_two_kernels_of_one_name_are_an_error(tmp_path):
    other = compiled()
    other.asm = {"ptx": PTX.replace("ret;", "exit;")}
    with pytest.raises(ValueError, match="two kernels have the name 'scale'"):
        pack_triton(tmp_path, [target(compiled()), {**target(other), "name": "other"}])
