"""A server on this machine that answers as a registry and GitHub's list of releases do, or as they do on bad days."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Reply:
    """What the server says."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None
    """Length that is announced, where it is not that of the body."""
    pause: float = 0
    """Seconds before the body, and between its bytes where `trickle` is set."""
    trickle: bool = False


@dataclass
class Server:
    """Replies by path, and what was asked."""

    url: str
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    token: str | None = None
    """Token without which nothing below /v2/ is answered."""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def releases(self, *entries: Mapping[str, Any], page: int = 1, **reply: Any) -> None:
        query = f"?per_page=100{f'&page={page}' if page > 1 else ''}"
        self.replies[f"/releases{query}"] = Reply(json.dumps(entries).encode(), **reply)

    def put(self, name: str, tag: str | None, content: Mapping[str, Any], media_type: str) -> str:
        """Put a manifest under a tag and its digest."""
        body = json.dumps(content).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        reply = Reply(body, headers={"Content-Type": media_type, "Docker-Content-Digest": digest})
        for reference in filter(None, (tag, digest)):
            self.replies[f"/v2/{name}/manifests/{reference}"] = reply
        return digest

    def image(self, name: str, tag: str, *layers: bytes, media_type: str = LAYER) -> str:
        """Put an image for linux/amd64 under a tag; return the digest of its index."""
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        for digest, layer in zip(digests, layers, strict=True):
            self.replies[f"/v2/{name}/blobs/{digest}"] = Reply(layer)
        described = [{"mediaType": media_type, "digest": digest, "size": 1} for digest in digests]
        manifest = self.put(name, None, {"schemaVersion": 2, "layers": described}, MANIFEST)
        platform = {"os": "linux", "architecture": "amd64"}
        index = {"schemaVersion": 2, "manifests": [{"digest": manifest, "platform": platform}]}
        return self.put(name, tag, index, INDEX)


def release(version: str, day: str, **other: Any) -> dict[str, Any]:
    """Return an entry of GitHub's list."""
    return {
        "tag_name": f"v{version}",
        "published_at": f"{day}T12:00:00Z",
        "html_url": f"https://github.com/actions/runner/releases/tag/v{version}",
        "draft": False,
        "prerelease": False,
        **other,
    }


def layer(files: Mapping[str, str]) -> bytes:
    """Return a layer with files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(content.getvalue())


def listener(version: str, folder: str = "home/runner/bin") -> dict[str, str]:
    """Return the list of the listener's parts, as the runner has it."""
    targets = {f"Runner.Listener/{version}": {}, "Runner.Common/1.0.0": {}}
    content = {"targets": {".NETCoreApp,Version=v8.0/linux-x64": targets}, "libraries": targets}
    return {f"{folder}/Runner.Listener.deps.json": json.dumps(content)}


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server until the block ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked.append((self.path, dict(self.headers)))
            reply = server.replies.get(self.path, Reply(b"{}", 404))
            authorized = self.headers.get("Authorization") == f"Bearer {server.token}"
            if server.token and self.path.startswith("/v2/") and not authorized:
                challenge = f'Bearer realm="{server.url}/token",service="here",scope="repository:any:pull"'
                reply = Reply(b"{}", 401, {"WWW-Authenticate": challenge})
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body) if reply.announced is None else reply.announced))
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for part in [reply.body[i : i + 1] for i in range(len(reply.body))] if reply.trickle else [reply.body]:
                    time.sleep(reply.pause)
                    self.wfile.write(part)
            except OSError:
                pass  # The client has given up, as the test wants it to.

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = Server(f"http://127.0.0.1:{listening.server_address[1]}")
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
