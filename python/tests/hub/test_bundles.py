"""Bundles of signatures of the OpenSSF model-signing format: beside files, and of the Hub.

The signatures here are made by an implementation of its own, after FIPS 186-5.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import callbox

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def _add(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    rise, run = (3 * a[0] * a[0] - 3, 2 * a[1]) if a == b else (b[1] - a[1], b[0] - a[0])
    slope = rise * pow(run, -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def _times(number: int) -> tuple[int, int]:
    total, point = None, BASE
    while number:
        if number & 1:
            total = _add(total, point)
        point, number = _add(point, point), number >> 1
    return total


def public(secret: int) -> str:
    x, y = _times(secret)
    return f"ecdsa-p256:04{x:064x}{y:064x}"


def _integer(number: int) -> bytes:
    data = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return bytes([2, len(data)]) + data


def _signature(message: bytes, secret: int) -> bytes:
    digest = hashlib.sha256(message).digest()
    nonce = int.from_bytes(hashlib.sha256(digest + bytes([secret])).digest(), "big") % ORDER
    r = _times(nonce)[0] % ORDER
    s = pow(nonce, -1, ORDER) * (int.from_bytes(digest, "big") + r * secret) % ORDER
    both = _integer(r) + _integer(s)
    return bytes([0x30, len(both)]) + both


def bundle(files: dict[str, bytes], secret: int) -> bytes:
    """The bundle of a folder, or of one file with the name `.`."""
    digests = {name: hashlib.sha256(files[name]).digest() for name in sorted(files)}
    root = hashlib.sha256(b"".join(digests.values())).hexdigest()
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "k", "digest": {"sha256": root}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
            "resources": [
                {"name": name, "algorithm": "sha256", "digest": digest.hex()} for name, digest in digests.items()
            ],
        },
    }
    payload, kind = json.dumps(statement).encode(), b"application/vnd.in-toto+json"
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    signature = base64.b64encode(_signature(message, secret)).decode()
    return json.dumps(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": ""}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": kind.decode(),
                "signatures": [{"sig": signature, "keyid": ""}],
            },
        }
    ).encode()


def rules(pattern: str, **more: object) -> dict[str, object]:
    return {"keys": {"alice": public(11), "bob": public(12)}, "signatures": {pattern: {"signed_by": "alice"}}, **more}


def denied(message: str, load, *args: object, **options: object) -> None:
    with pytest.raises(callbox.CallError) as caught:
        load(*args, **options)
    assert (caught.value.code, message in caught.value.message) == ("PERMISSION_DENIED", True), str(caught.value)


def test_a_bundle_beside_a_file_counts(guests: Path, tmp_path):
    module = (guests / "add_n.wasm").read_bytes()
    path, beside = tmp_path / "k.wasm", tmp_path / "k.wasm.sig"
    path.write_bytes(module)
    host = callbox.Host(trust=rules("*/k.wasm"))
    signed = bundle({".": module}, 11)
    x = np.zeros(2, np.float32)

    def loads():
        yield host.load, (path,), {}
        yield callbox.load, (path,), {"host": host}

    for load, args, options in loads():
        beside.unlink(missing_ok=True)
        denied("found no signature", load, *args, **options)
        beside.write_bytes(signed)
        np.testing.assert_array_equal(load(*args, **options).add_n(x, n=2.0), x + 2)
        for contents, message in [
            (bundle({".": module}, 12), "found a bundle by another key"),
            (bundle({".": module + b"\0"}, 11), "found a bundle of other content"),
        ]:
            beside.write_bytes(contents)
            denied(message, load, *args, **options)
        beside.write_bytes(b"{}")
        with pytest.raises(callbox.CallError, match="INVALID_ARGUMENT: .*the bundle is malformed"):
            load(*args, **options)
        beside.write_bytes(b" " * ((16 << 20) + 1))
        with pytest.raises(callbox.CallError, match="expected a bundle of at most 16777216 bytes"):
            load(*args, **options)
    # Bytes have the bundle that the caller names. A file beside another one does not count.
    denied("found no signature", host.load, module, name="/srv/k.wasm")
    host.load(module, name="/srv/k.wasm", bundle=signed)
    denied("another key", host.load, module, name="/srv/k.wasm", bundle=bundle({".": module}, 12))
    revoked = callbox.Host(trust=rules("*", revoked=["alice"]))
    denied("which is revoked", revoked.load, module, bundle=signed)
    # Without a rule for it, a bundle is not read.
    beside.write_bytes(b"{}")
    callbox.Host(trust=rules("hf:*")).load(path)
    callbox.Host().load(path)


def test_a_keyless_bundle_proves_an_identity(tmp_path):
    kept = Path(__file__).parents[3] / "host/package/tests/bundles"
    module, signed = b"\0asm\1\0\0\0", (kept / "keyless.sig").read_bytes()
    alice = {"identity": "alice@example.com", "issuer": "https://accounts.example.com"}

    def host(root: object, **signer: str) -> callbox.Host:
        return callbox.Host(trust={"signatures": {"*": {"signed_by": [{**alice, **signer}]}}, "trusted_root": root})

    for root in [str(kept / "trusted_root.json"), json.loads((kept / "trusted_root.json").read_text())]:
        # The rules hold, and the signed module is an empty one.
        with pytest.raises(ValueError, match="the module has no targets"):
            host(root).load(module, bundle=signed)
        denied("another identity", host(root, identity="bob@example.com").load, module, bundle=signed)
        denied("another issuer", host(root, issuer="https://example.com").load, module, bundle=signed)
        denied("found no signature", host(root).load, module)
        denied("a bundle of other content", host(root).load, module + b"\0\1\0", bundle=signed)
    with pytest.raises(callbox.CallError, match="NOT_FOUND: .*none.json"):
        host(str(tmp_path / "none.json"))
    with pytest.raises(callbox.CallError, match="INVALID_ARGUMENT: .*the trusted root is wrong"):
        host({})


def test_bundles_of_the_hub_count(hub, good, get, rms_norm, variant, tmp_path):
    host = callbox.Host(trust=rules("hf:good/*"))

    def asked() -> list[str]:
        return [path for path in hub.got() if path.endswith(".sig")]

    denied("found no signature", get, host=host)
    assert [path.split("/", 1)[1] for path in asked()] == []
    files = dict(hub.commits["good/rms-norm", good])
    module = "build/callbox-wasm32/rms-norm.wasm"
    for number, (path, signed) in enumerate(
        [(f"{module}.sig", bundle({".": rms_norm}, 11)), ("model.sig", bundle(files, 11))]
    ):
        commit = hub.push("good/rms-norm", "v1", {**files, path: signed})
        cache = tmp_path / str(number)
        assert get(host=host, cache_dir=cache).commit == commit
        # It is kept, and counts offline.
        assert get(host=host, cache_dir=cache, local_files_only=True).commit == commit
    for signed, code, message in [
        (bundle({".": rms_norm}, 12), "PERMISSION_DENIED", "a bundle by another key"),
        (bundle({".": b"other"}, 11), "PERMISSION_DENIED", "a bundle of other content"),
        (b"[]", "INVALID_ARGUMENT", "the bundle is malformed"),
        (b" " * ((16 << 20) + 1), "RESOURCE_EXHAUSTED", "expected at most 16777216 bytes"),
    ]:
        hub.push("good/rms-norm", "v1", {**files, f"{module}.sig": signed})
        with pytest.raises(callbox.CallError) as caught:
            get(host=host)
        assert (caught.value.code, message in caught.value.message) == (code, True), str(caught.value)
    before = len(asked())
    get(host=callbox.Host(trust=rules("*/other.wasm")))
    assert len(asked()) == before


@pytest.mark.parametrize("lists_referrers", [True, False])
def test_bundles_in_a_registry_count(registry, guests, lists_referrers):
    add_n = (guests / "add_n.wasm").read_bytes()
    digest = hashlib.sha256(add_n).hexdigest()
    registry.lists_referrers = lists_referrers
    subject = registry.push("1", add_n)
    reference = f"oci:{registry.host}/org/add-n:1"
    trust = {"keys": {"alice": public(11)}, "signatures": {"oci:*": {"signed_by": "alice"}}}
    host = callbox.Host(trust=trust)
    denied("found no signature", callbox.load, reference, host=host)

    other = bundle({".": b"other"}, 11)
    registry.push_bundles(subject, other, b"{}")
    with pytest.raises(callbox.CallError):
        callbox.load(reference, host=host)
    # Those of others do not hide the one that counts.
    registry.push_bundles(subject, bundle({".": add_n}, 11), bundle({".": add_n}, 12), b"{}")
    assert callbox.load(reference, host=host).digest == digest
    asked = len(registry.paths)
    assert callbox.load(reference, host=host, offline=True).digest == digest
    assert len(registry.paths) == asked
    # Without a rule about bundles, none is asked for.
    callbox.load(reference)
    assert not any("referrers" in path for path in registry.paths[asked:])
