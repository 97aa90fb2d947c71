"""Runner version of an image, read from its layers."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tarfile
import zlib
from typing import Any

from gpufleet_tools.runner_images.registry import Registry, layers, parse
from gpufleet_tools.runner_images.web import LookupFailed, Stream

MANIFEST = "home/runner/bin/Runner.Listener.deps.json"
"""Dependencies of the listener, including its own version. Scale sets start /home/runner/run.sh beside it."""

_VERSION = re.compile(r"Runner\.Listener/(\d+\.\d+\.\d+)")
_MANIFEST_LIMIT = 4 * 2**20


def runner_version(image: str, seconds: float, platform: str = "linux/amd64") -> tuple[str, str]:
    """Return the runner version of an image, and the image's digest. Raises LookupFailed."""
    parts = parse(image)
    registry = Registry(parts.host, seconds)
    found = registry.manifest(parts.name, parts.reference)
    # An upper layer hides the files of lower ones.
    for digest, media_type in reversed(layers(registry.image_manifest(parts.name, found, platform))):
        if media_type.endswith("+zstd"):
            raise LookupFailed(f"{image}: zstd compression of layers is not supported; {_INSTEAD}")
        with registry.layer(parts.name, digest) as stream:
            text, hidden = _manifest(image, _Checked(stream, digest))
        if text is not None:
            return _version(image, text), found.digest
        if hidden:
            break
    raise LookupFailed(f"{image}: has no /{MANIFEST}, which scale sets require; {_INSTEAD}")


_INSTEAD = "find out its runner version from its build, and declare runnerVersion"


class _Checked:
    """A layer as a file object that verifies the digest."""

    def __init__(self, stream: Stream, digest: str) -> None:
        self._stream, self._digest = stream, digest
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer at the end."""
        content = bytearray()
        while len(content) < size and (more := self._stream.read(size - len(content))):
            content += more
        self._hash.update(content)
        return bytes(content)

    def check(self) -> None:
        """Read the rest. Raises LookupFailed if the content has another digest."""
        while self.read(2**16):
            pass
        if (digest := f"sha256:{self._hash.hexdigest()}") != self._digest:
            raise LookupFailed(f"the layer {self._digest} has the digest {digest}; try again")


def _manifest(image: str, layer: _Checked) -> tuple[bytes | None, bool]:
    """Return the manifest's content, None if the layer has none, and whether the layer hides that of lower ones."""
    text, hidden = None, False
    # Streaming requires only `read`, but the type requires a complete file object.
    file: Any = layer
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                path = posixpath.normpath(member.name).lstrip("/")
                hidden = hidden or path in _WHITEOUTS
                if path == MANIFEST and member.isfile():
                    content = archive.extractfile(member)
                    text = content.read(_MANIFEST_LIMIT) if content else None
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError):
        raise LookupFailed(f"{image}: a layer is not a readable archive; {_INSTEAD}") from None
    layer.check()
    return text, hidden


def _whiteouts() -> frozenset[str]:
    """Return the whiteout paths by which a layer removes the file or one of its folders."""
    found, path = set(), MANIFEST
    while path:
        folder, name = posixpath.split(path)
        found |= {posixpath.join(folder, f".wh.{name}"), posixpath.join(folder, ".wh..wh..opq")}
        path = folder
    return frozenset(found)


_WHITEOUTS = _whiteouts()


def _version(image: str, text: bytes) -> str:
    try:
        content = json.loads(text)
        names = [
            *content.get("libraries", {}),
            *(name for each in content.get("targets", {}).values() for name in each),
        ]
    except (ValueError, AttributeError, TypeError):
        names = []
    versions = {found[1] for name in names if (found := _VERSION.fullmatch(str(name)))}
    if len(versions) != 1:
        raise LookupFailed(f"{image}: /{MANIFEST} does not have exactly one version of the listener; {_INSTEAD}")
    return versions.pop()
