"""Scale sets of others as entries of a stack file: nothing is lost in silence, nothing secret is shown."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpufleet.arc.controller import ControllerReference, listener_metrics
from gpufleet.arc.project import ProjectReference
from gpufleet.arc.scale_set import scale_set_values
from gpufleet.arc.scale_set_args import Docker, RunnerResources, RunnerScaleSetArgs, SecretKey, Volume
from gpufleet_stacks.settings import load
from gpufleet_tools.imports import arc_values
from gpufleet_tools.imports import proof as runner_import
from gpufleet_tools.imports.arc_values import UnreadableValues
from gpufleet_tools.imports.value_differences import differences
from tests.conftest import ROOT, Gpufleet, MakeProject, examples

GOLDEN = ROOT / "tests/golden/pytorch-2-gpu.values.yaml"
TOKEN = "ghp_" + "a" * 36
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture
def document_002() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(GOLDEN.read_text())
    return values


def write(folder: pathlib.Path, content: Any, name: str = "values.yaml") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return str(path)


def imported(path: str, namespace: str | None = None) -> runner_import.Import:
    return runner_import.read_all([path], namespace, {})


def test_document_002_is_this_repository_s_own_runner() -> None:
    """The committed stack was written from the same document, by hand."""
    found = imported(f"linux-mi300-gpu-2={GOLDEN}")
    config = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())["config"]
    by_hand = config["gpu-runners:runners"]["linux-mi300-gpu-2"] | {"max": 2**31 - 1}
    assert found.runners == {"linux-mi300-gpu-2": by_hand}
    assert found.profiles == {"pytorch": config["gpu-runners:profiles"]["pytorch"]}
    assert found.projects == {"pytorch": config["gpu-runners:projects"]["pytorch"]}
    assert not found.differs
    assert [line for line in found.lines if "maxRunners: it has none" in line]


def test_helm_s_own_form(tmp_path: pathlib.Path) -> None:
    text = "USER-SUPPLIED VALUES:\n" + GOLDEN.read_text()
    assert imported("a=" + write(tmp_path, text)).text() == imported(f"a={GOLDEN}").text()


def test_a_rendered_scale_set(tmp_path: pathlib.Path, document_002: dict[str, Any]) -> None:
    """As the chart 0.14.2 renders document 002: with what it adds, beside the objects it makes."""
    spec = {key: value for key, value in document_002.items() if key != "controllerServiceAccount"}
    spec = copy.deepcopy(spec)
    spec["template"]["spec"] |= {
        "restartPolicy": "Never",
        "serviceAccountName": "linux-mi300-gpu-2-gha-rs-no-permission",
    }
    labels = {"app.kubernetes.io/version": "0.14.2", "helm.sh/chart": "gha-rs-0.14.2", "team": "pytorch"}
    runner_set = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": "linux-mi300-gpu-2", "namespace": "pytorch", "labels": labels},
        "spec": spec,
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x-gha-rs-no-permission"}}
    path = write(tmp_path, yaml.safe_dump_all([account, runner_set]))
    found = imported(path)
    assert found.runners == imported(f"linux-mi300-gpu-2={GOLDEN}").runners
    assert found.profiles["pytorch"]["scaleSetMetadata"] == {"labels": {"team": "pytorch"}}
    assert [line for line in found.lines if "passed over" in line] == [
        f"{path}: ServiceAccount x-gha-rs-no-permission: passed over: the chart creates it"
    ]
    assert not found.differs, found.lines
    listed = write(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [account, runner_set]}, "list.yaml")
    assert imported(listed).runners == found.runners


def test_proxies_and_the_certificate_of_a_server(tmp_path: pathlib.Path, document_002: dict[str, Any]) -> None:
    http, https = {"url": "http://proxy:3128"}, {"url": "https://proxy:3129/", "credentialSecretRef": "proxy-login"}
    reference = {"configMapKeyRef": {"name": "ghes-ca", "key": "ca.pem"}}
    values = document_002 | {
        "proxy": {"http": http, "https": https, "noProxy": ["10.0.0.0/8"]},
        "githubServerTLS": {"certificateFrom": reference, "runnerMountPath": "/usr/local/share/ca-certificates/"},
    }
    found = imported(f"a={write(tmp_path, values)}")
    (project,) = found.projects.values()
    assert project["proxy"] == {
        "http": http,
        "https": {"url": "https://proxy:3129/", "credentialsSecret": "proxy-login"},
        "noProxy": ["10.0.0.0/8"],
    }
    assert project["serverCertificate"] == {
        "configMap": "ghes-ca",
        "key": "ca.pem",
        "runnerMountPath": "/usr/local/share/ca-certificates/",
    }
    assert not found.differs, found.lines


def test_a_runtime_class_is_brought_along(tmp_path: pathlib.Path, document_002: dict[str, Any]) -> None:
    found = imported(f"a={write(tmp_path, at(document_002, 'template.spec.runtimeClassName', 'nvidia'))}")
    (profile,) = found.profiles.values()
    assert profile["runtimeClass"] == "nvidia"
    assert not [line for line in found.lines if "runtimeClass" in line]


def at(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the values with another value at a path."""
    changed = copy.deepcopy(values)
    target: Any = changed
    *parents, last = path.split(".")
    for part in parents:
        target = target[int(part)] if part.isdigit() else target.setdefault(part, {})
    target[int(last) if last.isdigit() else last] = value
    return changed


RUNNER = "template.spec.containers.0"
DIND = "template.spec.initContainers.1"


def is_lost(found: runner_import.Import) -> bool:
    """Whether something is said to be lost or changed."""
    return any(word in line for word in runner_import.LOSSES for line in found.lines)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("proxy", {"http": {"url": "http://proxy", "timeout": 1}}, "loses: proxy.http.timeout"),
        (
            "proxy",
            {"https": {"url": "https://me:word@proxy"}},
            'proxy.https.url: "<secret>" is not a URL without',
        ),
        ("proxy", {"noProxy": "a,b"}, "cannot be expressed: projects.pytorch.proxy.noProxy"),
        ("githubServerTLS", {"runnerMountPath": "/x"}, "githubServerTLS"),
        (
            "githubServerTLS.certificateFrom.configMapKeyRef",
            {"name": "A B", "key": "ca"},
            "serverCertificate.configMap",
        ),
        ("keyVault", {"type": "azure_key_vault"}, "keyVault"),
        ("scaleSetLabels", ["a", "b c"], "additionalLabels"),
        ("labels", {"A B": "b"}, "labels"),
        ("resourceMeta", {"ephemeralRunner": {"labels": {"a": "b"}}}, "resourceMeta"),
        ("listenerTemplate", {"spec": {"containers": []}}, None),
        ("listenerTemplate", {"spec": {"hostNetwork": True}}, "listenerTemplate"),
        ("somethingNew", 1, "somethingNew"),
        ("controllerServiceAccount.name", "own-account", "controllerServiceAccount.name"),
        ("template.spec.hostNetwork", True, "template.spec.hostNetwork"),
        ("template.spec.affinity", {"podAffinity": {"a": 1}}, "template.spec.affinity"),
        (f"{RUNNER}.ports", [{"containerPort": 8080}], "containers.runner.ports"),
        (f"{RUNNER}.workingDir", "/x", "containers.runner.workingDir"),
        (f"{RUNNER}.name", "other", "containers.other"),
        (f"{DIND}.securityContext.fsGroup", 1001, "initContainers.dind.securityContext.fsGroup"),
        (f"{DIND}.imagePullPolicy", "Never", "initContainers.dind.imagePullPolicy"),
        ("template.spec.initContainers.0.image", "other", "init-dind-externals.image"),
        ("minRunners", "3", "minRunners: '3' is text"),
    ],
)
def test_nothing_is_dropped_in_silence(
    path: str, value: Any, message: str | None, document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    found = imported("a=" + write(tmp_path, at(document_002, path, value)))
    said = [line for line in found.lines if message and message in line]
    assert bool(said) == (message is not None), found.lines
    assert found.differs == is_lost(found)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("minRunners", 0),
        ("maxRunners", 4.0),
        ("runnerGroup", "gpus"),
        ("githubConfigUrl", "https://github.com/pytorch/"),
        ("containerMode", {}),
        ("listenerMetrics", listener_metrics()),
        ("controllerServiceAccount", {"name": "actions-gha-rs-controller", "namespace": "actions"}),
        ("template.spec.nodeSelector", {"a/b": "c"}),
        ("template.spec.tolerations", [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
        ("template.spec.tolerations", [{"key": "a", "value": "b"}]),
        (f"{RUNNER}.resources.requests.cpu", "40"),
        (f"{RUNNER}.resources.limits.ephemeral-storage", "100000M"),
        (f"{RUNNER}.volumeMounts.0.readOnly", False),
        (f"{RUNNER}.ports", []),
        ("listenerMetrics", {"counters": {"a": {"labels": []}}}),
        ("containerMode", {"type": "kubernetes"}),
        ("labels", {"a": "b"}),
        ("scaleSetLabels", ["home-operations", "GPU"]),
        ("annotations", {"secret.reloader.stakater.com/reload": "runner-secret"}),
        ("template.metadata.labels", {"a": "b"}),
        ("template.spec.serviceAccountName", "own"),
        ("template.spec.securityContext.supplementalGroups", [110, 44]),
        ("template.spec.securityContext.fsGroup", 1001),
        (f"{RUNNER}.command.2", "/home/runner/run.sh\n"),
        (f"{RUNNER}.resources.limits.cpu", 40),
        (f"{RUNNER}.resources.requests.hugepages-2Mi", "1Gi"),
        (f"{RUNNER}.env.1", {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        (f"{RUNNER}.volumeMounts.0.subPath", "x"),
        (f"{DIND}.args.0", "dockerd &\n"),
        ("template.spec.volumes.0", {"name": "work", "emptyDir": {"medium": "Memory"}}),
        ("template.spec.volumes.4", {"name": "unmounted", "hostPath": {"path": "/x"}}),
    ],
)
def test_what_a_stack_file_can_say_comes_out_again(
    path: str, value: Any, document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    found = imported("a=" + write(tmp_path, at(document_002, path, value)))
    assert not found.differs, found.lines


def test_values_that_are_equal_to_kubernetes_are_no_difference(document_002: dict[str, Any]) -> None:
    other = copy.deepcopy(document_002)
    spec = other["template"]["spec"]
    spec["volumes"].reverse()
    spec["containers"][0]["env"].reverse()
    spec["containers"][0]["resources"]["requests"] |= {"cpu": 40, "memory": 450000 * 1024**2}
    assert differences(document_002, other) == []
    spec["initContainers"].reverse()
    assert [difference.path for difference in differences(document_002, other)] == [
        "template.spec.initContainers.order"
    ]


def test_what_has_no_setting_is_kept_and_told(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    ports = [{"containerPort": 8080}]
    found = imported("a=" + write(tmp_path, at(document_002, f"{RUNNER}.ports", ports)))
    (profile,) = found.profiles.values()
    assert profile["podTemplate"] == {"spec": {"containers": [{"name": "runner", "ports": ports}]}}
    assert [line for line in found.lines if "podTemplate keeps it: template.spec.containers.runner.ports" in line]
    assert not found.differs


def test_what_is_added_is_told_apart(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    del document_002["template"]["spec"]["containers"][0]["env"][1:]
    found = imported("a=" + write(tmp_path, document_002))
    assert [line for line in found.lines if ": adds: template.spec.containers.runner.env." in line]
    assert not found.differs


@pytest.mark.parametrize(
    ("path", "value", "note"),
    [
        ("buildkit", {"workers": 7}, "buildkit: has no effect: the chart does not read it"),
        (
            f"{DIND}.securityContext.fsGroup",
            1001,
            "template.spec.initContainers.dind.securityContext.fsGroup: 1001 has no effect: Kubernetes' SecurityContext"
            " has no such field",
        ),
        (
            "template.spec.nodeselector",
            {"a": "b"},
            'template.spec.nodeselector: {"a": "b"} has no effect: Kubernetes\' PodSpec has no such field',
        ),
    ],
)
def test_what_has_no_effect_is_told_and_left_out(
    path: str, value: Any, note: str, document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    plain = imported("a=" + write(tmp_path, document_002))
    found = imported("a=" + write(tmp_path, at(document_002, path, value)))
    assert [line for line in found.lines if line not in plain.lines] == [f"{tmp_path / 'values.yaml'}: a: {note}"]
    assert (found.text(), found.differs) == (plain.text(), False)


def test_a_secret_among_the_variables_comes_from_a_kubernetes_secret(
    document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    document_002["template"]["spec"]["containers"][0]["env"].append({"name": "HF_TOKEN", "value": "hf_" + "a1" * 17})
    path = write(tmp_path, document_002)
    found = imported(f"a={path}")
    (profile,) = found.profiles.values()
    assert profile["envFromSecret"] == {"HF_TOKEN": {"name": "a-env", "key": "HF_TOKEN"}}
    assert (
        f"{path}: a: HF_TOKEN: is a secret in plain text; revoke it, and put another into key HF_TOKEN of Secret a-env"
        " in namespace pytorch before the runners start"
    ) in found.lines
    assert not found.differs, found.lines
    assert "a1a1" not in found.text() + "".join(found.lines)


def test_variables_that_others_fill_in(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    document_002["template"]["spec"]["containers"][0]["image"] = "${ image }"
    path = write(tmp_path, at(document_002, f"{RUNNER}.args", ["echo ${HOME}"]))
    found = imported(f"a={path}")
    assert f"{path}: a: ${{image}} is filled in elsewhere; give its value: --substitute image=VALUE" in found.lines
    assert found.differs
    filled = runner_import.read_all([f"a={path}"], None, {}, {"image": "example/runner:1"})
    (profile,) = filled.profiles.values()
    assert (profile["image"], profile["args"]) == ("example/runner:1", ["echo ${HOME}"])
    assert not filled.differs, filled.lines


@pytest.mark.parametrize("given", ["image", "=x", "a b=x"])
def test_a_substitute_has_a_name_and_a_value(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner_import.run([f"a={GOLDEN}"], None, [], None, [given]) == 2
    assert capsys.readouterr().err.startswith(f'gpufleet: --substitute "{given}": is not NAME=VALUE')


def test_what_cannot_be_expressed_hides_nothing(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    document_002["template"]["spec"]["containers"][0]["image"] = "${ image }"
    document_002["keyVault"] = {"type": "azure_key_vault"}
    found = imported("a=" + write(tmp_path, document_002))
    assert [line for line in found.lines if "cannot be expressed: profiles.pytorch.image" in line]
    assert [line for line in found.lines if "loses: keyVault" in line]


def test_gpus_of_nvidia(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    resources = {"limits": {"nvidia.com/gpu": 1, "cpu": 4, "memory": "8Gi"}}
    found = imported("a=" + write(tmp_path, at(document_002, f"{RUNNER}.resources", resources)))
    assert found.runners["a"]["gpus"] == 1
    assert found.runners["a"]["limits"] == {"cpu": 4, "memory": "8Gi"}
    assert [line for line in found.lines if "gpus: 1 of nvidia.com/gpu" in line]
    assert not found.differs, found.lines


def test_a_stack_has_one_controller(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    account = {"name": "other-gha-rs-controller", "namespace": "other"}
    other = write(tmp_path, document_002 | {"controllerServiceAccount": account}, "other.yaml")
    with pytest.raises(UnreadableValues, match="a stack has one controller"):
        runner_import.read_all([f"a={GOLDEN}", f"b={other}"], None, {})


@pytest.mark.parametrize("mode", ["dind", "kubernetes", "kubernetes-novolume"])
def test_container_modes_of_the_chart(mode: str, tmp_path: pathlib.Path) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    values = {
        "githubConfigUrl": "https://github.com/example",
        "githubConfigSecret": "github",
        "containerMode": {"type": mode} | ({"kubernetesModeWorkVolumeClaim": claim} if mode == "kubernetes" else {}),
    }
    found = imported("a=" + write(tmp_path, values))
    assert not found.differs, found.lines
    # The chart's image of the daemon is pulled if it is not there; that of its runner is `latest`, and so always.
    kept = [line.partition(runner_import.KEPT)[2] for line in found.lines if runner_import.KEPT in line]
    assert kept == (["template.spec.initContainers.dind.imagePullPolicy"] if mode == "dind" else [])
    assert found.runners["a"]["docker"] is True
    (profile,) = found.profiles.values()
    assert profile["docker"].get("kind", "dind") == mode


FLUX = {
    "apiVersion": "helm.toolkit.fluxcd.io/v2",
    "kind": "HelmRelease",
    "metadata": {"name": "runners", "namespace": "ci"},
    "spec": {"chart": {"spec": {"chart": "gha-runner-scale-set"}}},
}
ARGO = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Application",
    "metadata": {"name": "runners", "namespace": "argocd"},
    "spec": {"destination": {"namespace": "ci"}, "source": {"chart": "gha-runner-scale-set"}},
}


@pytest.mark.parametrize("form", ["flux", "argo object", "argo text"])
def test_releases_in_git(form: str, document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    manifest = copy.deepcopy(FLUX if form == "flux" else ARGO)
    if form == "flux":
        manifest["spec"] |= {"values": document_002, "valuesFrom": [{"kind": "Secret", "name": "more"}]}
    elif form == "argo object":
        manifest["spec"]["source"]["helm"] = {"valuesObject": document_002, "valueFiles": ["more"]}
    else:
        manifest["spec"]["source"]["helm"] = {"values": yaml.safe_dump(document_002), "valueFiles": ["more"]}
    found = imported(write(tmp_path, manifest))
    (profile,) = imported(f"runners={GOLDEN}").profiles.values()
    assert list(found.runners) == ["runners"]
    assert found.projects["pytorch"]["namespace"] == "ci"
    assert [*found.profiles.values()] == [profile]
    assert [line for line in found.lines if "more: not in this file, and so not compared" in line]


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ({"github_token": TOKEN}, "models-token"),
        ({"github_token": "a-token-of-no-known-form"}, "models-token"),
        (
            {"github_app_id": 1000001, "github_app_installation_id": "5", "github_app_private_key": KEY},
            "models-privateKey",
        ),
    ],
    ids=["token", "unknown token", "app"],
)
@pytest.mark.parametrize("form", ["values", "helm get values"])
def test_credentials_are_never_shown(
    secret: dict[str, Any],
    key: str,
    form: str,
    document_002: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    document_002 |= {"githubConfigUrl": "https://github.com/example/models", "githubConfigSecret": secret}
    document_002["template"]["spec"]["containers"][0]["env"] += [
        {"name": "HF_TOKEN", "value": "hf_verysecret"},
        {"name": "WHERE", "value": "https://me:opensesame@example.com"},
    ]
    text = yaml.safe_dump(document_002)
    path = write(tmp_path, f"USER-SUPPLIED VALUES:\n{text}" if form == "helm get values" else text)
    code = runner_import.run([f"runner={path}"], None, [], None)
    ended = capsys.readouterr()
    shown = ended.out + ended.err
    for word in (TOKEN, "a-token-of-no-known-form", "MIIEpAIBAAKCAQEA", "hf_verysecret", "opensesame"):
        assert word not in shown
    assert f"pulumi config set --secret gpu-runners:{key}" in ended.err
    for name in ("HF_TOKEN", "WHERE"):
        assert f"{name}: is a secret in plain text" in ended.err
    assert code == 0
    entries = yaml.safe_load(ended.out)["config"]
    assert entries["gpu-runners:projects"]["models"]["credentials"]["secretName"] == "runner-gha-rs-github-secret"


APP = {"github_app_id": "1000001", "github_app_installation_id": "50000001", "github_app_private_key": KEY}
"""A GitHub App, as a secret holds it."""


def manifest(content: dict[str, str], part: str = "data", namespace: str | None = "models") -> dict[str, Any]:
    """The manifest of the secret that the scale sets below name, as `kubectl get -o yaml` has it, or as people write
    it."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"stringData": content})}
    metadata = {"name": "arc-app", "annotations": applied} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, part: encoded if part == "data" else content}


def naming(document_002: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Values that name that secret."""
    url = "https://github.com/example/models"
    return document_002 | {"githubConfigUrl": url, "githubConfigSecret": "arc-app"} | more


@pytest.mark.parametrize("part", ["data", "stringData"])
@pytest.mark.parametrize(
    ("content", "credentials", "key"),
    [
        ({"github_token": TOKEN}, {"kind": "token"}, "models-token"),
        (APP, {"kind": "githubApp", "appId": "1000001", "installationId": "50000001"}, "models-privateKey"),
    ],
)
def test_the_manifest_of_a_secret_becomes_credentials(
    content: dict[str, str],
    credentials: dict[str, str],
    key: str,
    part: str,
    document_002: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    values = write(tmp_path, naming(document_002))
    secret = write(tmp_path, manifest(content, part), "secret.yaml")
    for files in ([f"runner={values}", secret], [secret, f"runner={values}"]):
        code = runner_import.run(files, None, [], None)
        ended = capsys.readouterr()
        project = yaml.safe_load(ended.out)["config"]["gpu-runners:projects"]["models"]
        assert project["credentials"] == credentials | {"secretName": "arc-app"}
        assert project["namespace"] == "models"
        command = f"pulumi config set --secret gpu-runners:{key}"
        line = f"credentials are in {secret}, Secret arc-app; revoke them, then: {command}"
        assert f"{values}: runner: {line}\n" in ended.err
        assert code == 0
        shown = ended.out + ended.err
        for value in (TOKEN, KEY):
            assert value not in shown
            assert base64.b64encode(value.encode()).decode() not in shown


def test_a_rendered_scale_set_and_the_secret_beside_it(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """As `helm template` prints both."""
    runner_set = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": "runner", "namespace": "models"},
        "spec": naming(document_002),
    }
    found = imported(write(tmp_path, yaml.safe_dump_all([manifest(APP), runner_set])))
    assert found.projects["models"]["credentials"]["appId"] == "1000001"
    assert not [line for line in found.lines if "passed over" in line]


@pytest.mark.parametrize(
    ("secret", "line"),
    [
        (manifest({"password": "x"}), "Secret arc-app: passed over: no scale set registers with it: it has neither"),
        (manifest(APP, namespace="elsewhere"), "Secret arc-app: passed over: no scale set of these files names it"),
        (manifest(APP) | {"metadata": {"name": "b"}}, "Secret b: passed over: no scale set of these files names it"),
    ],
)
def test_another_secret_is_passed_over(
    secret: dict[str, Any], line: str, document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path, yaml.safe_dump_all([naming(document_002, namespaceOverride="models"), secret]))
    found = imported(f"runner={path}")
    assert found.projects["models"]["credentials"] == {"kind": "existingSecret", "secretName": "arc-app"}
    assert [message for message in found.lines if message.startswith(f"{path}: {line}")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (APP | {"note": "x"}, "loses: Secret arc-app: note -> nothing"),
        (APP | {"github_token": TOKEN}, "loses: Secret arc-app: github_app_id -> nothing"),
        ({"github_app_id": "1000001"}, "cannot be expressed: projects.models.credentials.installationId"),
    ],
)
def test_what_a_secret_has_besides_is_told(
    content: dict[str, str], message: str, document_002: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path, yaml.safe_dump_all([naming(document_002), manifest(content)]))
    found = imported(f"runner={path}")
    assert found.differs
    assert [line for line in found.lines if message in line], found.lines


def test_an_id_that_is_not_legible(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    secret = manifest(APP)
    secret["data"]["github_app_id"] = "%%%"
    found = imported("runner=" + write(tmp_path, yaml.safe_dump_all([naming(document_002), secret])))
    assert [line for line in found.lines if "cannot be expressed: projects.models.credentials.appId" in line]


def test_secrets_alone_are_no_scale_set(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert runner_import.run([write(tmp_path, manifest(APP))], None, [], None) == 2
    assert "has no scale set" in capsys.readouterr().err


# -- files that cannot be read, and the command -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no scale set"),
        ("a: b", "has no scale set"),
        ("- a", "is a list"),
        ("a: [", "is not YAML"),
        ("a: 2026-02-31", "is not YAML"),
        ("a: !!python/object:os.system {}", "is not YAML"),
        ("template: &a [*a]", "aliases are circular"),
        ("[" * 50_000, "aliases are circular"),
        ("apiVersion: v1\nkind: ConfigMap", "has no scale set"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(8)),
            "aliases are circular",
        ),
        ("#" * (arc_values.LARGEST + 1), "more than"),
    ],
    ids=lambda value: value[:12],
)
def test_what_cannot_be_read_is_one_line(
    content: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    code = runner_import.run([write(tmp_path, content)], None, [], None)
    ended = capsys.readouterr()
    assert (code, ended.out) == (2, "")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


def test_another_label_and_namespace_are_no_secret(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """A label that the file has is only changed aloud; a namespace that it has is kept."""
    document_002 |= {"runnerScaleSetName": "linux-mi300", "namespaceOverride": "pytorch-ci"}
    path = write(tmp_path, document_002)
    own, other = imported(path, "elsewhere"), imported(f"other={path}")
    assert (list(own.runners), own.differs) == (["linux-mi300"], False)
    assert own.projects["pytorch"]["namespace"] == "pytorch-ci"
    assert [
        line.partition(": other: ")[2] for line in other.lines if any(each in line for each in runner_import.LOSSES)
    ] == [
        'differs: label: "linux-mi300" -> "other"',
        'loses: runnerScaleSetName: "linux-mi300" -> nothing',
    ]


def test_two_scale_sets_of_one_label_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnreadableValues, match="another scale set has the label"):
        runner_import.read_all([f"a={GOLDEN}", f"a={GOLDEN}"], None, {})


def test_scale_sets_share_what_they_have_in_common(document_002: dict[str, Any], tmp_path: pathlib.Path) -> None:
    other = write(tmp_path, at(document_002, f"{RUNNER}.resources.limits", {"amd.com/gpu": 1}))
    third = write(tmp_path, at(document_002, "template.spec.nodeSelector", {"a": "b"}), "third.yaml")
    found = runner_import.read_all([f"a={GOLDEN}", f"b={other}", f"c={GOLDEN}", f"d={third}"], None, {})
    assert list(found.projects) == ["pytorch"]
    assert [found.runners[label]["profile"] for label in "abcd"] == ["pytorch", "pytorch-2", "pytorch", "pytorch-3"]


def test_the_entries_make_a_stack_file(project: MakeProject, gpufleet: Gpufleet, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "entries.yaml"
    ended = gpufleet("-C", ROOT, "import", f"linux-mi300-gpu-2={GOLDEN}", "--out", out)
    assert (ended.code, ended.out) == (0, "")
    stack_file = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())
    config = {
        key: value for key, value in stack_file["config"].items() if key.endswith(("default-providers", "cluster"))
    }
    stack_file = {"config": config | yaml.safe_load(out.read_text())["config"]}
    root = project({"imported": yaml.safe_dump(stack_file)})
    assert list(load.from_file(root / "Pulumi.imported.yaml")[0].runners) == ["linux-mi300-gpu-2"]


def test_values_given_beside_the_file(document_002: dict[str, Any], gpufleet: Gpufleet, tmp_path: pathlib.Path) -> None:
    del document_002["githubConfigUrl"], document_002["githubConfigSecret"]
    path = write(tmp_path, document_002)
    without = gpufleet("-C", ROOT, "import", f"a={path}")
    assert (without.code, "cannot be expressed" in without.err) == (1, True)
    beside = ("--set", "githubConfigUrl=https://github.com/pytorch", "--set", "githubConfigSecret=pytorch-secret")
    assert gpufleet("-C", ROOT, "import", f"a={path}", *beside).code == 0
    assert gpufleet("-C", ROOT, "import", f"a={path}", "--set", "template=x").code == 2


# -- there and back ---------------------------------------------------------------------------------------------------

WORDS = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
VOLUMES = st.lists(
    st.builds(
        Volume,
        name=WORDS.map(lambda word: f"v-{word}"),
        mount_path=WORDS.map(lambda word: f"/mnt/{word}"),
        source=st.sampled_from([{"emptyDir": {}}, {"hostPath": {"path": "/x", "type": "Directory"}}]),
        read_only=st.booleans(),
    ),
    max_size=3,
    unique_by=(lambda volume: volume.name, lambda volume: volume.mount_path),
)
RUNNERS = st.builds(
    RunnerScaleSetArgs,
    label=WORDS,
    project=st.builds(
        ProjectReference,
        config_url=WORDS.map(lambda word: f"https://github.com/{word}"),
        namespace=WORDS,
        credentials_secret=WORDS,
        runner_group=st.none() | WORDS,
    ),
    controller=st.builds(
        ControllerReference,
        service_account=WORDS.map(lambda word: f"{word}-gha-rs-controller"),
        namespace=WORDS,
        listener_metrics=st.sampled_from([None, listener_metrics()]),
    ),
    min_runners=st.integers(0, 3),
    max_runners=st.integers(3, 2**31 - 1),
    resources=st.builds(
        RunnerResources,
        cpu=st.sampled_from(["1", "40000m", "2.5"]),
        memory=st.sampled_from(["1Gi", "450000Mi", "100G"]),
        ephemeral_storage=st.none() | st.sampled_from(["100G", "45Gi"]),
        gpus=st.integers(0, 8),
        gpu_resource=st.sampled_from(["amd.com/gpu", "amd.com/cpx_nps4", "amd.com/spx_nps1"]),
    ),
    image=st.sampled_from(["ghcr.io/a/b:1", "a/b:latest", "a/b", "ghcr.io/a/b@sha256:" + "0" * 64]),
    image_pull_policy=st.sampled_from(["IfNotPresent", "Always", "Never"]),
    docker=st.none()
    | st.builds(
        Docker,
        image=st.sampled_from(["docker:28-dind", "a/dind:main"]),
        group_id=st.integers(0, 70_000),
        data_root=WORDS.map(lambda word: f"/scratch/{word}"),
    ),
    render_group=st.none() | st.integers(0, 70_000),
    node_selector=st.dictionaries(WORDS, WORDS, max_size=2),
    tolerations=st.lists(
        st.sampled_from(
            [{"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}]
        ),
        max_size=2,
        unique_by=str,
    ),
    env=st.dictionaries(st.sampled_from(["HF_HOME", "OMP_NUM_THREADS", "A"]), st.sampled_from(["1", "yes", "/x"])),
    env_from_secret=st.dictionaries(st.just("HF_TOKEN"), st.builds(SecretKey, name=WORDS, key=WORDS)),
    volumes=VOLUMES,
)


@given(args=RUNNERS)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_our_own_component_makes_comes_out_again(args: RunnerScaleSetArgs, tmp_path: pathlib.Path) -> None:
    values = scale_set_values(args)
    found = imported(f"{args.label}=" + write(tmp_path, values), args.project.namespace)
    assert not found.differs, found.lines
    runner = found.runners[args.label]
    assert (runner["gpus"], runner["max"]) == (args.resources.gpus, args.max_runners)
    assert runner.get("docker", False) == (args.docker is not None)
    (project,) = found.projects.values()
    assert (project["configUrl"], project["namespace"]) == (args.project.config_url, args.project.namespace)


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(0, 2) | st.sampled_from(["", "a", "1Gi", "runner"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "a", "value"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(deeper for key, item in items for deeper in paths(item, (*path, key)))]


EVERY_PATH = paths(yaml.safe_load(GOLDEN.read_text()))


@given(path=st.sampled_from(EVERY_PATH), junk=JUNK)
@example(path=("template", "spec", "initContainers", 0), junk={"a": None, "name": [None]})
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_that_are_not_what_they_should_be_are_told(
    path: tuple[str | int, ...], junk: Any, tmp_path: pathlib.Path
) -> None:
    """Whatever stands where, it is refused, or comes out again, or is listed."""
    values = yaml.safe_load(GOLDEN.read_text())
    target: Any = values
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = junk
    with contextlib.suppress(UnreadableValues):
        found = imported("a=" + write(tmp_path, values))
        assert found.differs == is_lost(found)
        assert all("\n" not in line for line in found.lines)
