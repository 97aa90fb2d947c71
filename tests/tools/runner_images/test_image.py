"""`gpufleet pins --image`: the runner version in the layers of an image, from a registry on this machine."""

from __future__ import annotations

import gzip
import pathlib

import pytest

from gpufleet_tools.runner_images.registry import Image, parse
from gpufleet_tools.runner_images.runner_version import runner_version
from gpufleet_tools.runner_images.web import LookupFailed
from tests.conftest import ROOT, Gpufleet
from tests.tools.runner_images.servers import Reply, Server, layer, listener

NAME = "team/runner"
BASE = layer({"etc/os-release": "ID=ubuntu\n"})
HELD = layer(listener("2.335.1"))


def held(server: Server, *layers: bytes) -> str:
    """Return the version that is read from an image of the layers."""
    server.image(NAME, "one", *layers)
    return runner_version(f"{server.host}/{NAME}:one", 5)[0]


def test_the_version_is_that_of_the_listener(server: Server) -> None:
    digest = server.image(NAME, "one", BASE, HELD, layer({"opt/tool": "x"}))
    assert runner_version(f"{server.host}/{NAME}:one", 5) == ("2.335.1", digest)
    assert runner_version(f"{server.host}/{NAME}@{digest}", 5) == ("2.335.1", digest)


def test_an_upper_layer_hides_lower_ones(server: Server) -> None:
    assert held(server, BASE, HELD, layer(listener("2.337.0", "./home/runner/bin"))) == "2.337.0"
    asked = [path for path, _ in server.asked if "/blobs/" in path]
    assert len(asked) == 1, "the layers below are not read"


@pytest.mark.parametrize(
    "whiteout",
    [
        "home/runner/bin/.wh.Runner.Listener.deps.json",
        "home/runner/.wh.bin",
        "home/.wh.runner",
        "home/runner/bin/.wh..wh..opq",
    ],
)
def test_a_runner_that_an_upper_layer_removes_is_not_held(server: Server, whiteout: str) -> None:
    with pytest.raises(LookupFailed, match=r"has no /home/runner/bin/Runner\.Listener\.deps\.json"):
        held(server, HELD, layer({whiteout: ""}))


def test_a_layer_may_remove_and_bring_it_anew(server: Server) -> None:
    assert held(server, HELD, layer({"home/runner/.wh.bin": "", **listener("2.338.0")})) == "2.338.0"


def test_a_layer_without_compression_is_read(server: Server) -> None:
    assert held(server, gzip.decompress(HELD)) == "2.335.1"


UNREADABLE = {
    "no runner": ([BASE], "has no /home/runner/bin/"),
    "a runner elsewhere": ([layer(listener("2.335.1", "actions-runner/bin"))], "has no /home/runner/bin/"),
    "a list of something else": (
        [layer({"home/runner/bin/Runner.Listener.deps.json": "[]"})],
        "does not have exactly one version",
    ),
    "a list that is cut off": (
        [layer({"home/runner/bin/Runner.Listener.deps.json": "{"})],
        "does not have exactly one version",
    ),
    "no archive": ([b"no archive" * 100], "a layer is not a readable archive"),
    "half an archive": ([HELD[: len(HELD) // 2]], "a layer is not a readable archive"),
}


@pytest.mark.parametrize(("layers", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_image_that_does_not_tell_is_one_line(server: Server, layers: list[bytes], said: str) -> None:
    with pytest.raises(LookupFailed) as failed:
        held(server, *layers)
    assert said in str(failed.value)
    assert str(failed.value).endswith("; find out its runner version from its build, and declare runnerVersion")
    assert "\n" not in str(failed.value)


def test_a_layer_of_another_digest_is_refused(server: Server) -> None:
    server.image(NAME, "one", HELD)
    (blob,) = (path for path in server.replies if "/blobs/" in path)
    server.replies[blob] = Reply(layer(listener("2.999.0")))
    with pytest.raises(LookupFailed, match=r"the layer sha256:.* has the digest sha256:"):
        runner_version(f"{server.host}/{NAME}:one", 5)


def test_a_layer_elsewhere_is_fetched_without_the_token(server: Server) -> None:
    server.image(NAME, "one", HELD)
    (blob,) = (path for path in server.replies if "/blobs/" in path)
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    server.replies["/storage"] = server.replies[blob]
    server.replies[blob] = Reply(b"", 307, {"Location": f"{elsewhere}/storage"})
    server.token = "anybody"
    server.replies["/token?service=here&scope=repository%3Ateam%2Frunner%3Apull"] = Reply(b'{"token": "anybody"}')
    assert runner_version(f"{server.host}/{NAME}:one", 5)[0] == "2.335.1"
    sent = {path: headers.get("Authorization") for path, headers in server.asked}
    assert (sent[blob], sent["/storage"]) == ("Bearer anybody", None)


def test_other_failures_are_one_line_each(server: Server) -> None:
    with pytest.raises(LookupFailed, match="has no such image"):
        runner_version(f"{server.host}/{NAME}:gone", 5)
    server.image(NAME, "one", HELD)
    with pytest.raises(LookupFailed, match="has no image for linux/arm64; available: linux/amd64"):
        runner_version(f"{server.host}/{NAME}:one", 5, "linux/arm64")
    server.image(NAME, "zstd", HELD, media_type="application/vnd.oci.image.layer.v1.tar+zstd")
    with pytest.raises(LookupFailed, match="zstd compression"):
        runner_version(f"{server.host}/{NAME}:zstd", 5)
    server.token = "of somebody"
    server.replies["/token?service=here&scope=repository%3Ateam%2Frunner%3Apull"] = Reply(b"{}", 403)
    with pytest.raises(LookupFailed, match="requires credentials; declare runnerVersion instead"):
        runner_version(f"{server.host}/{NAME}:one", 5)
    with pytest.raises(LookupFailed, match="cannot be reached"):
        runner_version("127.0.0.1:1/team/runner:one", 5)


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("ghcr.io/a/b:1", Image("ghcr.io", "a/b", "1")),
        ("ghcr.io/a/b", Image("ghcr.io", "a/b", "latest")),
        ("localhost:5000/b:1@sha256:" + "a" * 64, Image("localhost:5000", "b", "sha256:" + "a" * 64)),
        ("docker:28", Image("registry-1.docker.io", "library/docker", "28")),
        ("team/runner", Image("registry-1.docker.io", "team/runner", "latest")),
        ("docker.io/team/runner", Image("registry-1.docker.io", "team/runner", "latest")),
    ],
)
def test_references(text: str, image: Image) -> None:
    assert parse(text) == image


@pytest.mark.parametrize("text", ["", "ghcr.io/", "ghcr.io/a:", "ghcr.io/a@", "ghcr.io/a@sha256:12"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(LookupFailed, match="is not an image; write HOST/NAME:TAG"):
        parse(text)


def test_the_command(server: Server, gpufleet: Gpufleet) -> None:
    digest = server.image(NAME, "one", BASE, HELD)
    reference = f"{server.host}/{NAME}:one"
    ended = gpufleet("-C", ROOT, "pins", "--image", reference, "--on", "2026-09-23")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"{reference} ({digest}) contains runner 2.335.1: GitHub assigns it no jobs from 2026-09-24 on",
        "declare it in the stack file: profiles.PROFILE.runnerVersion: 2.335.1",
    ]
    assert gpufleet("-C", ROOT, "pins", "--image", reference, "--on", "2026-09-24").code == 1
    ended = gpufleet("-C", ROOT, "pins", "--image", f"{server.host}/{NAME}:two")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_an_empty_option_is_no_image(tmp_path: pathlib.Path, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", ROOT, "pins", "--image", "")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
