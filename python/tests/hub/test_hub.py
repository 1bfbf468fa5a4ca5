"""Kernels of the Hub: loading, locking, offline mode."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import callbox
import callbox.hub

X = np.arange(8, dtype=np.float32).reshape(2, 4)
ONES = np.ones(4, dtype=np.float32)


def test_a_kernel_is_loaded_by_name_and_runs(hub, good, get, rms_norm):
    kernel = get()
    expected = X / np.sqrt((X**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(kernel.rms_norm(X, ONES, eps=1e-5), expected, rtol=1e-6)
    np.testing.assert_allclose(kernel["rms_norm"](X, ONES, eps=1e-5), expected, rtol=1e-6)
    metadata = hub.commits["good/rms-norm", good]["build/callbox-wasm32/metadata.json"]
    assert kernel.digest == hashlib.sha256(metadata).hexdigest()
    assert kernel.module.digest == hashlib.sha256(rms_norm).hexdigest()
    assert (kernel.commit, kernel.name, kernel.version, kernel.license) == (good, "rms-norm", "1.0.0", "MIT")
    assert kernel.derivatives == {"rms_norm": "rms_norm_grad"}
    assert repr(kernel) == "<callbox.hub.Kernel good/rms-norm 1.0.0 with rms_norm, rms_norm_grad>"
    assert list(kernel) == list(kernel.module) and "rms_norm" in kernel and len(kernel) == 2
    with pytest.raises(AttributeError):
        kernel.nothing  # noqa: B018


def test_nothing_but_the_variant_is_downloaded(hub, variant, rms_norm, get):
    python = dict.fromkeys(("__init__.py", "build/torch-cpu/__init__.py", "setup.py"), b"raise SystemExit('ran')")
    hub.push("good/rms-norm", "v1", {**variant(rms_norm, twin={"notes.txt": b"-"}), **python})
    commit = get().commit
    folder = f"{commit}/build/callbox-wasm32"
    assert hub.got() == [f"{folder}/metadata.json", f"{folder}/rms-norm.wasm"]
    assert set(hub.got("HEAD")) == {"v1/build/callbox-wasm32/metadata.json", *hub.got()}
    # Later, only the branch is looked up.
    hub.requests.clear()
    get()
    get(revision=commit)
    assert (hub.got("HEAD"), hub.got()) == (["v1/build/callbox-wasm32/metadata.json"], [])


def test_tags_branches_and_commits_are_revisions(hub, variant, rms_norm, get):
    older = hub.push("good/rms-norm", "main", variant(rms_norm, version="0.9.0"))
    newer = hub.push("good/rms-norm", "a/b", variant(rms_norm, version="1.1.0"))
    assert get(revision="main").version == "0.9.0"
    assert get(revision=older).version == "0.9.0"
    assert get(revision=newer).version == "1.1.0"


def test_a_branch_with_another_version_is_refused(hub, variant, rms_norm, fails):
    hub.push("good/rms-norm", "v2", variant(rms_norm, version="1.9.0"))
    fails("FAILED_PRECONDITION", "expected version 2 on the branch v2, found 1.9.0", version=2)


def test_a_lock_holds_while_the_branch_moves(hub, variant, good, get, fails, rms_norm, tmp_path):
    path = tmp_path / "callbox.lock"
    local = {"file": "a.wasm", "digest": "0" * 64, "size": 1, "from": "https://example.com/a.wasm"}
    path.write_text(json.dumps({"format": 1, "files": [local]}))
    given = {"endpoint": hub.endpoint, "token": False, "cache_dir": tmp_path / "cache"}
    locked = callbox.hub.lock({"good/rms-norm": 1}, path, **given)
    kernel = get(lock=path)
    assert locked == {"hf:good/rms-norm@v1": kernel.digest}
    metadata = hub.commits["good/rms-norm", good]["build/callbox-wasm32/metadata.json"]
    entry = {
        "file": "hf:good/rms-norm@v1",
        "digest": kernel.digest,
        "size": len(metadata),
        "name": "rms-norm",
        "version": "1.0.0",
        "commit": good,
    }
    assert json.loads(path.read_text()) == {"format": 1, "files": [local, entry]}
    assert os.listdir(tmp_path / "cache" / "revisions")

    hub.push("good/rms-norm", "v1", variant(rms_norm, version="1.1.0"))
    assert get().version == "1.1.0"
    hub.requests.clear()
    assert get(lock=path).commit == good
    assert get(lock=path, cache_dir=tmp_path / "empty").commit == good
    assert "v1/build/callbox-wasm32/metadata.json" not in hub.got("HEAD")

    fails("PERMISSION_DENIED", "'hf:good/rms-norm@main' is not in", lock=path, revision="main")
    fails("PERMISSION_DENIED", "expected the digest 0000", lock=path, digest="0" * 64)
    # The hub has other files for the commit, with metadata that agrees with them.
    honest = hub.commits["good/rms-norm", good]
    hub.commits["good/rms-norm", good] = variant(rms_norm, license="BSD")
    fails("PERMISSION_DENIED", f"has the digest {kernel.digest}, found ", lock=path, cache_dir=tmp_path / "other")
    # What it sent is in a cache, and does not stay in the way of the locked kernel.
    assert get(revision=good, cache_dir=tmp_path / "other").license == "BSD"
    hub.commits["good/rms-norm", good] = honest
    assert get(lock=path, cache_dir=tmp_path / "other").license == "MIT"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "lists and objects do not end"),
        ("{1}", "Expecting property name"),
        ('{"format": 1, "files": [], "files": []}', "a key occurs twice"),
        ("[]", "expected an object with `format` and `files`"),
        ('{"format": 2, "files": []}', "expected `format` 1, found 2"),
        ('{"format": [1], "files": []}', "expected `format` 1, found [1]"),
        ('{"format": true, "files": []}', "expected `format` 1, found True"),
        ('{"format": 1, "files": [{"file": "a"}]}', "an entry of `files` lacks `digest`"),
        ('{"format": 1, "files": [{"file": "a", "digest": "ff", "size": 1}]}', "expected a SHA-256 of 64"),
        ('{"format": 1, "files": [{"file": "a", "url": "x"}]}', "'url' is wrong in an entry"),
        ("[" * 17 + "]" * 17, "nest more than 16 deep"),
        (" " * (1 << 20) + "{}", "expected a lock of at most 1048576 bytes"),
    ],
)
def test_a_wrong_lock_is_refused(tmp_path, good, fails, text, message):
    path = tmp_path / "callbox.lock"
    path.write_text(text)
    fails("INVALID_ARGUMENT", message, lock=path)


def test_an_interrupted_update_is_finished_first(tmp_path, hub, good):
    path = tmp_path / "callbox.lock"
    path.with_name("callbox.lock.next").write_text("{}")
    with pytest.raises(callbox.CallError, match="an update was interrupted: `callbox update` finishes it"):
        callbox.hub.lock({"good/rms-norm": 1}, path, endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert not path.exists()


def test_a_lock_behind_a_link_is_written_in_place(tmp_path, hub, good):
    (tmp_path / "shared").mkdir()
    real = tmp_path / "shared" / "real.lock"
    real.write_text('{"format": 1, "files": []}')
    path = tmp_path / "callbox.lock"
    path.symlink_to("shared/real.lock")
    callbox.hub.lock({"good/rms-norm": 1}, path, endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert path.is_symlink()
    assert "hf:good/rms-norm@v1" in real.read_text()
    assert os.listdir(real.parent) == ["real.lock"]
    real.unlink()
    with pytest.raises(FileNotFoundError):
        callbox.hub.lock({"good/rms-norm": 1}, path, endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert path.is_symlink()


def test_a_digest_pins_the_kernel(good, get, fails):
    digest = get().digest
    assert get(digest=digest).digest == digest
    fails("PERMISSION_DENIED", f"expected the digest {'0' * 64}, found {digest}", digest="0" * 64)


def test_what_was_downloaded_is_there_offline(hub, good, get, fails, tmp_path, monkeypatch):
    digest = get().digest
    hub.close()
    assert get(local_files_only=True).digest == digest
    fails("UNAVAILABLE", "offline mode", local_files_only=True, cache_dir=tmp_path / "empty")
    fails("UNAVAILABLE", "good/rms-norm: build/callbox-wasm32/metadata.json: ")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert get().digest == digest


def test_what_is_not_there_is_not_found(hub, good, fails):
    fails("NOT_FOUND", "evil/nothing", repo_id="evil/nothing")
    fails("NOT_FOUND", "good/rms-norm: build/callbox-wasm32/metadata.json: 404", version=3)
    fails("NOT_FOUND", "404", revision="0" * 40)
    hub.push("good/rms-norm", "main", {"README.md": b""})
    fails("NOT_FOUND", "Entry Not Found", revision="main")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 1, "revision": "main"}, "expected either version= or revision="),
        ({"version": None}, "expected either version= or revision="),
        ({"version": -1}, "expected a version of at least 0, found -1"),
        ({"version": "1"}, "expected a version of at least 0, found '1'"),
        ({"version": 1.0}, r"expected a version of at least 0, found 1\.0"),
        ({"version": None, "revision": ""}, "expected a branch, tag or commit as revision, found ''"),
        ({"version": None, "revision": 7}, "expected a branch, tag or commit as revision, found 7"),
        ({"repo_type": "dataset"}, "expected 'kernel' or 'model' as repo_type, found 'dataset'"),
        ({"digest": "sha256:00"}, "expected a SHA-256 of 64 lower-case hexadecimal digits as digest"),
    ],
)
def test_wrong_arguments_are_refused(get, options, message):
    with pytest.raises(ValueError, match=message):
        get(**options)


def test_arguments_of_the_wrong_type_are_told(get, hub, tmp_path):
    with pytest.raises(TypeError, match="expected a str as digest, found int"):
        get(digest=7)
    with pytest.raises(TypeError, match="not int"):
        get(lock=7)
    with pytest.raises(TypeError, match="expected a mapping from repositories to versions, found list"):
        callbox.hub.lock(["good/rms-norm"], tmp_path / "callbox.lock")
    with pytest.raises(ValueError, match=r"expected a version of at least 0, found 1\.5"):
        callbox.hub.lock({"good/rms-norm": 1.5}, tmp_path / "callbox.lock", endpoint=hub.endpoint)
    assert not (tmp_path / "callbox.lock").exists()


def test_a_damaged_cache_is_repaired(hub, good, get, tmp_path):
    digest = get().digest
    files = list((tmp_path / "cache" / "sha256").iterdir())
    assert len(files) == 2
    for path in files:
        path.write_bytes(b"damaged")
    hub.requests.clear()
    assert get().digest == digest
    assert len(hub.got()) == 2


def test_a_cache_that_cannot_be_written_serves_what_it_has(hub, good, get, tmp_path, monkeypatch):
    digest = get().digest

    def refuse(**_options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("callbox.hub._cache.tempfile.mkstemp", refuse)
    assert get().digest == digest
    # Nothing is kept of another one, of which a warning tells.
    (tmp_path / "cache" / "sha256" / digest).unlink()
    with pytest.warns(RuntimeWarning, match="the download is not kept: cannot write to .*: Read-only file system"):
        assert get().digest == digest


def test_a_cache_that_cannot_be_made_is_refused(good, fails, tmp_path):
    (tmp_path / "file").touch()
    fails("FAILED_PRECONDITION", "cannot make the folder", cache_dir=tmp_path / "file" / "cache")


def test_a_cache_that_others_can_write_is_refused(good, fails, tmp_path):
    (tmp_path / "shared").mkdir(mode=0o700)
    (tmp_path / "shared").chmod(0o777)
    fails("FAILED_PRECONDITION", "expected a folder that this user alone can write", cache_dir=tmp_path / "shared")


def test_a_fenced_twin_is_loaded_if_asked_for(hub, variant, guests, get, fails):
    sources = guests.resolve().parents[1] / "guests/add_n"
    twin = {"callbox.json": (sources / "callbox.json").read_bytes(), "add_n.ptx": (sources / "add_n.ptx").read_bytes()}
    module = (guests / "add_n.wasm").read_bytes()
    hub.push("good/add-n", "v1", variant(module, twin=twin, manifest="callbox.json"))
    hub.push("good/plain", "v1", variant(module))
    kernel = get("good/add-n", native=True)
    assert kernel.module.native is not None and kernel.add_n.has_native
    assert get("good/add-n").module.native is None
    fails("NOT_FOUND", "the kernel has no native twin", repo_id="good/plain", native=True)


def test_derivatives_must_be_targets(hub, variant, rms_norm, fails):
    hub.push("good/rms-norm", "v1", variant(rms_norm, derivatives={"rms_norm": "none"}))
    fails("INVALID_ARGUMENT", "`derivatives` names 'none', which is not a target")


def test_the_environment_names_the_hub(hub, good, guests, tmp_path):
    program = "import callbox.hub; print(callbox.hub.get_kernel('good/rms-norm', version=1))"
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_secret"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (
        0,
        "<callbox.hub.Kernel good/rms-norm 1.0.0 with rms_norm, rms_norm_grad>\n",
    ), done.stderr
    # The client also asks for other things, without the token.
    asked = [request for request in hub.requests if request.path.startswith("/kernels/")]
    assert {request.headers["authorization"] for request in asked} == {"Bearer hf_secret"}
    assert (tmp_path / "callbox" / "sha256").is_dir()
    assert "hf_secret" not in done.stdout + done.stderr


def test_without_the_client_the_error_says_what_to_install(monkeypatch, get):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'callbox\[hub\]'"):
        get()
