"""`callbox.load` of references: of a registry and a hub on this machine, and of addresses."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callbox

PASSWORD = base64.b64encode(b"user:secretsecret").decode()


def sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


@pytest.fixture
def add_n(guests: Path) -> bytes:
    return (guests / "add_n.wasm").read_bytes()


def refused(code: str, message: str, reference: str, **options: Any) -> None:
    with pytest.raises(callbox.CallError) as caught:
        callbox.load(reference, **options)
    assert (caught.value.code, message in caught.value.message) == (code, True), str(caught.value)
    assert PASSWORD not in str(caught.value)


def written(path: Path, file: str, contents: bytes, reference: str) -> Path:
    """A lock with a file that a reference had, as `callbox fetch --write-lock` writes it."""
    entry = {"file": file, "digest": sha256(contents), "size": len(contents), "from": reference}
    path.write_text(json.dumps({"format": 1, "files": [entry]}))
    return path


def test_an_artefact_of_a_registry_is_loaded_by_its_tag_or_digest(registry, add_n):
    manifest = registry.push("1", add_n)
    x = np.zeros(2, np.float32)
    tag = f"oci:{registry.host}/org/add-n:1"
    for reference in (tag, f"oci:{registry.host}/org/add-n@{manifest}", f"{tag}#sha256:{sha256(add_n)}"):
        kernels = callbox.load(reference)
        assert kernels.digest == sha256(add_n)
        np.testing.assert_array_equal(kernels.add_n(x, n=2.0), x + 2)
    # The file is kept by its digest.
    assert len([path for path in registry.paths if "/blobs/" in path]) == 1
    registry.close()
    assert callbox.load(tag, offline=True).digest == sha256(add_n)
    assert callbox.load(tag, digest=sha256(add_n)).digest == sha256(add_n)
    refused("UNAVAILABLE", f"oci:{registry.host}/org/other:1", f"oci:{registry.host}/org/other:1", offline=True)


def test_another_digest_is_refused(registry, add_n):
    registry.push("1", add_n)
    reference = f"oci:{registry.host}/org/add-n:1"
    message = f"{reference}: expected the digest {'0' * 64}, found {sha256(add_n)}"
    refused("PERMISSION_DENIED", message, reference, digest="0" * 64)
    refused("PERMISSION_DENIED", message, f"{reference}#sha256:{'0' * 64}")
    message = f"expected one digest, found {'1' * 64} beside that"
    refused("INVALID_ARGUMENT", message, f"{reference}#sha256:{'0' * 64}", digest="1" * 64)
    refused("INVALID_ARGUMENT", "64 lower-case hexadecimal digits", reference, digest="AB")


def test_a_lock_holds_for_references_and_files(registry, add_n, tmp_path):
    newer = add_n + b"\0\x06\x05newer"
    reference = f"oci:{registry.host}/org/add-n:1"
    registry.push("1", add_n)
    lock = written(tmp_path / "callbox.lock", "k/add_n.wasm", add_n, reference)
    assert callbox.load(reference, lock=lock).digest == sha256(add_n)
    # The tag moves, and the cache has the locked version.
    registry.push("1", newer)
    assert callbox.load(reference).digest == sha256(newer)
    assert callbox.load(reference, lock=lock).digest == sha256(add_n)
    other = f"oci:{registry.host}/org/add-n:2"
    registry.push("2", newer)
    refused("PERMISSION_DENIED", f"{other} is not in {lock}", other, lock=lock)
    refused("PERMISSION_DENIED", "expected the digest", reference, lock=lock, digest=sha256(newer))
    (tmp_path / "k").mkdir()
    file = tmp_path / "k/add_n.wasm"
    file.write_bytes(add_n)
    assert callbox.load(file, lock=lock).digest == sha256(add_n)
    file.write_bytes(newer)
    refused("PERMISSION_DENIED", f"found {len(newer)} bytes, {sha256(newer)}", str(file), lock=lock)
    (tmp_path / "k/other.wasm").write_bytes(add_n)
    refused("PERMISSION_DENIED", f"other.wasm is not in {lock}", str(tmp_path / "k/other.wasm"), lock=lock)
    # Without the cache, the moved tag is refused.
    lock = written(tmp_path / "callbox.lock", "k/add_n.wasm", add_n[:-1], reference)
    refused("PERMISSION_DENIED", "expected the digest", reference, lock=lock)


def test_the_policy_and_the_rules_of_the_host_hold(registry, add_n):
    registry.push("1", add_n)
    reference = f"oci:{registry.host}/org/add-n:1"
    host = callbox.Host(policy={"limits": {"deadline_ms": 1234}})
    kernels = callbox.load(reference, host=host)
    assert kernels.policy["limits"]["deadline_ms"] == 1234
    with pytest.raises(callbox.CallError, match=r"add-n\.wasm: target \"add_n\" failed"):
        kernels.add_n(np.zeros(1, np.float32), n=-1.0)
    small = callbox.Host(policy={"limits": {"module_bytes": 1000}})
    refused("RESOURCE_EXHAUSTED", "expected a module of at most 1000 bytes", reference, host=small)
    rules = {"keys": {"alice": f"ed25519:58{'66' * 31}"}, "signatures": {"oci:*/org/*": {"signed_by": ["alice"]}}}
    refused("PERMISSION_DENIED", reference, reference, host=callbox.Host(trust=rules))


def test_references_of_the_hub_and_addresses_need_no_other_client(hub, variant, registry, rms_norm, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    header = b'{"format":1,"name":"rms-norm","version":"1.0.0","license":"MIT"}'
    section = b"\x0fcallbox.package" + header
    package = rms_norm + b"\0" + bytes([len(section)]) + section
    files = variant(package)
    hub.push("good/rms-norm", "v1", files)
    metadata = sha256(files["build/callbox-wasm32/metadata.json"])
    assert callbox.load("hf:good/rms-norm@1", digest=metadata).digest == sha256(package)
    refused("PERMISSION_DENIED", "expected the digest", "hf:good/rms-norm@1", digest=sha256(package))
    refused("NOT_FOUND", "there is no such file", "hf:good/rms-norm@2")
    registry.files["/k.wasm"] = rms_norm
    address = f"http://{registry.host}/k.wasm"
    assert callbox.load(address).digest == sha256(rms_norm)
    refused("PERMISSION_DENIED", "expected the digest", f"{address}#sha256:{'0' * 64}")
    registry.files["/k.txt"] = b"a text"
    refused("INVALID_ARGUMENT", "expected a WebAssembly module", f"http://{registry.host}/k.txt")


def test_kernels_of_the_hub_have_names_without_a_host(request):
    pytest.importorskip("huggingface_hub")
    get = request.getfixturevalue("get")
    with pytest.raises(ValueError, match=r"found 'oci:ghcr.io/org/softmax:1': `callbox.load` takes references"):
        get("oci:ghcr.io/org/softmax:1")


def test_mistakes_are_told(registry, add_n, tmp_path):
    for reference, message in [
        ("oci:ghcr.io/org/softmax", "expected oci:HOST/PATH:TAG"),
        ("oci:softmax:1", "expected oci:HOST/PATH:TAG"),
        ("hf:softmax@1", "expected hf:ORG/NAME@VERSION"),
        ("http://example.com/k.wasm", "expected an https address"),
    ]:
        with pytest.raises(ValueError, match=message):
            callbox.load(reference)
    reference = f"oci:{registry.host}/org/add-n:1"
    with pytest.raises(ValueError, match=r"name='x' is for \.safetensors files"):
        callbox.load(reference, "x")
    refused("NOT_FOUND", "the registry has no such artefact", reference)
    refused("NOT_FOUND", "expected to read", reference, lock=tmp_path / "none.lock")
    (tmp_path / "docker/config.json").write_text("{}")
    refused("PERMISSION_DENIED", f"`docker login {registry.host}` keeps one", reference)
    # The path of a file may look like a reference.
    with pytest.raises(FileNotFoundError):
        callbox.load(Path(reference))


def test_ctrl_c_interrupts_a_download(registry):
    registry.pause = 60.0
    # A shell lets the programs that it starts in the background ignore the signal.
    program = f"""
import signal, callbox
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begun", flush=True)
callbox.load("oci:{registry.host}/org/add-n:1")
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, shown = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in shown and child.returncode != 0
