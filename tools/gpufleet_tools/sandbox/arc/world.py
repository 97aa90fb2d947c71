"""Process that runs the real ARC: the simulated GitHub, the kubelet of ARC's pods, and the runners.

    python -m gpufleet_tools.sandbox.arc.world CONFIGURATION PORT

CONFIGURATION is a file that control.py writes. The process serves commands at PORT of loopback. GitHub's state is saved
in a file, from which a restarted process continues.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import pickle
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from gpufleet_tools.sandbox.arc import certificates
from gpufleet_tools.sandbox.arc.cluster import Cluster
from gpufleet_tools.sandbox.arc.control import KEY_HEADER, Configuration
from gpufleet_tools.sandbox.arc.github import GitHub, Job
from gpufleet_tools.sandbox.arc.github_api import SERVICE, Api, Request, fingerprint
from gpufleet_tools.sandbox.arc.kubelet import Kubelet
from gpufleet_tools.sandbox.arc.runners import Runners, runner_image
from gpufleet_tools.sandbox.control_plane.control_plane import LOOPBACK

_SCALE_SETS = "/apis/actions.github.com/v1alpha1/autoscalingrunnersets"
_SAVE_SECONDS = 0.5
_CHUNK = 65536


class World:
    """All parts of the process."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.folder = Path(configuration.folder)
        self.cluster = Cluster(Path(configuration.kubeconfig))
        self.github = self._restored()
        self.api = Api(self.github, AppKeys(self.cluster).signer)
        names = sorted({SERVICE, "github.com", "api.github.com", *configuration.hosts})
        server, authority = certificates.write(self.folder, names)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(server)
        self.runners = Runners(self.cluster, self.github)
        self.kubelet = Kubelet(
            self.cluster,
            self.folder / "pods",
            {version: Path(folder) for version, folder in configuration.programs.items()},
            "".join(f"{LOOPBACK} {name}\n" for name in ("localhost", *names)),
            authority,
            github=self.serve_github,
            api_server=self.serve_api_server,
        )

    def serve(self, port: int) -> None:
        """Serve until the process is ended."""
        for target in (self.kubelet.run, self.runners.run, self.runners.work, self._save):
            threading.Thread(target=target, daemon=True).start()
        control = http.server.ThreadingHTTPServer((LOOPBACK, port), _control_handler(self))
        control.serve_forever()

    # -- the simulated GitHub and the API server, at sockets of other namespaces ---------------------------------------

    def serve_github(self, listening: socket.socket) -> None:
        """Serve the simulated GitHub at a listening socket."""
        handler = _github_handler(self.api)
        for connection in _accepted(listening):

            def handle(connection: socket.socket = connection) -> None:
                with contextlib.suppress(OSError), self._tls.wrap_socket(connection, server_side=True) as secured:
                    handler(secured, (LOOPBACK, 0), None)  # type: ignore[arg-type]

            threading.Thread(target=handle, daemon=True).start()

    def serve_api_server(self, listening: socket.socket) -> None:
        """Forward each connection of a listening socket to the API server."""
        for connection in _accepted(listening):
            try:
                onward = socket.create_connection((LOOPBACK, self.cluster.port))
            except OSError:
                connection.close()
                continue
            for source, target in ((connection, onward), (onward, connection)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    # -- state --------------------------------------------------------------------------------------------------------

    def _restored(self) -> GitHub:
        with contextlib.suppress(FileNotFoundError):
            github: GitHub = pickle.loads((self.folder / "github.pickle").read_bytes())
            for scale_set in github.scale_sets.values():
                # Its listener ended with the last process.
                scale_set.session = None
            return github
        return GitHub()

    def _save(self) -> None:
        saved = -1
        while True:
            time.sleep(_SAVE_SECONDS)
            with self.github.lock:
                if self.github.version == saved:
                    continue
                saved, content = self.github.version, pickle.dumps(self.github)
            partial = self.folder / "github.partial"
            partial.write_bytes(content)
            partial.replace(self.folder / "github.pickle")

    # -- commands -----------------------------------------------------------------------------------------------------

    def command(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command, and return its result. Raises KeyError for an unknown command."""
        commands: dict[str, Callable[..., Any]] = {
            "state": self.state,
            "queue": self._queue,
            "assign": self._assign,
            "end": self._end,
            "deprecate-runners": self._deprecate,
            "revoke-key": self._revoke,
            "delete-scale-set": self._delete_scale_set,
        }
        return commands[name](**arguments)

    def state(self) -> dict[str, Any]:
        """Return the current scale sets and jobs."""
        with self.github.lock:
            scale_sets = {
                each.body["name"]: {
                    "id": each.id,
                    "session": each.session.owner if each.session else None,
                    "statistics": self.github.statistics(each),
                }
                for each in self.github.scale_sets.values()
            }
            jobs = [
                {name: getattr(each, name) for name in ("id", "label", "seconds", "state", "result", "times")}
                for each in self.github.jobs.values()
            ]
            return {
                "scaleSets": scale_sets,
                "jobs": jobs,
                "runners": len(self.github.runners),
                "processes": self.kubelet.alive,
                "credentials": dict(self.github.used),
                "revoked": sorted(self.github.revoked),
            }

    def _queue(self, label: str, count: int, seconds: float | None) -> None:
        with self.github.lock:
            self.github.queue(label, count, seconds)

    def _assign(self, label: str, count: int) -> None:
        """Set the number of uncompleted jobs of a label: queue more, or cancel some, running ones last."""
        with self.github.lock:
            unfinished = self.github.unfinished(label)
            if len(unfinished) < count:
                self.github.queue(label, count - len(unfinished), None)
        for job in unfinished[: max(0, len(unfinished) - count)]:
            self.runners.end(job, "cancelled")

    def _end(self, label: str | None, count: int | None, result: str) -> int:
        """End running jobs, oldest first. Return their number."""
        running = self._running(label)[:count]
        for job in running:
            self.runners.end(job, result)
        return len(running)

    def _running(self, label: str | None) -> list[Job]:
        with self.github.lock:
            return [
                job
                for job in self.github.jobs.values()
                if job.state == "running" and (label is None or job.label == label)
            ]

    def _deprecate(self, label: str | None) -> dict[str, str]:
        """Reject new runners of a label, by default of all labels, as too old while they have the current image. Return
        the images by label."""
        _, listed = self.cluster.call("GET", _SCALE_SETS)
        images = {
            each["spec"].get("runnerScaleSetName") or each["metadata"]["name"]: runner_image(
                each["spec"]["template"]["spec"]
            )
            for each in listed.get("items", ())
        }
        rejected = {name: image for name, image in images.items() if label in (None, name)}
        with self.github.lock:
            self.github.too_old |= {*rejected.items()}
            self.github.touch()
        return rejected

    def _revoke(self, namespace: str, secret: str, owner: str, current: bool) -> list[str]:
        """Revoke the credentials in the Secret if `current`, else all other credentials that were used for an owner."""
        status, found = self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{secret}")
        in_secret = _credential(found.get("data", {})) if status == 200 else ""
        with self.github.lock:
            used = {each for each, path in self.github.used.items() if f"/{path}".endswith(f"/{owner}")}
            revoked = ({in_secret} if current else used - {in_secret} - self.github.revoked) - {""}
            self.github.revoked |= revoked
            self.github.touch()
        return sorted(revoked)

    def _delete_scale_set(self, label: str) -> bool:
        with self.github.lock:
            found = [each for each in self.github.scale_sets.values() if each.body["name"] == label]
            for each in found:
                self.github.delete_scale_set(each)
        return bool(found)


# -- keys of Apps -----------------------------------------------------------------------------------------------------


class AppKeys:
    """Public keys of all private keys that were ever in Secrets of the cluster. The real GitHub stores them itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._keys: dict[str, rsa.RSAPublicKey] = {}

    def signer(self, token: str) -> str | None:
        """Return the fingerprint of the key that signed an App's web token; None if it was never in a Secret."""
        if (known := self._known_signer(token)) is None:
            self._read_secrets()
            known = self._known_signer(token)
        return known

    def _known_signer(self, token: str) -> str | None:
        signed, _, signature = token.rpartition(".")
        raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
        for name, key in list(self._keys.items()):
            with contextlib.suppress(InvalidSignature):
                key.verify(raw, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
                return name
        return None

    def _read_secrets(self) -> None:
        _, listed = self._cluster.call("GET", "/api/v1/secrets")
        for secret in listed["items"]:
            data = secret.get("data") or {}
            if (key := _public_key(data)) is not None:
                self._keys[_credential(data)] = key


def _public_key(data: dict[str, str]) -> rsa.RSAPublicKey | None:
    with contextlib.suppress(KeyError, ValueError):
        pem = base64.b64decode(data["github_app_private_key"])
        key = serialization.load_pem_private_key(pem, password=None)
        return key.public_key() if isinstance(key, rsa.RSAPrivateKey) else None
    return None


def _credential(data: dict[str, str]) -> str:
    """Return the fingerprint of the credentials in a Secret; empty if it has none."""
    if key := _public_key(data):
        return fingerprint(
            key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    return fingerprint(base64.b64decode(data["github_token"])) if "github_token" in data else ""


# -- HTTP -------------------------------------------------------------------------------------------------------------


def _accepted(listening: socket.socket) -> Iterator[socket.socket]:
    """Yield connections until the listening socket is closed."""
    with contextlib.suppress(OSError):
        while True:
            yield listening.accept()[0]


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _body(self) -> Any:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(raw) if raw.strip() else None

    def _send(self, status: int, answer: Any) -> None:
        content = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: there are thousands of polls."""


def _github_handler(api: Api) -> type[_Handler]:
    class Handler(_Handler):
        def answer(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            request = Request(
                method=self.command,
                path=url.path,
                query=dict(urllib.parse.parse_qsl(url.query)),
                authorization=self.headers.get("Authorization", "").removeprefix("Bearer "),
                capacity=int(self.headers.get("X-ScaleSetMaxCapacity") or 0),
                body=self._body(),
            )
            self._send(*api.answer(request))

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815

    return Handler


def _control_handler(world: World) -> type[_Handler]:
    class Handler(_Handler):
        def do_POST(self) -> None:
            arguments = self._body() or {}
            if self.headers.get(KEY_HEADER) != world.configuration.key:
                self._send(403, {"message": "another user's sandbox"})
                return
            self._send(200, world.command(self.path.lstrip("/"), arguments))

    return Handler


def main(configuration: str, port: str) -> None:
    """Serve until the process is ended."""
    World(Configuration.read(Path(configuration))).serve(int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
