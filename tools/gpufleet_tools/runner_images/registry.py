"""Container images in registries, by the OCI distribution protocol: manifests, digests and layers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gpufleet_tools.runner_images.web import Answer, LookupFailed, Refused, Stream, get, is_loopback, opened

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOCKER_HUB = "registry-1.docker.io"
_T = TypeVar("_T")


class NoSuchImage(LookupFailed):
    """The registry does not have the image."""


class CredentialsRequired(LookupFailed):
    """The registry does not serve the image to everybody."""


@dataclass(frozen=True)
class Image:
    """Reference of an image."""

    host: str
    """Registry."""
    name: str
    """Repository in the registry."""
    reference: str
    """Digest or tag."""


@dataclass(frozen=True)
class Manifest:
    """Content of a registry under a reference."""

    digest: str
    """Verified digest of the content."""
    content: Mapping[str, Any]
    """An index of manifests, or a manifest."""


def parse(image: str) -> Image:
    """Return the parts of a reference, parsed as by `docker pull`. Raises LookupFailed."""
    rest, _, digest = image.partition("@")
    head, slash, tail = rest.rpartition("/")
    last, colon, tag = tail.partition(":")
    name = f"{head}{slash}{last}"
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = _DOCKER_HUB, name if slash else f"library/{name}"
    elif host in ("docker.io", "index.docker.io"):
        host, path = _DOCKER_HUB, path if "/" in path else f"library/{path}"
    valid_digest = not digest or _DIGEST.fullmatch(digest)
    if not last or not path or (colon and not tag) or not valid_digest or ("@" in image and not digest):
        raise LookupFailed(f"{image}: is not an image; write HOST/NAME:TAG or HOST/NAME@sha256:DIGEST")
    return Image(host, path, digest or tag or "latest")


class Registry:
    """A registry, accessed without credentials."""

    def __init__(self, host: str, seconds: float, url: str | None = None) -> None:
        # As in container engines, a registry on this machine needs no TLS.
        scheme = "http" if is_loopback(host.rpartition(":")[0] or host) else "https"
        self._url = (url or f"{scheme}://{host}").rstrip("/")
        self._seconds = seconds
        self._tokens: dict[str, Mapping[str, str]] = {}

    def manifest(self, name: str, reference: str) -> Manifest:
        """Return the manifest or index of a tag or digest. Raises LookupFailed; NoSuchImage if it does not exist."""
        url = f"{self._url}/v2/{name}/manifests/{reference}"
        accept = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
        answer = self._requested(name, lambda token: get(url, self._seconds, {**accept, **token}))
        digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        wanted = {answer.headers.get("docker-content-digest"), reference if ":" in reference else None} - {None, digest}
        if wanted:
            raise LookupFailed(f"{url}: the content has the digest {digest} instead of {wanted.pop()}")
        return Manifest(digest, _document(answer))

    def image_manifest(self, name: str, manifest: Manifest, platform: str) -> Manifest:
        """Return the manifest of a platform (`linux/amd64`) if `manifest` is an index. Raises LookupFailed."""
        if "manifests" not in manifest.content:
            return manifest
        entries = list(_mappings(manifest.content["manifests"]))
        for entry in entries:
            if _platform(entry) == platform:
                return self.manifest(name, str(entry.get("digest")))
        available = ", ".join(sorted({_platform(entry) for entry in entries})) or "none"
        raise LookupFailed(f"{self._url}/v2/{name}: has no image for {platform}; available: {available}")

    @contextlib.contextmanager
    def layer(self, name: str, digest: str) -> Iterator[Stream]:
        """Yield the content of a layer. Raises LookupFailed."""
        url = f"{self._url}/v2/{name}/blobs/{digest}"
        with contextlib.ExitStack() as stack:
            yield self._requested(name, lambda token: stack.enter_context(opened(url, self._seconds, token))[0])

    def _requested(self, name: str, request: Callable[[Mapping[str, str]], _T]) -> _T:
        """Return the result of a request, with an anonymous token if the registry requires one."""
        try:
            return request(self._tokens.get(name, {}))
        except Refused as refused:
            if refused.status == 404:
                raise NoSuchImage(f"{self._url}/v2/{name}: has no such image: {refused}") from None
            if refused.status != 401 or name in self._tokens:
                raise self._forbidden(name, refused) from None
            challenge = refused.headers.get("www-authenticate", "")
        self._tokens[name] = self._token(name, challenge)
        try:
            return request(self._tokens[name])
        except Refused as refused:
            if refused.status == 404:
                raise NoSuchImage(f"{self._url}/v2/{name}: has no such image: {refused}") from None
            raise self._forbidden(name, refused) from None

    def _token(self, name: str, challenge: str) -> Mapping[str, str]:
        """Return the header with an anonymous token from the address in a challenge."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer ") or "realm" not in fields:
            raise CredentialsRequired(f"{self._url}/v2/{name}: requires credentials")
        query = {"service": fields.get("service", ""), "scope": f"repository:{name}:pull"}
        url = f"{fields['realm']}?{urllib.parse.urlencode({key: value for key, value in query.items() if value})}"
        try:
            content = _document(get(url, self._seconds))
        except Refused as refused:
            raise self._forbidden(name, refused) from None
        token = content.get("token") or content.get("access_token")
        if not isinstance(token, str):
            raise LookupFailed(f"{url}: the response has no token")
        return {"Authorization": f"Bearer {token}"}

    def _forbidden(self, name: str, refused: Refused) -> LookupFailed:
        if refused.status in (401, 403):
            return CredentialsRequired(f"{self._url}/v2/{name}: requires credentials")
        return refused


def _document(answer: Answer) -> Mapping[str, Any]:
    try:
        content = json.loads(answer.body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise LookupFailed(f"{answer.url}: the response is not a JSON object")
    return content


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def layers(manifest: Manifest) -> list[tuple[str, str]]:
    """Return digest and media type of an image's layers, lowest first. Raises LookupFailed."""
    found = [
        (str(each.get("digest")), str(each.get("mediaType"))) for each in _mappings(manifest.content.get("layers"))
    ]
    if not found or not all(_DIGEST.fullmatch(digest) for digest, _ in found):
        raise LookupFailed(f"{manifest.digest}: the manifest has no layers")
    return found


def _platform(entry: Mapping[str, Any]) -> str:
    platform = entry.get("platform")
    return f"{platform.get('os')}/{platform.get('architecture')}" if isinstance(platform, dict) else "unknown"
