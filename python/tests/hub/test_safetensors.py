"""Files with modules beside weights, as the official library reads and writes them."""

from __future__ import annotations

import numpy as np
import pytest

import callbox

safetensors = pytest.importorskip("safetensors.numpy")


def test_the_official_library_reads_and_writes_files_with_modules(guests, tmp_path):
    module = np.fromfile(guests / "add_n.wasm", dtype=np.uint8)
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"w": weights, "callbox.add-n": module}, path, metadata={"format": "np"})
    found = safetensors.load_file(path)
    np.testing.assert_array_equal(found["w"], weights)
    np.testing.assert_array_equal(found["callbox.add-n"], module)
    kernels = callbox.load(path, "add-n")
    np.testing.assert_array_equal(kernels.add_n(found["w"], n=1.0), weights + 1)


def test_headers_whose_values_would_take_much_memory(tmp_path):
    header = b'{"": [' + b"[[[[]]]]," * 300_000 + b"0]}"
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(callbox.CallError, match="RESOURCE_EXHAUSTED: .* bytes of memory, found more"):
        callbox.load(path)
