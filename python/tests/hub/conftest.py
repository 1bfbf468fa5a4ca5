"""A server on this machine that speaks the Hub's HTTP for files, and repositories for it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import callbox

# Where an environment has no client, only what needs none is tested.
collect_ignore: list[str] = []
if importlib.util.find_spec("huggingface_hub") is None:
    collect_ignore = ["test_bundles.py", "test_hub.py", "test_lies.py", "test_first_page.py"]
elif importlib.util.find_spec("jax") is None:
    collect_ignore = ["test_first_page.py"]

VARIANT = "build/callbox-wasm32"


@dataclass
class Answer:
    """What the server answers with. Tests change it to lie."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]


class LocalHub:
    """Repositories of kernels behind HTTP, as the Hub answers for them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.commits: dict[tuple[str, str], dict[str, bytes]] = {}
        self.branches: dict[tuple[str, str], str] = {}
        #: Changes an answer before it is sent.
        self.lie: Callable[[Request, Answer], None] = lambda request, answer: None
        #: The address that large files are redirected to, as the Hub does.
        self.storage: str | None = None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.serve(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def push(self, repo_id: str, branch: str, files: dict[str, bytes]) -> str:
        """Commits files, and moves a branch to them."""
        commit = hashlib.sha1(repr((repo_id, sorted(files.items()))).encode()).hexdigest()
        self.commits[repo_id, commit] = files
        self.branches[repo_id, branch] = commit
        return commit

    def got(self, method: str = "GET") -> list[str]:
        """The ends of the paths that were asked for."""
        asked = [request for request in self.requests if "/resolve/" in request.path]
        return [request.path.split("/resolve/")[-1] for request in asked if request.method == method]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = Request(handler.command, unquote(handler.path), dict(handler.headers.items()))
        self.requests.append(request)
        answer = self._answer(request)
        self.lie(request, answer)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if not {"Content-Length", "Transfer-Encoding"} & set(answer.headers):
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        if request.method == "GET":
            # The client may have closed the connection.
            with contextlib.suppress(OSError):
                handler.wfile.write(answer.body)

    def _answer(self, request: Request) -> Answer:
        repo_id, resolve, rest = request.path.removeprefix("/kernels/").partition("/resolve/")
        if not resolve or not any(known == repo_id for known, _ in self.commits):
            return Answer(404, {"X-Error-Code": "RepoNotFound"})
        revision, _, path = rest.partition("/")
        commit = self.branches.get((repo_id, revision), revision)
        if (repo_id, commit) not in self.commits:
            return Answer(404, {"X-Error-Code": "RevisionNotFound"})
        headers = {"X-Repo-Commit": commit}
        body = self.commits[repo_id, commit].get(path)
        if body is None:
            return Answer(404, {**headers, "X-Error-Code": "EntryNotFound"})
        sha256 = hashlib.sha256(body).hexdigest()
        if self.storage is not None and path.endswith(".wasm"):
            linked = {"X-Linked-Size": str(len(body)), "X-Linked-Etag": f'"{sha256}"'}
            return Answer(302, {**headers, **linked, "Location": f"{self.storage}/{sha256}"})
        return Answer(200, {**headers, "ETag": f'"{sha256}"'}, body)


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    """A hub without repositories."""
    server = LocalHub()
    yield server
    server.close()


@pytest.fixture
def storage() -> Iterator[LocalHub]:
    """Another host, which has large files by their digests."""
    server = LocalHub()
    yield server
    server.close()


@pytest.fixture(scope="session")
def variant() -> Callable[..., dict[str, bytes]]:
    """Makes the files of a repository, as `callbox pack --hub` does."""

    def variant(module: bytes, /, *, version: str = "1.0.0", twin: Any = (), **changes: Any) -> dict[str, bytes]:
        files = {"rms-norm.wasm": module, **dict(twin)}
        metadata = {
            "format": 1,
            "name": "rms-norm",
            "version": version,
            "license": "MIT",
            "module": "rms-norm.wasm",
            "files": [
                {"path": path, "size": len(contents), "sha256": hashlib.sha256(contents).hexdigest()}
                for path, contents in sorted(files.items())
            ],
            **changes,
        }
        files["metadata.json"] = json.dumps(metadata, indent=2).encode() + b"\n"
        return {f"{VARIANT}/{path}": contents for path, contents in files.items()}

    return variant


@pytest.fixture(scope="session")
def rms_norm(guests: Path) -> bytes:
    """The sample guest."""
    return (guests / "rms_norm.wasm").read_bytes()


@pytest.fixture
def good(hub: LocalHub, variant, rms_norm) -> str:
    """The commit of good/rms-norm at v1."""
    return hub.push("good/rms-norm", "v1", variant(rms_norm, derivatives={"rms_norm": "rms_norm_grad"}))


@pytest.fixture(scope="session")
def quick_host() -> callbox.Host:
    return callbox.Host()


@pytest.fixture
def get(hub: LocalHub, tmp_path: Path, quick_host) -> Callable[..., Any]:
    """`get_kernel` from the local hub, with a cache of its own."""
    import callbox.hub

    def get(repo_id: str = "good/rms-norm", **options: Any) -> callbox.hub.Kernel:
        if not {"version", "revision"} & set(options):
            options["version"] = 1
        given = {"host": quick_host, "endpoint": hub.endpoint, "token": False, "cache_dir": tmp_path / "cache"}
        return callbox.hub.get_kernel(repo_id, **{**given, **options})

    return get


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch):
    """Keeps downloads apart from the user's."""
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hf-home"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    own = ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_TOKEN")
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name in own]:
        monkeypatch.delenv(name)


@pytest.fixture
def fails(get) -> Callable[..., callbox.CallError]:
    """Expects that a kernel is refused with a code."""

    def fails(code: str, message: str, **options: Any) -> callbox.CallError:
        with pytest.raises(callbox.CallError) as caught:
            get(**options)
        assert (caught.value.code, message in caught.value.message) == (code, True), str(caught.value)
        return caught.value

    return fails
