"""Runner version of an image, read from a file of the runner."""

from __future__ import annotations

import json
import re

from gpufleet_tools.runner_images.layers import UnreadableImage, read_files
from gpufleet_tools.runner_images.registry import CredentialsRequired
from gpufleet_tools.runner_images.web import LookupFailed

MANIFEST = "home/runner/bin/Runner.Listener.deps.json"
"""Dependencies of the listener, including its own version. Scale sets start /home/runner/run.sh beside it."""

_VERSION = re.compile(r"Runner\.Listener/(\d+\.\d+\.\d+)")
_MANIFEST_LIMIT = 4 * 2**20
_INSTEAD = "find out its runner version from its build, and declare runnerVersion"


def runner_version(image: str, seconds: float, platform: str = "linux/amd64") -> tuple[str, str]:
    """Return the runner version of an image, and the image's digest. Raises LookupFailed."""
    texts: list[bytes] = []
    try:
        digest = read_files(
            image, [MANIFEST], lambda _, content: texts.append(content.read(_MANIFEST_LIMIT)), seconds, platform
        )
    except CredentialsRequired as error:
        raise LookupFailed(f"{error}; declare runnerVersion instead") from None
    except UnreadableImage as error:
        missing = ", which scale sets require" if str(error).endswith(MANIFEST) else ""
        raise LookupFailed(f"{error}{missing}; {_INSTEAD}") from None
    return _version(image, texts[-1]), digest


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
