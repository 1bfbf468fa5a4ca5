"""Rules about signatures: `Host(trust=...)`, for files, bytes, tensors and kernels of the Hub.

The signatures here are made by an implementation of its own, after RFC 8032.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import callbox

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)


def _add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, -1, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P) % P


def _times(number: int, point: tuple[int, int] = BASE) -> bytes:
    total = (0, 1)
    while number:
        if number & 1:
            total = _add(total, point)
        point, number = _add(point, point), number >> 1
    return (total[1] | (total[0] & 1) << 255).to_bytes(32, "little")


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


def _secret(seed: int) -> tuple[int, bytes]:
    digest = hashlib.sha512(bytes([seed]) * 32).digest()
    return int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254, digest[32:]


def public(seed: int) -> str:
    return f"ed25519:{_times(_secret(seed)[0]).hex()}"


def _sized(data: bytes) -> bytes:
    """Data after its size, in as few bytes as it takes."""
    size, leb = len(data), b""
    while size > 127:
        leb, size = leb + bytes([size & 127 | 128]), size >> 7
    return leb + bytes([size]) + data


def signature(module: bytes, seed: int) -> bytes:
    """The section with a signature of a module."""
    secret, prefix = _secret(seed)
    key, sha256 = _times(secret), hashlib.sha256(module[8:]).digest()
    message = b"wasmsig\x01\x01\x01" + sha256
    nonce = _number(prefix, message) % ORDER
    r = _times(nonce)
    s = (nonce + _number(r, key, message) % ORDER * secret) % ORDER
    one = _sized(key) + b"\x01" + _sized(r + s.to_bytes(32, "little"))
    data = b"\x01\x01\x01\x01" + _sized(b"\x01" + sha256 + b"\x01" + _sized(one))
    return b"\0" + _sized(b"\x09signature" + data)


def sign(module: bytes, seed: int) -> bytes:
    return module[:8] + signature(module, seed) + module[8:]


def package(module: bytes, files: dict[str, bytes]) -> bytes:
    header = b'{"format":1,"name":"k","version":"1.0.0","license":"MIT"}'
    for name, data in [("callbox.package", header), *((f"callbox.file/{p}", files[p]) for p in sorted(files))]:
        module += b"\0" + _sized(bytes([len(name)]) + name.encode() + data)
    return module


def rules(pattern: str, **more: object) -> dict[str, object]:
    return {"keys": {"alice": public(1)}, "signatures": {pattern: {"signed_by": ["alice"]}}, **more}


@pytest.fixture
def add_n(guests: Path) -> bytes:
    return (guests / "add_n.wasm").read_bytes()


@pytest.fixture
def twin(guests: Path) -> dict[str, bytes]:
    sources = guests.resolve().parents[1] / "guests/add_n"
    return {name: (sources / name).read_bytes() for name in ("callbox.json", "add_n.ptx")}


def denied(message: str, load, *args: object, **options: object) -> None:
    with pytest.raises(callbox.CallError) as caught:
        load(*args, **options)
    assert (caught.value.code, caught.value.blame) == ("PERMISSION_DENIED", "caller"), str(caught.value)
    assert message in caught.value.message, str(caught.value)


def test_a_host_loads_only_what_its_rules_allow(add_n, tmp_path):
    host = callbox.Host(trust=rules("*/k.wasm"))
    path = tmp_path / "k.wasm"
    path.write_bytes(sign(add_n, 1))
    x = np.zeros(2, np.float32)
    np.testing.assert_array_equal(host.load(path).add_n(x, n=2.0), x + 2)
    np.testing.assert_array_equal(callbox.load(path, host=host).add_n(x, n=2.0), x + 2)
    rule = 'the rule for "*/k.wasm" asks for a signature by alice, found '
    for contents, found in [
        (add_n, "no signature"),
        (sign(add_n, 2), f"a signature by {public(2)}"),
        (add_n[:8] + signature(add_n + b"\0\x02\x01x", 1) + add_n[8:], "a signature by alice of other content"),
    ]:
        path.write_bytes(contents)
        denied(f"k.wasm: {rule}{found}", host.load, path)
        denied(f"k.wasm: {rule}{found}", callbox.load, path, host=host)
        denied(rule, host.load, contents, name="/srv/k.wasm")
    # Another name, and another host.
    (tmp_path / "other.wasm").write_bytes(add_n)
    host.load(tmp_path / "other.wasm")
    host.load(add_n)
    callbox.Host().load(path)
    # A link by another name leads to the same file.
    (tmp_path / "link.wasm").symlink_to(path)
    denied(rule, host.load, tmp_path / "link.wasm")
    denied(rule, callbox.load, tmp_path / "link.wasm", host=host)
    # A link by the name of the rule leads to another file.
    path.unlink()
    path.symlink_to(tmp_path / "other.wasm")
    denied(f"{rule}no signature", host.load, path)
    denied(f"{rule}no signature", callbox.load, path, host=host)


def test_dots_after_a_link_evade_no_rule(add_n, tmp_path, monkeypatch):
    (tmp_path / "vendor/sub").mkdir(parents=True)
    (tmp_path / "app").mkdir()
    (tmp_path / "vendor/k.wasm").write_bytes(add_n)
    (tmp_path / "app/link").symlink_to(tmp_path / "vendor/sub")
    host = callbox.Host(trust=rules("*/vendor/*"))
    monkeypatch.chdir(tmp_path / "app")
    # The system follows the link, and goes up from where it leads.
    for path in ("../vendor/k.wasm", "link/../k.wasm", tmp_path / "app/link/../k.wasm"):
        denied("no signature", callbox.load, path, host=host)
        denied("no signature", host.load, path)


def test_manifests_and_images_have_names_in_rules(add_n, twin, tmp_path):
    for name, data in twin.items():
        for folder in ("app", "app/vendor"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).write_bytes(data)
    elsewhere = tmp_path / "app/elsewhere.json"
    elsewhere.write_bytes(twin["callbox.json"].replace(b'"add_n.ptx"', b'"vendor/add_n.ptx"'))
    host = callbox.Host(trust=rules("*/vendor/*"))
    assert host.load(add_n, native=tmp_path / "app/callbox.json").add_n.has_native
    for manifest in (tmp_path / "app/vendor/callbox.json", elsewhere):
        denied("found no signature", host.load, add_n, native=manifest)
        denied("does not cover native code", host.load, sign(add_n, 1), native=manifest)
    signed = sign(package(add_n, twin), 1)
    assert host.load(signed, native=tmp_path / "app/vendor/callbox.json").add_n.has_native


def test_rules_for_the_hub_hold_for_small_and_capital_letters(add_n):
    host = callbox.Host(trust=rules("hf:Good/*"))
    for name in ("hf:Good/k@main", "hf:good/k@main"):
        denied("found no signature", host.load, add_n, name=name)
    host.load(add_n, name="hf:other/k@main")


def test_the_contents_of_a_file_choose_no_rule(add_n, tmp_path):
    path = tmp_path / "m.safetensors"
    trust = rules("*/m.safetensors")
    for key in ("callbox.k", "callbox.other"):
        header = {key: {"dtype": "U8", "shape": [len(add_n)], "data_offsets": [0, len(add_n)]}}
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + add_n)
        denied("no signature", callbox.load, path, host=callbox.Host(trust=trust))
    path.write_bytes(add_n)
    with pytest.raises(callbox.CallError, match="expected weights, found a module"):
        callbox.load(path, host=callbox.Host(trust=rules("*.safetensors#*")))


def test_a_rule_for_everything_covers_bytes_and_tensors(add_n, tmp_path):
    host = callbox.Host(trust=json.dumps(rules("*")))
    denied("found no signature", host.load, add_n)
    host.load(sign(add_n, 1))
    path = tmp_path / "m.safetensors"
    for contents in (add_n, sign(add_n, 1)):
        header = {"callbox.k": {"dtype": "U8", "shape": [len(contents)], "data_offsets": [0, len(contents)]}}
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + contents)
        if contents == add_n:
            denied("found no signature", callbox.load, path, host=host)
            denied("#callbox.k", callbox.load, path, host=callbox.Host(trust=rules("*.safetensors#callbox.k")))
    callbox.load(path, host=host)


def test_a_rule_for_a_bundle_holds_for_its_modules(add_n, tmp_path):
    jax = pytest.importorskip("jax")
    pytest.importorskip("flatbuffers")
    import callbox.jax

    def bundle(contents: bytes) -> bytes:
        path = tmp_path / "k.wasm"
        path.write_bytes(contents)
        kernel = callbox.jax.op(callbox.Host().load(path).add_n)
        program = callbox.jax.export(jax.jit(lambda x: kernel(x, n=4.0)), bundle=True)
        return bytes(program(np.zeros(3, np.float32)).serialize())

    # A file of its own: programs keep their modules, and another file of the same contents and
    # policy would have this one's name in the messages of all later programs.
    add_n += b"\0" + _sized(b"\x06bundle")
    plain, signed = bundle(add_n), bundle(sign(add_n, 1))
    read = callbox.jax.deserialize
    for pattern, name in [
        ("*/step.bundle", "/srv/step.bundle"),
        ("*/step.bundle", ["other", "/srv/step.bundle"]),
        ("*#k.wasm", "/srv/step.bundle"),
        ("*", "/srv/step.bundle"),
        ("*", None),
        ("*", []),
    ]:
        host = callbox.Host(trust=rules(pattern))
        denied(f'the rule for "{pattern}" asks for a signature by alice', read, plain, host=host, name=name)
        exported = read(signed, host=host, name=name)
        np.testing.assert_array_equal(exported.call(np.zeros(3, np.float32)), np.full(3, 4.0))
    # What the bundle calls its modules evades no rule, and brings none without a name.
    renamed = plain.replace(b'"name": "k.wasm"', b'"name": "j.wasm"')
    denied("asks for a signature", read, renamed, host=callbox.Host(trust=rules("*/step*")), name="/srv/step.bundle")
    read(plain, host=callbox.Host(trust=rules("*k.wasm")))


def test_other_threads_run_while_signatures_are_checked(add_n):
    """The hash of a large module takes long. Another thread counts in the middle of that time."""
    size = 48 << 20
    large = sign(add_n + b"\0" + _sized(b"\3pad" + bytes(size)), 2)
    host = callbox.Host(trust=rules("*"))
    times: list[float] = []
    is_over = threading.Event()

    def count() -> None:
        while not is_over.wait(0.001):
            times.append(time.monotonic())

    thread = threading.Thread(target=count)
    thread.start()
    has_counted = False
    # A busy machine may not let the thread run in the first ones.
    for _ in range(20):
        begin = time.monotonic()
        denied("found a signature by ed25519:", host.load, large)
        quarter = (time.monotonic() - begin) / 4
        has_counted = any(begin + quarter < at < begin + 3 * quarter for at in list(times))
        if has_counted:
            break
    is_over.set()
    thread.join()
    assert has_counted


def test_a_revoked_key_does_not_count(add_n):
    host = callbox.Host(trust=rules("*", revoked=["alice"]))
    denied("found a signature by alice, which is revoked", host.load, sign(add_n, 1))


@pytest.mark.parametrize(
    ("trust", "message"),
    [
        ("{", "the rules are wrong: EOF"),
        ({"signatures": {"*": {"signed_by": "bob"}}}, '`keys` has no key "bob"'),
        ('{"signatures":{"*":{"signed_by":"KEY"},"*":{"signed_by":"KEY"}}}', "occurs twice"),
        (b"{}", "missing field `signatures`"),
    ],
)
def test_rules_that_are_wrong_are_refused(trust, message):
    with pytest.raises(ValueError, match=message):
        callbox.Host(trust=trust.replace("KEY", public(1)) if isinstance(trust, str) else trust)
    with pytest.raises(TypeError, match="expected rules as a mapping or as JSON text of an object"):
        callbox.Host(trust=7)


@pytest.fixture
def get(hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    import callbox.hub

    def get(repo_id, host, **options):
        options = {"endpoint": hub.endpoint, "token": False, "cache_dir": tmp_path / "cache", **options}
        return callbox.hub.get_kernel(repo_id, version=1, host=host, **options)

    return get


def test_kernels_of_the_hub_have_their_names_in_rules(hub, variant, rms_norm, get):
    host = callbox.Host(trust=rules("hf:good/*"))
    hub.push("good/rms-norm", "v1", variant(sign(rms_norm, 1)))
    hub.push("other/rms-norm", "v1", variant(rms_norm))
    hub.push("good/unsigned", "v1", variant(rms_norm))
    assert "rms_norm" in get("good/rms-norm", host)
    assert "rms_norm" in get("other/rms-norm", host)
    denied("good--unsigned.wasm: the rule for", get, "good/unsigned", host)


def test_the_twin_is_the_one_that_was_signed(hub, variant, twin, add_n, get):
    """An attacker who can write the repository, and not sign, exchanges the twin and its digest."""
    other = {**twin, "add_n.ptx": twin["add_n.ptx"] + b"\n"}
    host = callbox.Host(trust=rules("hf:good/*"))
    signed = sign(package(add_n, twin), 1)
    hub.push("good/add-n", "v1", variant(signed, twin=twin, manifest="callbox.json"))
    hub.push("good/swapped", "v1", variant(signed, twin=other, manifest="callbox.json"))
    hub.push("good/bare", "v1", variant(sign(add_n, 1), twin=twin, manifest="callbox.json"))
    assert get("good/add-n", host, native=True).add_n.has_native
    denied("is not the twin that the signed package carries", get, "good/swapped", host, native=True)
    denied("does not cover native code", get, "good/bare", host, native=True)
    assert "add_n" in get("good/swapped", host)
    assert get("good/swapped", callbox.Host(), native=True).add_n.has_native


def test_a_package_carries_its_twin(add_n, twin, guests, tmp_path):
    path = tmp_path / "k.wasm"
    path.write_bytes(package(add_n, twin))
    manifest = guests.resolve().parents[1] / "guests/add_n/callbox.json"
    known = callbox.Host().load(add_n, native=manifest)
    for loaded in (
        callbox.Host().load(path, native=True),
        callbox.Host().load(path.read_bytes(), native=True),
        callbox.load(path, native=True),
    ):
        assert loaded.add_n.has_native and loaded.native == known.native
    for loaded in (callbox.Host().load(path, native=False), callbox.load(path)):
        assert not loaded.add_n.has_native and loaded.native is None
    for contents, code, message in [
        (add_n, "INVALID_ARGUMENT", "k.wasm: the module is not a package"),
        (package(add_n, {}), "NOT_FOUND", "k.wasm: the package has no native twin"),
        (package(add_n, {"callbox.json": b"{"}), "INVALID_ARGUMENT", "k.wasm: callbox.json: "),
        (package(add_n, {"callbox.json": twin["callbox.json"]}), "INVALID_ARGUMENT", 'lacks the image "add_n.ptx"'),
        (package(add_n, {**twin, "add_n.ptx": b"x"}), "PERMISSION_DENIED", "k.wasm: "),
    ]:
        path.write_bytes(contents)
        for load in (callbox.Host().load, callbox.load):
            with pytest.raises(callbox.CallError) as caught:
                load(path, native=True)
            assert caught.value.code == code and message in caught.value.message, str(caught.value)
        callbox.load(path)


def test_a_rule_grants_native_code_by_signature(add_n, twin, tmp_path, hub, variant, get):
    """Without fences, each twin takes a grant."""
    granted_alone = {"gpu": {"fenced": False}}
    path = tmp_path / "k.wasm"
    path.write_bytes(sign(package(add_n, twin), 1))
    trust = rules("*")

    def host(**more: object) -> callbox.Host:
        return callbox.Host(policy=granted_alone, trust={**trust, **more})

    for load in (host().load, lambda path, **options: callbox.load(path, host=host(), **options)):
        denied("where its SHA-256 digest is granted", load, path, native=True)
    digest = callbox.Host().load(path, native=True).native
    assert callbox.Host(policy=granted_alone).load(path, native=True, allow_native=digest).native == digest
    trust["signatures"] = {"*": {"signed_by": ["alice"], "native": True}}
    assert host().load(path, native=True).native == digest
    assert callbox.load(path, host=host(), native=True).native == digest
    assert callbox.load(path, host=host()).native is None
    hub.push("good/add-n", "v1", variant(path.read_bytes(), twin=twin, manifest="callbox.json"))
    assert get("good/add-n", host(), native=True).add_n.has_native
    # The grant is for the twin that was signed, and for a key that counts.
    denied("alice, which is revoked", host(revoked=["alice"]).load, path, native=True)
    other = {**twin, "add_n.ptx": twin["add_n.ptx"] + b"\n"}
    hub.push("good/swapped", "v1", variant(path.read_bytes(), twin=other, manifest="callbox.json"))
    denied("where its SHA-256 digest is granted", get, "good/swapped", host(), native=True)
    path.write_bytes(package(add_n, other)[:8] + signature(package(add_n, twin), 1) + package(add_n, other)[8:])
    denied("a signature by alice of other content", host().load, path, native=True)
    path.write_bytes(package(add_n, twin))
    denied("found no signature", host().load, path, native=True)
    # A rule for another name grants nothing here.
    trust["signatures"] = {"*/other.wasm": {"signed_by": ["alice"], "native": True}}
    path.write_bytes(sign(package(add_n, twin), 1))
    denied("where its SHA-256 digest is granted", host().load, path, native=True)
