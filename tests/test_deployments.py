"""Settings of Pulumi Deployments: files, the command they become, and what Pulumi's own command sends of it."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpufleet_stacks.settings.stack_file import stack_files
from gpufleet_tools import deployments as deployment_settings
from gpufleet_tools.deployments import PLACEHOLDER, DeploymentSettings, DeploymentSettingsError
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, Gpufleet

FILES = sorted(ROOT.glob("Pulumi.*.deploy.yaml"))


def filled_in(file: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """The settings of a file whose placeholders somebody has replaced, written to the folder."""
    text = file.read_text().replace(PLACEHOLDER, "example-")
    (folder / file.name).write_text(text)
    settings: dict[str, Any] = yaml.safe_load(text)["settings"]
    return settings


def of(file: pathlib.Path) -> str:
    return file.name.removeprefix("Pulumi.").removesuffix(".deploy.yaml")


def test_every_stack_has_one_and_none_is_taken_for_a_stack() -> None:
    assert [of(file) for file in FILES] == stack.names(ROOT)
    assert not {*FILES} & {*stack_files(ROOT)}


@pytest.mark.parametrize("file", FILES, ids=of)
def test_what_only_the_owner_knows_is_asked_for(file: pathlib.Path, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", ROOT, "deployments", of(file))
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == sum(PLACEHOLDER in line for line in file.read_text().splitlines())
    assert all(line.startswith(f"{file.name}: settings.") for line in ended.err.splitlines())


@pytest.mark.parametrize("file", FILES, ids=of)
def test_paths_that_deploy_are_there(file: pathlib.Path) -> None:
    for pattern in yaml.safe_load(file.read_text())["settings"]["gitHub"]["paths"]:
        assert any(ROOT.glob(pattern)), pattern


BAD = {
    "an unknown key": ({"agentPool": "a"}, "settings.agentPool: Extra inputs are not permitted"),
    "a number for a text": (
        {"operationContext": {"environmentVariables": {"N": 1}}},
        "settings.operationContext.environmentVariables.N: Input should be a valid string",
    ),
    "a secret": (
        {"operationContext": {"environmentVariables": {"TOKEN": {"secret": "abc"}}}},
        "settings.operationContext.environmentVariables.TOKEN: Input should be a valid string",
    ),
    "no repository": ({"gitHub": {}}, "settings.gitHub.repository: Field required"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_set_is_said(change: dict[str, Any], message: str, tmp_path: pathlib.Path) -> None:
    settings = filled_in(FILES[0], tmp_path) | change
    (tmp_path / "Pulumi.dev.deploy.yaml").write_text(yaml.safe_dump({"settings": settings}))
    with pytest.raises(DeploymentSettingsError) as raised:
        deployment_settings.read(tmp_path, "dev")
    assert str(raised.value) == f"Pulumi.dev.deploy.yaml: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("a: [", "is not YAML"),
        ("tag: a\n", "must have exactly one key, 'settings'"),
        ("- a\n", "must have exactly one key, 'settings'"),
    ],
)
def test_what_is_no_such_file_is_said(text: str | None, message: str, tmp_path: pathlib.Path) -> None:
    if text is not None:
        (tmp_path / "Pulumi.dev.deploy.yaml").write_text(text)
    with pytest.raises(DeploymentSettingsError, match=f"Pulumi.dev.deploy.yaml: {message}"):
        deployment_settings.read(tmp_path, "dev")


# -- Pulumi's own command, and what it sends --------------------------------------------------------------------------


@contextlib.contextmanager
def cloud() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A Pulumi Cloud that knows every stack, and keeps what is posted to it."""
    posted: list[tuple[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            organization, project, name = (["", *self.path.strip("/").split("/"), "", "", ""])[3:6]
            known = {"orgName": organization, "projectName": project, "stackName": name, "version": 1, "tags": {}}
            answers = {"/api/user": {"githubLogin": "example", "organizations": [{"githubLogin": "example"}]}}
            self.answer({} if self.path.endswith("/settings") else answers.get(self.path, known))

        def do_POST(self) -> None:
            posted.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.answer({})

        def answer(self, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


@pytest.mark.skipif(shutil.which("pulumi") is None, reason="the real engine is not here: pulumi missing")
@pytest.mark.parametrize("file", FILES, ids=of)
def test_the_command_sets_what_the_file_says(file: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path) -> None:
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    settings = filled_in(file, tmp_path)
    printed = gpufleet("-C", tmp_path, "deployments", of(file), "--organization", "example")
    assert printed.code == 0
    assert "is experimental" in printed.err
    with cloud() as (url, posted):
        environment = os.environ | {
            "PULUMI_BACKEND_URL": url,
            "PULUMI_ACCESS_TOKEN": "pul-stand-in",
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        ended = subprocess.run(
            [*shlex.split(printed.out), "--non-interactive"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    path = f"/api/stacks/example/gpu-runners/{of(file)}/deployments/settings"
    assert posted == [(path, merged(CLEARED, settings))]


CLEARED: dict[str, Any] = {
    "agentPoolID": None,
    "sourceContext": {"git": {"repoDir": ""}},
    "operationContext": {"oidc": {"aws": None, "azure": None, "gcp": None}},
}
"""What the service deletes where the file has nothing in its place: it merges, and null deletes a key."""


def merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    keys = one.keys() | other.keys()
    return {key: merged(one[key], other[key]) if key in one and key in other else (one | other)[key] for key in keys}


def test_what_the_file_does_not_have_is_cleared() -> None:
    settings = DeploymentSettings.model_validate(
        {"gitHub": {"repository": "a/b"}, "sourceContext": {"git": {"branch": "refs/heads/main"}}}
    )
    words = deployment_settings.edit("dev", settings)
    assert {"--runner-pool=", "--folder=", "--path-filter=", "--oidc-aws-clear=true"} < {*words}
    assert "--skip-install-deps=false" in words
    assert [note.split(":")[0] for note in deployment_settings.not_cleared(settings)] == [
        "pulumi deployment settings edit is experimental",
        "pre-run commands that were set earlier remain",
        "environment variables that the file no longer has remain",
    ]
