"""Hubs and repositories that lie."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import time
import traceback
import types

import pytest

import callbox

METADATA = "build/callbox-wasm32/metadata.json"


def wasm(request):
    return request.path.endswith(".wasm")


def test_large_files_come_from_another_host_without_the_token(hub, storage, good, get, rms_norm):
    hub.storage = storage.endpoint

    def serve(request, answer):
        assert request.path == f"/{hashlib.sha256(rms_norm).hexdigest()}"
        answer.status, answer.headers, answer.body = 200, {}, rms_norm

    storage.lie = serve
    assert get(token="hf_secret").commit == good
    assert [request.method for request in storage.requests] == ["GET"]
    assert {"authorization", "Authorization"}.isdisjoint(storage.requests[0].headers)
    asked = [request for request in hub.requests if request.path.startswith("/kernels/")]
    assert {request.headers["authorization"] for request in asked} == {"Bearer hf_secret"}


def test_a_download_that_is_redirected_again_takes_no_token_along(hub, storage, good, get, rms_norm):
    def redirect(request, answer):
        if wasm(request) and request.method == "GET":
            answer.status, answer.headers, answer.body = 302, {"Location": f"{storage.endpoint}/x"}, b""

    def serve(_request, answer):
        answer.status, answer.headers, answer.body = 200, {}, rms_norm

    hub.lie, storage.lie = redirect, serve
    assert get(token="hf_secret").commit == good
    assert len(storage.requests) == 1
    assert {"authorization", "Authorization"}.isdisjoint(storage.requests[0].headers)


def test_metadata_from_another_host_is_refused(hub, storage, good, fails):
    def redirect(request, answer):
        if request.path.endswith("metadata.json"):
            answer.status, answer.headers["Location"] = 302, f"{storage.endpoint}/metadata.json"

    hub.lie = redirect
    fails("PERMISSION_DENIED", "the hub redirects to another host")
    assert not storage.requests


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x"])
def test_redirects_to_other_schemes_are_refused(hub, good, fails, location):
    def redirect(request, answer):
        if wasm(request):
            answer.status, answer.headers["Location"] = 302, location

    hub.lie = redirect
    fails("PERMISSION_DENIED", "the hub redirects from https")


@pytest.mark.parametrize("location", ["http://127.0.0.1:99999/x", "http://[1/x", "http://127.0.0.1:x/"])
def test_redirects_to_no_address_are_refused(hub, good, get, location):
    def redirect(request, answer):
        if wasm(request):
            answer.status, answer.headers["Location"] = 302, location

    hub.lie = redirect
    with pytest.raises(callbox.CallError) as caught:
        get()
    # Some versions of the client look at the address themselves.
    assert caught.value.code in ("DATA_LOSS", "UNAVAILABLE"), str(caught.value)


def test_another_repository_in_place_of_the_named_one_is_refused(hub, variant, good, rms_norm, fails, get):
    hub.push("g00d/rms-norm", "v1", variant(rms_norm))
    renamed = hub.branches["g00d/rms-norm", "v1"]

    def redirect(request, answer):
        if request.path.startswith("/kernels/good/"):
            answer.status, answer.headers = 307, {"Location": request.path.replace("/good/", "/g00d/")}

    hub.lie = redirect
    fails("PERMISSION_DENIED", "answers with another repository: '/kernels/g00d/rms-norm/resolve/v1/")
    assert get("g00d/rms-norm").commit == renamed


def test_redirects_on_the_hub_that_name_the_repository_are_followed(hub, good, get):
    def redirect(request, answer):
        if "?again" not in request.path and request.method == "HEAD":
            answer.status, answer.headers = 307, {"Location": f"{request.path}?again"}
        elif "?again" in request.path:
            repaired = type(request)(request.method, request.path.removesuffix("?again"), request.headers)
            right = hub._answer(repaired)
            answer.status, answer.headers, answer.body = right.status, right.headers, right.body

    hub.lie = redirect
    assert get().commit == good


@pytest.mark.parametrize(
    "repo_id",
    [
        "g\u043eod/rms-norm",
        "good/rms\u2212norm",
        "good",
        "good/",
        "/rms-norm",
        "../good/x",
        "good/..",
        "good/a/b",
        "good\n/x",
        "",
    ],
)
def test_names_that_look_alike_or_lead_elsewhere_are_refused(hub, fails, repo_id):
    error = fails("INVALID_ARGUMENT", "expected ORG/NAME of ASCII letters", repo_id=repo_id)
    assert str(error).isascii() and not hub.requests


def test_a_branch_that_moves_between_look_and_load_gives_one_commit(hub, variant, good, rms_norm, get, guests):
    other = variant((guests / "add_n.wasm").read_bytes(), version="1.0.1")

    def move(request, answer):
        if request.path.endswith("metadata.json"):
            hub.push("good/rms-norm", "v1", other)

    hub.lie = move
    kernel = get()
    assert (kernel.commit, kernel.version, "rms_norm" in kernel) == (good, "1.0.0", True)
    assert hub.branches["good/rms-norm", "v1"] != good
    kernel = get()
    assert (kernel.version, "add_n" in kernel) == ("1.0.1", True)


def test_a_commit_that_the_hub_swaps_is_refused(hub, good, fails):
    def swap(request, answer):
        if "/v1/" not in request.path:
            answer.headers["X-Repo-Commit"] = "1" * 40

    hub.lie = swap
    fails("DATA_LOSS", f"expected the commit {good}, the hub answered with {'1' * 40}")


@pytest.mark.parametrize("commit", ["../../../escaped", "main", "A" * 40, ""])
def test_a_commit_that_is_none_is_refused(hub, good, fails, tmp_path, commit):
    hub.lie = lambda request, answer: answer.headers.update({"X-Repo-Commit": commit})
    before = sorted(tmp_path.parent.iterdir())
    fails("DATA_LOSS", "expected a commit of 40 hexadecimal digits")
    assert sorted(tmp_path.parent.iterdir()) == before


def test_an_etag_is_no_path(hub, good, get, tmp_path):
    hub.lie = lambda request, answer: answer.headers.update({"ETag": '"../../../escaped"'})
    get(cache_dir=tmp_path / "a/b/c/d")
    assert not list(tmp_path.rglob("escaped*"))


def other_bytes(answer):
    answer.body = answer.body[:-1] + b"\xff"


def more_bytes(answer):
    del answer.headers["ETag"]
    answer.headers["Transfer-Encoding"] = "chunked"
    chunk = b"%x\r\n%s\r\n" % (1 << 20, bytes(1 << 20))
    answer.body = chunk * 8 + b"0\r\n\r\n"


def fewer_bytes(answer):
    answer.body = answer.body[:-1]


def a_bomb(answer):
    answer.headers["Content-Encoding"] = "gzip"
    answer.body = gzip.compress(bytes(64 << 20))


@pytest.mark.parametrize(
    ("lie", "code", "message"),
    [
        (other_bytes, "DATA_LOSS", "rms-norm.wasm: expected "),
        (more_bytes, "RESOURCE_EXHAUSTED", "the hub sends more"),
        (fewer_bytes, "UNAVAILABLE", " bytes, the hub sent "),
        (a_bomb, "DATA_LOSS", "the hub sends them as "),
    ],
)
def test_other_bytes_than_the_metadata_names_are_refused(hub, good, get, fails, lie, code, message):
    def get_lies(request, answer):
        if wasm(request) and request.method == "GET":
            lie(answer)

    hub.lie = get_lies
    fails(code, message)
    # Nothing of it was kept.
    fails(code, message)
    hub.lie = lambda request, answer: None
    assert get().commit == good


@pytest.mark.parametrize(
    ("path", "size", "code", "message"),
    [
        (".wasm", "7", "DATA_LOSS", "bytes, the hub says 7"),
        (".json", str(1 << 40), "RESOURCE_EXHAUSTED", "expected at most 262144 bytes, the hub says 1099511627776"),
    ],
)
def test_a_size_that_is_a_lie_is_refused(hub, good, fails, path, size, code, message):
    def claim(request, answer):
        if request.path.endswith(path) and request.method == "HEAD":
            answer.headers["Content-Length"] = size

    hub.lie = claim
    fails(code, message)


def test_metadata_without_end_is_refused(hub, good, fails):
    def endless(request, answer):
        if request.path.endswith(".json") and request.method == "GET":
            more_bytes(answer)

    hub.lie = endless
    fails("RESOURCE_EXHAUSTED", "expected at most 262144 bytes, the hub sends more")


@pytest.mark.parametrize(("status", "problem"), [(500, "Server error '500"), (404, "Client error '404"), (302, None)])
def test_the_bodies_of_errors_and_redirects_are_not_read(hub, good, get, fails, status, problem):
    sent = []

    answer = hub.serve

    def serve(handler):
        if handler.command != "GET" or not handler.path.endswith(".wasm"):
            # The answer to a redirect's address is the file.
            handler.path = handler.path.removesuffix("?again")
            answer(handler)
            return
        handler.send_response(status)
        handler.send_header("Location", f"{handler.path}?again")
        handler.end_headers()
        handler.close_connection = True
        # What the sockets hold is sent whether the client reads it or not.
        with contextlib.suppress(OSError):
            for _ in range(1024):
                handler.wfile.write(bytes(1 << 20))
                sent.append(1)

    hub.serve = serve
    if problem is None:
        assert get().commit == good
    else:
        fails("UNAVAILABLE", f"rms-norm.wasm: {problem}")
    assert len(sent) < 512


def test_tracebacks_show_no_controls_of_a_hub(hub, good, fails):
    def break_down(request, answer):
        if wasm(request) and request.method == "HEAD":
            answer.status, answer.headers["X-Error-Message"] = 500, "clear\x9b2Jthe screen"

    hub.lie = break_down
    error = fails("UNAVAILABLE", "Server error '500")
    shown = "".join(traceback.format_exception(error))
    assert shown.replace("\n", "").isprintable(), shown


def test_redirects_without_end_are_given_up(hub, good, fails):
    def redirect(request, answer):
        if wasm(request) and request.method == "GET":
            answer.status, answer.headers, answer.body = 302, {"Location": request.path}, b""

    hub.lie = redirect
    fails("UNAVAILABLE", "rms-norm.wasm: expected at most 5 redirects")
    assert sum(path.endswith(".wasm") for path in hub.got()) == 6


def test_metadata_that_leaves_the_hub_when_it_is_downloaded_is_refused(hub, storage, good, fails):
    def redirect(request, answer):
        if request.path.endswith("metadata.json") and request.method == "GET":
            answer.status, answer.headers["Location"] = 302, f"{storage.endpoint}/metadata.json"

    hub.lie = redirect
    fails("PERMISSION_DENIED", "the hub redirects to another host")
    assert not storage.requests


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The pauses before downloads begin anew, which do not last in the test."""
    pauses: list[float] = []
    clock = types.SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr("callbox.hub._client.time", clock)
    return pauses


def test_a_hub_that_breaks_off_each_time_is_given_up(hub, good, fails, pauses):
    def break_off(request, answer):
        if wasm(request) and request.method == "GET":
            answer.headers["Content-Length"] = str(len(answer.body))
            answer.body = answer.body[:100]

    hub.lie = break_off
    fails("UNAVAILABLE", "rms-norm.wasm: the download failed 4 times: ")
    assert sum(path.endswith(".wasm") for path in hub.got()) == 4
    assert pauses == [1, 2, 4]


def test_a_hub_that_asks_to_come_back_much_later_is_given_up(hub, good, fails, pauses):
    def later(request, answer):
        if request.method == "GET":
            answer.status, answer.headers, answer.body = 429, {"Retry-After": "3600"}, b""

    hub.lie = later
    fails("UNAVAILABLE", "failed 1 times: 429: the hub asks to come back in 3600 seconds")
    assert not pauses


def test_a_hub_that_asks_to_come_back_soon_is_asked_again(hub, good, get, pauses):
    busy = iter(["7", "", "soon"])

    def later(request, answer):
        if request.method == "GET" and (after := next(busy, None)) is not None:
            answer.status, answer.headers, answer.body = 429, {"Retry-After": after}, b""

    hub.lie = later
    assert get().commit == good
    assert pauses == [7, 2, 4]


def test_a_download_that_takes_very_long_is_given_up(good, fails, monkeypatch):
    # Each look at the clock finds that half an hour has passed.
    seconds = iter(range(0, 1 << 30, 1801))
    monkeypatch.setattr("callbox.hub._client.time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    error = fails("UNAVAILABLE", "metadata.json: the hub sent 0 bytes in 1800 s")
    assert error.blame == "host"


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"format": 2}, "INVALID_ARGUMENT", "expected `format` 1, found 2"),
        ({"name": "RMS"}, "INVALID_ARGUMENT", "expected a `name`"),
        ({"version": "1"}, "INVALID_ARGUMENT", "expected a `version`"),
        ({"version": 1}, "INVALID_ARGUMENT", "expected `version` of metadata.json to be of type str"),
        ({"license": "MIT\x1b[2J"}, "INVALID_ARGUMENT", "expected a `license` that can be shown, found 'MIT\\x1b[2J'"),
        ({"license": "M" * 4097}, "INVALID_ARGUMENT", "expected a `license` that can be shown"),
        ({"format": True}, "INVALID_ARGUMENT", "expected `format` of metadata.json to be of type int"),
        ({"auto_map": "x.py"}, "INVALID_ARGUMENT", "'auto_map' is not a key of metadata.json"),
        ({"module": "x.wasm"}, "INVALID_ARGUMENT", "`module` is 'x.wasm', which is not in `files`"),
        ({"manifest": "x.json"}, "INVALID_ARGUMENT", "`manifest` is 'x.json', which is not in `files`"),
        ({"derivatives": {"a": 1}}, "INVALID_ARGUMENT", "expected names of targets"),
        ({"files": [{}]}, "INVALID_ARGUMENT", "an entry of `files` lacks `path`"),
        ({"files": [7]}, "INVALID_ARGUMENT", "expected an object for an entry of `files`"),
        ({"files": [{"path": "a", "size": 1, "sha256": "sha1:00"}]}, "INVALID_ARGUMENT", "expected a SHA-256 of 64"),
        ({"files": [{"path": "a", "size": -1, "sha256": "0" * 64}]}, "INVALID_ARGUMENT", "expected a size of 'a'"),
        ({"files": [{"path": "a", "size": 1 << 40, "sha256": "0" * 64}]}, "RESOURCE_EXHAUSTED", "files of at most"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0" * 64}] * 1025}, "RESOURCE_EXHAUSTED", "at most 1024 files"),
    ],
)
def test_wrong_metadata_is_refused(hub, variant, rms_norm, fails, changes, code, message):
    hub.push("good/rms-norm", "v1", variant(rms_norm, **changes))
    fails(code, message)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../x", "a/../../x", "a//b", "./a", ".hidden", "a.", "C:\\x", "a\\b", "a b", "é.wasm", "", "con.ptx",
        "COM1", "a\x1b[2J", "a" * 201, "metadata.json", "METADATA.json",
    ],
)  # fmt: skip
def test_paths_that_lead_elsewhere_are_refused(hub, variant, rms_norm, fails, path):
    files = [{"path": path, "size": 1, "sha256": "0" * 64}]
    hub.push("good/rms-norm", "v1", variant(rms_norm, files=files, module=path))
    error = fails("INVALID_ARGUMENT", "metadata.json: ")
    assert str(error).isprintable()


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "A"), ("a", "a/b"), ("B/c", "b")])
def test_paths_that_collide_are_refused(hub, variant, rms_norm, fails, paths):
    files = [{"path": path, "size": 1, "sha256": "0" * 64} for path in paths]
    hub.push("good/rms-norm", "v1", variant(rms_norm, files=files, module="a"))
    fails("INVALID_ARGUMENT", "collides with another path")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b'{"format": 1, "format": 1}', b"[" * 200_000])
def test_metadata_that_is_no_object_is_refused(hub, fails, text):
    hub.push("good/rms-norm", "v1", {METADATA: text})
    error = fails("INVALID_ARGUMENT", "good/rms-norm: metadata.json: ")
    assert error.blame == "guest"


def test_a_twin_whose_bytes_are_swapped_is_refused(hub, variant, guests, fails):
    sources = guests.resolve().parents[1] / "guests/add_n"
    twin = {"callbox.json": (sources / "callbox.json").read_bytes(), "add_n.ptx": (sources / "add_n.ptx").read_bytes()}
    files = variant((guests / "add_n.wasm").read_bytes(), twin=twin, manifest="callbox.json")
    swapped = files["build/callbox-wasm32/add_n.ptx"].replace(b"add.", b"sub.", 1)
    hub.push("good/add-n", "v1", {**files, "build/callbox-wasm32/add_n.ptx": swapped})
    fails("DATA_LOSS", "add_n.ptx: expected ", repo_id="good/add-n", native=True)


def test_metadata_is_text_that_the_command_line_writes(hub, variant, rms_norm):
    """`host/cli/tests/command_line/hub.rs` has the same text."""
    files = variant(b"\0asm\x01\0\0\0", derivatives={"a": "b"})
    assert json.loads(files[METADATA])["files"] == [
        {
            "path": "rms-norm.wasm",
            "size": 8,
            "sha256": "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476",
        }
    ]


def test_warnings_of_a_server_do_not_control_the_terminal(hub, good, get, caplog):
    def warn(request, answer):
        answer.headers["X-HF-Warning"] = f"{request.method}{id(hub)}; clear\x1b[2J\x9b2Jthe screen {'x' * 1000}"

    hub.lie = warn
    assert get().commit == good
    found = [record.getMessage() for record in caplog.records if "the screen" in record.getMessage()]
    assert found
    for text in found:
        assert text.isprintable()
        assert len(text) <= 400


def ranges(hub):
    """The ranges that downloads of the module asked for."""
    asked = [request for request in hub.requests if wasm(request) and request.method == "GET"]
    return [request.headers.get("Range", request.headers.get("range")) for request in asked]


def test_a_download_goes_on_where_it_was_interrupted(hub, good, get, rms_norm, pauses):
    def interrupt(request, answer):
        if not wasm(request) or request.method != "GET":
            return
        tries = len(ranges(hub))
        if tries == 1:
            answer.headers["Content-Length"], answer.body = str(len(rms_norm)), rms_norm[:100]
            return
        begin = int(ranges(hub)[-1].removeprefix("bytes=").removesuffix("-"))
        answer.status = 206
        answer.headers["Content-Range"] = f"bytes {begin}-{len(rms_norm) - 1}/{len(rms_norm)}"
        answer.headers["Content-Length"] = str(len(rms_norm) - begin)
        answer.body = rms_norm[begin:][: 50 if tries == 2 else None]

    hub.lie = interrupt
    kernel = get()
    assert (kernel.commit, kernel.module.digest) == (good, hashlib.sha256(rms_norm).hexdigest())
    assert ranges(hub) == [None, "bytes=100-", "bytes=150-"]


@pytest.mark.parametrize("lie", ["other bytes", "another part", "no ranges", "416"])
def test_a_download_that_cannot_go_on_begins_anew(hub, good, get, rms_norm, pauses, lie):
    def interrupt(request, answer):
        if not wasm(request) or request.method != "GET":
            return
        tries = len(ranges(hub))
        if tries == 1:
            answer.headers["Content-Length"], answer.body = str(len(rms_norm)), rms_norm[:100]
        elif tries == 2 and lie != "no ranges":
            answer.status, begin = (416, 100) if lie == "416" else (206, 7 if lie == "another part" else 100)
            answer.headers["Content-Range"] = f"bytes {begin}-{len(rms_norm) - 1}/{len(rms_norm)}"
            answer.body = bytes(len(rms_norm) - begin)

    hub.lie = interrupt
    assert get().commit == good
    expected = [None, "bytes=100-"] if lie == "no ranges" else [None, "bytes=100-", None]
    assert ranges(hub) == expected
