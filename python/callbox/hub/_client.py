"""Downloads through `huggingface_hub`: its endpoint, tokens, proxies, retries and progress bars.

Files do not go through its cache, whose paths the server chooses and whose files have any size. Nor
do they go through its function for downloads, which sleeps for as long as the server asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from callbox._callbox import CallError, InvalidArgumentError, __version__, is_reference

from ._layout import exhausted, quoted

_COMMIT = re.compile(r"[0-9a-f]{40}")

#: How often a download may begin, and the longest pause before it begins anew, in seconds.
_MOST_TRIES = 4
_MOST_PAUSE = 30

#: The longest time for all tries of a download, in seconds.
_MOST_TIME = 1800

#: How many redirects one download may follow.
_MOST_REDIRECTS = 5

#: Where the client logs texts of a server.
_LOGGERS = ("huggingface_hub.utils._http", "huggingface_hub.file_download")

_MISSING = "callbox.hub needs huggingface_hub: `pip install 'callbox[hub]'`"


class Client:
    """One endpoint with one token."""

    def __init__(self, endpoint: str | None, token: bool | str | None, repo_type: str, is_offline: bool) -> None:
        if repo_type not in ("kernel", "model"):
            message = f"expected 'kernel' or 'model' as repo_type, found {repo_type!r:.80}"
            raise InvalidArgumentError("INVALID_ARGUMENT", message, blame="caller")
        try:
            self._hub: Any = importlib.import_module("huggingface_hub")
            self._files: Any = importlib.import_module("huggingface_hub.file_download")
            self._errors: Any = importlib.import_module("huggingface_hub.errors")
            # The client's own HTTP.
            self._http: Any = importlib.import_module("httpx2")
        except ImportError as error:
            raise ImportError(_MISSING) from error
        constants = self._hub.constants
        self.endpoint: str = (endpoint or constants.ENDPOINT).rstrip("/")
        self.home: str = constants.HF_HOME
        self.repo_type = repo_type
        self.is_offline = is_offline or bool(constants.HF_HUB_OFFLINE)
        self._token = token

    def commit(self, repo_id: str, revision: str, path: str) -> str:
        """The commit that a branch or tag has now, from the answer about one of its files."""
        return self._look(repo_id, revision, path)[1].commit_hash

    def download(
        self, repo_id: str, commit: str, path: str, *, size: int | None, most: int, sha256: str | None = None
    ) -> bytes:
        """Downloads a file of a commit.

        `size` is the one that the file must have, and `sha256` its digest. None: any up to `most`.
        Such a file has no known digest, so that it must come from the hub itself.
        """
        url, found = self._look(repo_id, commit, path)
        where = f"{repo_id}: {path}"
        if found.commit_hash != commit:
            raise _lie(f"{where}: expected the commit {commit}, the hub answered with {found.commit_hash}")
        if size is not None and found.size not in (None, size):
            raise _lie(f"{where}: expected {size} bytes, the hub says {found.size}")
        if size is None and (found.size or 0) > most:
            raise exhausted(f"{where}: expected at most {most} bytes, the hub says {found.size}")
        headers = self._headers()
        if _origin(found.location) != _origin(url):
            if size is None:
                raise CallError(
                    "PERMISSION_DENIED", f"{where}: the hub redirects to another host: {quoted(found.location)}"
                )
            headers.pop("authorization", None)
        # Compressed bytes could become any number of bytes.
        headers["Accept-Encoding"] = "identity"
        most = most if size is None else size
        name = path.rsplit("/", 1)[-1]
        contents: bytes = self._ask(where, self._fetch, where, found.location, headers, most, name, sha256)
        if found.size is not None and len(contents) < found.size:
            raise CallError(
                "UNAVAILABLE", f"{where}: expected {found.size} bytes, the hub sent {len(contents)}", blame="host"
            )
        return contents

    def _fetch(self, where: str, url: str, headers: dict[str, str], most: int, name: str, sha256: str | None) -> bytes:
        """Downloads at most `most` bytes.

        An interrupted download of a file with a known digest goes on where it was: its parts fit
        together if the digest does. Any other begins anew.
        """
        until = time.monotonic() + _MOST_TIME
        contents = bytearray()
        for tries in range(1, _MOST_TRIES + 1):
            pause = 2 ** (tries - 1)
            try:
                if sha256 is None:
                    contents.clear()
                asked_for = dict(headers)
                if contents:
                    asked_for["Range"] = f"bytes={len(contents)}-"
                with self._open(where, url, asked_for, sha256 is not None) as response:
                    if response.status_code not in (408, 429):
                        begins = f"bytes {len(contents)}-"
                        is_rest = response.headers.get("Content-Range", "").startswith(begins)
                        is_resumed = bool(contents) and response.status_code == 206 and is_rest
                        if contents and not is_resumed:
                            contents.clear()
                            if response.status_code in (206, 416):
                                raise self._http.TransportError("the hub sent another part than the next one")
                        self._check(response)
                        self._receive(where, response, contents, most, name, until)
                        if is_resumed and hashlib.sha256(contents).hexdigest() != sha256:
                            contents.clear()
                            raise self._http.TransportError("the parts of the file do not fit together")
                        return bytes(contents)
                    asked = response.headers.get("Retry-After", "")
                    pause = int(asked) if re.fullmatch(r"[0-9]{1,9}", asked) else pause
                    problem = f"{response.status_code}: the hub asks to come back in {pause} seconds"
            except self._http.TransportError as error:
                problem = _reason(error)
            if pause > _MOST_PAUSE or tries == _MOST_TRIES or time.monotonic() + pause > until:
                break
            time.sleep(pause)
        raise CallError("UNAVAILABLE", f"{where}: the download failed {tries} times: {problem}", blame="host")

    @contextlib.contextmanager
    def _open(self, where: str, url: str, headers: dict[str, str], may_leave: bool) -> Iterator[Any]:
        """The answer behind all redirects.

        The client would read their bodies, which have any length.
        """
        session, timeout = self._hub.get_session(), self._hub.constants.HF_HUB_DOWNLOAD_TIMEOUT
        for _ in range(_MOST_REDIRECTS + 1):
            with session.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=False) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                location = response.headers["Location"]
            try:
                to = urljoin(url, location)
                is_elsewhere = _origin(to) != _origin(url)
            except ValueError:
                raise _lie(f"{where}: the hub redirects to no address: {quoted(location)}") from None
            if urlsplit(to).scheme not in ("https", urlsplit(url).scheme):
                raise CallError("PERMISSION_DENIED", f"{where}: the hub redirects from https: {quoted(to)}")
            if is_elsewhere and not may_leave:
                raise CallError("PERMISSION_DENIED", f"{where}: the hub redirects to another host: {quoted(to)}")
            if is_elsewhere:
                headers.pop("authorization", None)
            url = to
        raise CallError("UNAVAILABLE", f"{where}: expected at most {_MOST_REDIRECTS} redirects", blame="host")

    def _check(self, response: Any) -> None:
        """Raises for an error.

        Its body is left: the client would read it whole, whatever its length.
        """
        if response.is_error:
            names = ("X-Error-Code", "X-Error-Message", "X-Request-Id")
            headers = {name: response.headers[name] for name in names if name in response.headers}
            response = self._http.Response(response.status_code, headers=headers, request=response.request)
        self._hub.utils.hf_raise_for_status(response)

    def _receive(self, where: str, response: Any, contents: bytearray, most: int, name: str, until: float) -> None:
        """Adds the body of a response, which may have any length.

        It is not decompressed: bytes without end could become none.
        """
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise _lie(f"{where}: expected the bytes of the file, the hub sends them as {quoted(encoding)}")
        shown = {"desc": name[-40:], "total": most, "initial": len(contents), "unit": "B", "unit_scale": True}
        with self._hub.utils.tqdm(**shown) as progress:
            for chunk in response.iter_raw():
                if len(contents) + len(chunk) > most:
                    raise exhausted(f"{where}: expected at most {most} bytes, the hub sends more")
                if time.monotonic() > until:
                    raise CallError(
                        "UNAVAILABLE", f"{where}: the hub sent {len(contents)} bytes in {_MOST_TIME} s", blame="host"
                    )
                contents += chunk
                progress.update(len(chunk))

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = self._hub.utils.build_hf_headers(
            token=self._token, library_name="callbox", library_version=__version__
        )
        return headers

    def _look(self, repo_id: str, revision: str, path: str) -> tuple[str, Any]:
        """Asks about a file: its URL, and the hub's answer, which is checked."""
        where = f"{repo_id}: {path}"
        if self.is_offline:
            raise CallError(
                "UNAVAILABLE", f"{where} of {revision} is not in the cache, and this is offline mode", blame="host"
            )
        url = self._files.hf_hub_url(repo_id, path, repo_type=self.repo_type, revision=revision, endpoint=self.endpoint)
        found = self._ask(
            where,
            self._files.get_hf_file_metadata,
            url,
            token=self._token,
            library_name="callbox",
            library_version=__version__,
            endpoint=self.endpoint,
        )
        if not _COMMIT.fullmatch(found.commit_hash or ""):
            raise _lie(f"{where}: expected a commit of 40 hexadecimal digits, found {quoted(str(found.commit_hash))}")
        try:
            location, is_elsewhere = urlsplit(found.location), _origin(found.location) != _origin(url)
        except ValueError:
            raise _lie(f"{where}: the hub redirects to no address: {quoted(found.location)}") from None
        if location.scheme not in ("https", urlsplit(url).scheme):
            raise CallError("PERMISSION_DENIED", f"{where}: the hub redirects from https: {quoted(found.location)}")
        if not is_elsewhere and f"/{repo_id}/" not in unquote(location.path):
            raise CallError(
                "PERMISSION_DENIED",
                f"{where}: the hub answers with another repository: {quoted(location.path)}; name that one to use it",
            )
        return url, found

    def _ask(self, where: str, function: Any, *args: Any, **options: Any) -> Any:
        """Calls the client, whose failures become `CallError`."""
        errors = self._errors
        try:
            with _printable_logs():
                return function(*args, **options)
        except CallError:
            raise
        except errors.GatedRepoError as error:
            raise CallError("PERMISSION_DENIED", f"{where}: {_reason(error)}", blame="caller") from None
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
            raise CallError("NOT_FOUND", f"{where}: {_reason(error)}", blame="caller") from None
        except Exception as error:  # noqa: BLE001 - the server decides which
            # Not as its cause: a traceback would print the text of a server as it is.
            raise CallError("UNAVAILABLE", f"{where}: {_reason(error)}", blame="host") from None


def check_repo_id(repo_id: str) -> None:
    """Checks the name of a repository, which could look like another one."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", repo_id):
        raise InvalidArgumentError(
            "INVALID_ARGUMENT",
            f"expected ORG/NAME of ASCII letters, digits and `._-`, found {quoted(repo_id)}{_hint(repo_id)}",
            blame="caller",
        )


def _hint(repo_id: str) -> str:
    return ": `callbox.load` takes references" if is_reference(repo_id) else ""


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit, which never moves."""
    return _COMMIT.fullmatch(revision) is not None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _reason(error: BaseException) -> str:
    """The first lines of an exception, which can quote the server."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _printable(" ".join(lines[:2]) or type(error).__name__)


def _printable(text: str) -> str:
    """A stranger's text without characters that control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:400])


@contextlib.contextmanager
def _printable_logs() -> Iterator[None]:
    """The client logs what a server says, such as its header ``X-HF-Warning``, as it is."""

    def clean(record: logging.LogRecord) -> bool:
        record.msg, record.args = _printable(record.getMessage()), ()
        return True

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(clean)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(clean)


def _lie(message: str) -> CallError:
    return CallError("DATA_LOSS", message, blame="host")
