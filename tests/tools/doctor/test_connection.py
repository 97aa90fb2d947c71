"""The examined cluster of a stack, and messages about kubeconfigs that cannot be used."""

from __future__ import annotations

import pathlib

import pytest

from gpufleet_tools.doctor import connection
from gpufleet_tools.doctor.finding import DoctorError
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from tests.conftest import ROOT, MakeProject

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: other
contexts:
- {name: mi300, context: {cluster: mi300, user: ci}}
- {name: other, context: {cluster: other, user: ci}}
clusters:
- {name: mi300, cluster: {server: "https://192.0.2.1:6443"}}
- {name: other, cluster: {server: "https://192.0.2.2:6443"}}
users:
- {name: ci, user: {token: one-token}}
"""


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def with_kubeconfig(project: MakeProject, setting: str) -> Stack:
    """The stack mi300 on an existing cluster."""
    text = (ROOT / "Pulumi.mi300.yaml").read_text()
    start, end = text.index("    ssh: {user: ci}"), text.index("    nodePools:")
    changed = (text[:start] + text[end:]).replace("kubeconfig: {kind: kubespray}", f"kubeconfig: {setting}")
    return stack.read(project({"mi300": changed}), "mi300")


def refused(of: Stack, kubeconfig: pathlib.Path | None = None) -> str:
    with pytest.raises(DoctorError) as error:
        connection.configuration(of, connection.target(of, kubeconfig, None))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_declared_context_is_used_and_not_the_current_one(project: MakeProject, home: pathlib.Path) -> None:
    (home / "config").write_text(KUBECONFIG)
    of = with_kubeconfig(project, "{kind: context, context: mi300, path: ~/config}")
    target = connection.target(of, None, None)
    settings = connection.configuration(of, target)
    assert settings.host == "https://192.0.2.1:6443"
    assert [each["value"] for each in settings.auth_settings().values()] == ["Bearer one-token"]
    assert connection.target(of, None, "other").context == "other"


def test_a_given_file_comes_first(project: MakeProject, home: pathlib.Path) -> None:
    (home / "config").write_text(KUBECONFIG)
    of = with_kubeconfig(project, "{kind: context, context: absent}")
    target = connection.target(of, pathlib.Path("~/config"), None)
    assert connection.configuration(of, target).host == "https://192.0.2.2:6443", "its current context"


def test_commands_select_the_examined_cluster() -> None:
    target = Target(pathlib.Path("/a b/config"), "mi300")
    assert target.kubectl("delete pod x") == "kubectl --kubeconfig '/a b/config' --context mi300 delete pod x"
    assert target.helm("get values x") == "helm --kubeconfig '/a b/config' --kube-context mi300 get values x"
    assert (Target().kubectl("get pods"), Target().helm("list")) == ("kubectl get pods", "helm list")


def test_a_secret_kubeconfig_is_not_decrypted(project: MakeProject) -> None:
    assert "pulumi config get --stack mi300 gpu-runners:kubeconfig > FILE" in refused(
        with_kubeconfig(project, "{kind: secret}")
    )


def test_kubespray_wrote_the_kubeconfig_on_another_machine(home: pathlib.Path) -> None:
    of = stack.read(ROOT, "mi300")
    assert "~/.kubespray/mi300/inventory/artifacts/admin.conf does not exist here" in refused(of)
    file = home / ".kubespray/mi300/inventory/artifacts/admin.conf"
    file.parent.mkdir(parents=True)
    file.write_text(KUBECONFIG)
    assert connection.target(of, None, None) == Target(file, None)


def test_eks_is_known_by_the_name_that_aws_writes(home: pathlib.Path) -> None:
    of = stack.read(ROOT, "dev")
    assert connection.target(of, None, None).context == "arn:aws:eks:us-east-1:111122223333:cluster/gpu-dev"
    assert "run aws eks update-kubeconfig --region us-east-1 --name gpu-dev" in refused(of)


@pytest.mark.parametrize("content", [None, "{", "kind: Config", "[]"])
def test_a_file_that_is_no_kubeconfig(home: pathlib.Path, content: str | None) -> None:
    file = home / "config"
    if content is not None:
        file.write_text(content)
    assert refused(stack.read(ROOT, "dev"), file).startswith(f"{file}: ")
