"""Files of an image, read from its layers without unpacking the rest."""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Collection
from typing import IO, Any

from gpufleet_tools.runner_images.registry import Registry, layers, parse
from gpufleet_tools.runner_images.web import LookupFailed, Stream

Sink = Callable[[str, IO[bytes]], None]
"""Function that takes the path of a file and its content."""


class UnreadableImage(LookupFailed):
    """An image has none of the files, or its layers cannot be read."""


def read_files(image: str, paths: Collection[str], sink: Sink, seconds: float, platform: str = "linux/amd64") -> str:
    """Pass each of the files to `sink`, and return the image's digest. The paths have no leading slash.

    A layer is verified after `sink` has read its files. Raises LookupFailed; UnreadableImage if a file is missing.
    """
    parts = parse(image)
    registry = Registry(parts.host, seconds)
    found = registry.manifest(parts.name, parts.reference)
    wanted = set(paths)
    # An upper layer hides the files of lower ones.
    for digest, media_type in reversed(layers(registry.image_manifest(parts.name, found, platform))):
        if not wanted:
            break
        if media_type.endswith("+zstd"):
            raise UnreadableImage(f"{image}: zstd compression of layers is not supported")
        with registry.layer(parts.name, digest) as stream:
            present, hidden = _read_layer(image, _Checked(stream, digest), wanted, sink)
        wanted -= present
        if removed := wanted & hidden:
            raise UnreadableImage(f"{image}: has no {_listed(removed)}")
    if wanted:
        raise UnreadableImage(f"{image}: has no {_listed(wanted)}")
    return found.digest


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


def _read_layer(image: str, layer: _Checked, wanted: Collection[str], sink: Sink) -> tuple[set[str], set[str]]:
    """Pass the wanted files of a layer to `sink`. Return their paths, and those that the layer hides in lower ones."""
    present, hidden = set(), set()
    whiteouts = {each: _whiteouts(each) for each in wanted}
    # Streaming requires only `read`, but the type requires a complete file object.
    file: Any = layer
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                path = posixpath.normpath(member.name).lstrip("/")
                hidden |= {each for each, names in whiteouts.items() if path in names}
                if path in wanted and member.isfile() and (content := archive.extractfile(member)):
                    sink(path, content)
                    present.add(path)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError):
        raise UnreadableImage(f"{image}: a layer is not a readable archive") from None
    layer.check()
    return present, hidden


def _whiteouts(path: str) -> frozenset[str]:
    """Return the whiteout paths by which a layer removes a file or one of its folders."""
    found = set()
    while path:
        folder, name = posixpath.split(path)
        found |= {posixpath.join(folder, f".wh.{name}"), posixpath.join(folder, ".wh..wh..opq")}
        path = folder
    return frozenset(found)


def _listed(paths: Collection[str]) -> str:
    return " and ".join(f"/{path}" for path in sorted(paths))
