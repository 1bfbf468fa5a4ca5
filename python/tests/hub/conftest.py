"""A server on this machine that speaks the Hub's HTTP for files, and repositories for it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import json
import os
import threading
import time
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

#: The user and the password of a registry, as `docker login` keeps them.
PASSWORD = base64.b64encode(b"user:secretsecret").decode()

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


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


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


class Registry:
    """A registry of containers with one repository, which asks for a password, and plain files."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.paths: list[str] = []
        #: Whether it lists the manifests that refer to another one.
        self.lists_referrers = True
        #: How long an answer takes, in seconds.
        self.pause = 0.0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.paths.append(self.path)
                time.sleep(registry.pause)
                status, body = registry.answer(self.path, self.headers.get("Authorization"))
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    if status == 401:
                        self.send_header("WWW-Authenticate", 'Basic realm="here"')
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        if path in self.files:
            return 200, self.files[path]
        if authorization != f"Basic {PASSWORD}":
            return 401, b"{}"
        if path == "/v2/":
            return 200, b"{}"
        _, _, _, _, kind, version = path.split("/")
        found = self.blobs.get(version)
        if kind == "manifests":
            found = self.manifests.get(self.tags.get(version, version))
        if kind == "referrers":
            found = self.referrers(version) if self.lists_referrers else None
        return (404, b"{}") if found is None else (200, found)

    def referrers(self, subject: str) -> bytes:
        """The index of the manifests with a subject (version 1.1 of the OCI's specification)."""
        found = []
        for digest, contents in self.manifests.items():
            manifest = json.loads(contents)
            if manifest.get("subject", {}).get("digest") == subject:
                kind = manifest["artifactType"]
                entry = {"mediaType": MANIFEST, "digest": digest, "size": len(contents), "artifactType": kind}
                found.append(entry)
        return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}).encode()

    def push(self, tag: str, module: bytes) -> str:
        """Pushes an artefact, and returns the digest of its manifest."""
        digest = self._push("application/vnd.wasm.config.v0+json", "application/wasm", module)
        self.tags[tag] = digest
        return digest

    def push_bundles(self, subject: str, *bundles: bytes) -> None:
        """Pushes bundles that refer to an artefact, and the list that clients keep of them."""
        more = {"artifactType": BUNDLE, "subject": {"mediaType": MANIFEST, "digest": subject, "size": 1}}
        for bundle in bundles:
            self._push("application/vnd.oci.empty.v1+json", BUNDLE, bundle, **more)
        self.manifests[subject.replace(":", "-")] = self.referrers(subject)

    def _push(self, config: str, kind: str, layer: bytes, **more: object) -> str:
        def descriptor(kind: str, contents: bytes) -> dict[str, object]:
            digest = f"sha256:{_sha256(contents)}"
            self.blobs[digest] = contents
            return {"mediaType": kind, "digest": digest, "size": len(contents)}

        layers = [descriptor(kind, layer)]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(config, b"{}"), "layers": layers}
        contents = json.dumps({**manifest, **more}).encode()
        digest = f"sha256:{_sha256(contents)}"
        self.manifests[digest] = contents
        return digest


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Iterator[Registry]:
    """A registry, with the user's password for it and a cache of its own."""
    server = Registry()
    (tmp_path / "docker").mkdir()
    auths = {"auths": {server.host: {"auth": PASSWORD}}}
    (tmp_path / "docker/config.json").write_text(json.dumps(auths))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    yield server
    server.close()
