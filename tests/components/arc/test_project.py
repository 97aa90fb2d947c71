"""A project's namespace and credentials: made, or only named."""

from __future__ import annotations

import base64
import dataclasses
import re
from typing import Any

import pulumi
import pytest
from pulumi_kubernetes.core.v1 import ConfigMap, Secret

from gpufleet.arc import ExistingSecret, GithubApp, GithubToken, RunnerProject, RunnerProjectArgs
from gpufleet_tools.plan.plan import UNKNOWN, Hidden, Plan, revealed, shown
from tests.recording import on_cluster, recorded, the

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"

URL = "https://github.com/pytorch"

EXISTING = ExistingSecret(name="pytorch-secret")
APP = GithubApp(secret_name="pre-defined-rocm-secret", app_id="1000001", installation_id="50000001", private_key=KEY)
TOKEN = GithubToken(secret_name="token", token="ghp_0123")


def project(credentials: Any) -> tuple[RunnerProject, Plan]:
    """A project with these credentials, and the plan that it is all of."""
    made: list[RunnerProject] = []
    args = RunnerProjectArgs(config_url=URL, namespace="pytorch", credentials=credentials)
    plan = recorded(lambda: made.append(RunnerProject("project", args, on_cluster())))
    return made[0], plan


def data(plan: Plan) -> dict[str, str]:
    """What the secret holds, decoded."""
    return {
        key: base64.b64decode(value).decode() for key, value in revealed(the(plan, "Secret").inputs["data"]).items()
    }


# -- a secret that the project's owners keep --------------------------------------------------------------------------


def test_an_existing_secret_is_only_named() -> None:
    made, plan = project(EXISTING)
    assert made.reference.credentials_secret == "pytorch-secret"
    assert plan.objects() == []
    assert not [resource for resource in plan.resources if resource.type.endswith(":Secret")]


def test_its_namespace_is_only_looked_up() -> None:
    """The owners' secret lies in it: `destroy` must not take it along."""
    _, plan = project(EXISTING)
    assert the(plan, "Namespace").read_id == "pytorch"
    assert plan.expected_objects() == [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pytorch"}}]


def test_there_is_nothing_to_delete() -> None:
    _, plan = project(EXISTING)
    assert [resource.name for resource in plan.owned() if not resource.component] == ["cluster"]


# -- secrets that the stack makes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("credentials", [APP, TOKEN], ids=["App", "token"])
def test_namespace_and_secret_are_made(credentials: GithubApp | GithubToken) -> None:
    made, plan = project(credentials)
    assert the(plan, "Namespace").inputs["metadata"] == {"name": "pytorch"}
    assert the(plan, "Secret").inputs["metadata"] == {"name": credentials.secret_name, "namespace": "pytorch"}
    assert the(plan, "Namespace").urn in the(plan, "Secret").depends_on
    assert made.reference.credentials_secret == credentials.secret_name
    assert made.reference.namespace == "pytorch"


def test_an_app_has_the_three_keys_that_arc_reads() -> None:
    _, plan = project(APP)
    assert data(plan) == {
        "github_app_id": "1000001",
        "github_app_installation_id": "50000001",
        "github_app_private_key": KEY,
    }


def test_a_token_has_its_own_key_and_no_other() -> None:
    """ARC refuses a secret with a token and an App."""
    _, plan = project(TOKEN)
    assert data(plan) == {"github_token": "ghp_0123"}


@pytest.mark.parametrize("credentials", [APP, TOKEN], ids=["App", "token"])
def test_every_value_is_a_secret_to_pulumi(credentials: GithubApp | GithubToken) -> None:
    _, plan = project(credentials)
    secret = the(plan, "Secret")
    assert all(isinstance(value, Hidden) for value in secret.inputs["data"].values())
    text = repr(plan) + str(shown(secret.inputs))
    for value in revealed(secret.inputs["data"]).values():
        assert value not in text
        assert base64.b64decode(value).decode() not in text


def test_values_stand_under_data() -> None:
    """From `stringData`, a key that is taken away would stay on the server."""
    _, plan = project(APP)
    assert "stringData" not in the(plan, "Secret").inputs


def test_a_secret_of_the_configuration_stays_one() -> None:
    def build() -> None:
        app = GithubApp(secret_name="app", app_id="1", installation_id="2", private_key=pulumi.Output.secret("hunter2"))
        args = RunnerProjectArgs(config_url=URL, namespace="pytorch", credentials=app)
        RunnerProject("project", args, on_cluster())

    plan = recorded(build)
    assert data(plan)["github_app_private_key"] == "hunter2"
    assert "hunter2" not in repr(plan)


@pytest.mark.parametrize("credentials", [EXISTING, APP, TOKEN], ids=["existing", "App", "token"])
def test_what_scale_sets_depend_on_is_all_there_is(credentials: Any) -> None:
    made, plan = project(credentials)
    children = {resource.name for resource in plan.resources if resource.parent}
    assert {resource._name for resource in made.reference.needs} == children


# -- the revision of the credentials ----------------------------------------------------------------------------------


def revision(credentials: Any, namespace: str = "pytorch") -> Any:
    """The revision as a Pulumi resource is given it."""
    args = RunnerProjectArgs(config_url=URL, namespace=namespace, credentials=credentials)

    def build() -> None:
        opts = on_cluster()
        made = RunnerProject("project", args, opts).reference.credentials_revision
        ConfigMap("shown", data={"revision": made}, opts=opts)

    return the(recorded(build), "ConfigMap").inputs["data"].get("revision")


def test_every_part_of_the_credentials_changes_the_revision() -> None:
    others = [
        dataclasses.replace(APP, app_id="1000002"),
        dataclasses.replace(APP, installation_id="50000002"),
        dataclasses.replace(APP, private_key=KEY + "\n"),
        TOKEN,
        dataclasses.replace(TOKEN, token="ghp_0124"),
    ]
    found = [revision(each) for each in (APP, *others)]
    assert len({*found}) == len(found)
    assert revision(APP) == found[0]


def test_the_revision_is_shown_and_shows_nothing() -> None:
    """It is no secret to Pulumi, or the whole Helm values would be one."""
    found = revision(APP)
    assert re.fullmatch(r"[0-9a-f]{16}", found)
    # The same key in two places does not show as the same.
    assert found != revision(APP, "another-namespace")


def test_the_revision_of_an_existing_secret_is_its_owners() -> None:
    assert revision(EXISTING) is None
    assert revision(dataclasses.replace(EXISTING, revision="2026-11")) == "2026-11"


def test_the_revision_of_a_key_that_is_not_known_yet_is_not_known_either() -> None:
    """The key comes from a resource that the preview does not create."""

    def build() -> None:
        opts = on_cluster()
        source = Secret("source", string_data={"token": "x"}, opts=opts)
        token = GithubToken(secret_name="token", token=pulumi.Output.concat("ghp_", source.id))
        args = RunnerProjectArgs(config_url=URL, namespace="pytorch", credentials=token)
        made = RunnerProject("project", args, opts).reference.credentials_revision
        ConfigMap("shown", data={"revision": made}, opts=opts)

    assert the(recorded(build), "ConfigMap").inputs["data"]["revision"] is UNKNOWN
