"""The scale set speaks document 002 exactly, and its traps cannot be fallen into."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import stat
import subprocess
from typing import Any

import pytest
import yaml

from gpufleet.arc import (
    ArcController,
    ArcControllerArgs,
    ControllerReference,
    Docker,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
    RunnerResources,
    RunnerScaleSet,
    RunnerScaleSetArgs,
    Volume,
)
from gpufleet.arc.charts import ARC_REGISTRY
from gpufleet.arc.controller import ARC_VERSION
from gpufleet.arc.runner_pod import docker_runner_script
from gpufleet.arc.scale_set import scale_set_problems
from gpufleet.arc.scale_set_args import SecretKey
from gpufleet.problem import InvalidArguments
from gpufleet_stacks import runners
from gpufleet_stacks.settings import load
from gpufleet_tools.plan import arc_releases, stack
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, release, stays_for, the

ROOT = pathlib.Path(__file__).resolve().parents[3]

GOLDEN: dict[str, Any] = yaml.safe_load((ROOT / "tests/golden/pytorch-2-gpu.values.yaml").read_text())

PYTORCH = RunnerScaleSetArgs(
    label="linux-mi300-gpu-2",
    project=ProjectReference(
        config_url="https://github.com/pytorch", namespace="pytorch", credentials_secret="pytorch-secret"
    ),
    controller=ControllerReference(service_account="arc-gha-rs-controller", namespace="arc-systems"),
    min_runners=1,
    max_runners=6,
    resources=RunnerResources(cpu="40000m", memory="450000Mi", ephemeral_storage="100G", gpus=2),
    image="ghcr.io/saienduri/ghascale-rocm-dev:main",
    image_pull_policy="Always",
    docker=Docker(image="ghcr.io/saienduri/dind:main"),
    render_group=110,
    node_selector={"pytorch": "yes"},
)
"""The runner that document 002 describes."""

BASE = RunnerScaleSetArgs(
    label="mi300-cluster",
    project=ProjectReference(
        config_url="https://github.com/org/repo", namespace="base", credentials_secret="pre-defined-rocm-secret"
    ),
    controller=ControllerReference(service_account="arc-gha-rs-controller", namespace="arc-systems"),
    min_runners=0,
    max_runners=2,
    resources=RunnerResources(cpu="16", memory="200Gi", gpus=1),
)
"""A runner of document 001's second kind: no Docker."""


def values_of(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """The chart values as Helm is given them: what the whole component registers, not what a function returns."""
    plan = recorded(lambda: RunnerScaleSet("scale-set", args, on_cluster()))
    return dict(release(plan, args.label).values)


def changed(args: RunnerScaleSetArgs, **changes: Any) -> RunnerScaleSetArgs:
    return dataclasses.replace(args, **changes)


def in_group(args: RunnerScaleSetArgs, group: str) -> RunnerScaleSetArgs:
    return changed(args, project=dataclasses.replace(args.project, runner_group=group))


@pytest.fixture
def pytorch() -> dict[str, Any]:
    """Chart values of the pytorch 2-GPU runner."""
    return values_of(PYTORCH)


@pytest.fixture
def dind(pytorch: dict[str, Any]) -> dict[str, Any]:
    """Its Docker daemon."""
    return pytorch["template"]["spec"]["initContainers"][1]


@pytest.fixture
def runner(pytorch: dict[str, Any]) -> dict[str, Any]:
    """Its runner container."""
    (container,) = pytorch["template"]["spec"]["containers"]
    return container


@pytest.fixture
def mi300() -> Plan:
    """The stack that has this runner."""
    return stack.read(ROOT, "mi300").plan()


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


# -- document 002, key by key -----------------------------------------------------------------------------------------

POD_KEYS = {"nodeSelector", "initContainers", "containers", "volumes"}
CONTAINER_KEYS = {"command", "resources"}
CHART_KEYS = {"minRunners", "controllerServiceAccount", "template", "githubConfigUrl", "githubConfigSecret"}


def assembled(text: str) -> dict[str, Any]:
    """The values of the document: its YAML blocks are fragments, each put where its first key belongs."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    values: dict[str, Any] = {}
    for block in blocks:
        if isinstance(block, list):
            values["template"]["spec"]["initContainers"] += block
        elif block.keys() <= CHART_KEYS:
            values |= block
        elif block.keys() <= POD_KEYS:
            values["template"]["spec"] |= block
        else:
            assert block.keys() <= CONTAINER_KEYS, f"nobody has said where {list(block)} belongs"
            values["template"]["spec"]["containers"][0] |= block
    return values


def differences(expected: Any, given: Any, path: str = "") -> dict[str, str]:
    """Where the second value says something else than the first, or more: `changed`, `missing` or `added`, by path.

    Lists of named things are compared by name, in order.
    """
    expected, given = (named(value) for value in (expected, given))
    if isinstance(expected, dict) and isinstance(given, dict):
        found = {f"{path}.{key}".removeprefix("."): "missing" for key in expected.keys() - given.keys()}
        found |= {f"{path}.{key}".removeprefix("."): "added" for key in given.keys() - expected.keys()}
        for key in expected.keys() & given.keys():
            found |= differences(expected[key], given[key], f"{path}.{key}".removeprefix("."))
        return found
    # 2 and 2.0, or 1 and True, are equal to Python and not to Helm.
    return {} if type(expected) is type(given) and expected == given else {path: "changed"}


def named(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        return {item["name"]: item for item in value}
    return value


TOLD_IN_PROSE = {
    "template.spec.initContainers.dind.imagePullPolicy",
    "template.spec.initContainers.dind.env",
    "template.spec.initContainers.dind.securityContext",
    "template.spec.initContainers.dind.lifecycle",
    "template.spec.initContainers.dind.volumeMounts",
    "template.spec.containers.runner.env",
    "template.spec.containers.runner.volumeMounts",
}
"""What the document describes and does not write as YAML; each has an assertion of its own below."""


def test_the_values_are_the_documents(pytorch: dict[str, Any], document_002: str) -> None:
    assert differences(assembled(document_002), pytorch) == dict.fromkeys(TOLD_IN_PROSE | {"maxRunners"}, "added")


def test_the_golden_values_are_the_documents(document_002: str) -> None:
    assert differences(assembled(document_002), GOLDEN) == dict.fromkeys(TOLD_IN_PROSE, "added")


def test_the_values_are_the_golden_ones(pytorch: dict[str, Any]) -> None:
    assert differences(GOLDEN, pytorch) == {"maxRunners": "added"}
    assert pytorch == GOLDEN | {"maxRunners": 6}


def test_the_stack_gives_the_same_and_bounded_metrics(mi300: Plan) -> None:
    values = release(mi300, "linux-mi300-gpu-2").values
    assert differences(GOLDEN, values) == {"maxRunners": "added", "listenerMetrics": "added"}


def test_differences_are_found() -> None:
    expected = {"a": {"b": 1}, "c": [{"name": "x", "d": 1}], "e": [1, 2]}
    given = {"a": {"b": "1", "z": 0}, "c": [{"name": "x"}, {"name": "y"}], "e": [2, 1]}
    assert differences(expected, given) == {
        "a.b": "changed",
        "a.z": "added",
        "c.x.d": "missing",
        "c.y": "added",
        "e": "changed",
    }


def test_containers_and_volumes_stand_in_the_documents_order(pytorch: dict[str, Any]) -> None:
    """Init containers start in order: the runner's tools have to be there before the daemon."""
    spec = pytorch["template"]["spec"]
    assert [container["name"] for container in spec["initContainers"]] == ["init-dind-externals", "dind"]
    assert [volume["name"] for volume in spec["volumes"]] == [
        "work",
        "dind-sock",
        "dind-externals",
        "docker-data",
        "podinfo",
    ]


# -- document 002, as its prose has it --------------------------------------------------------------------------------


def test_idle_runners(pytorch: dict[str, Any]) -> None:
    assert pytorch["minRunners"] == 1


def test_runners_are_in_the_group_that_rocminfo_needs(pytorch: dict[str, Any]) -> None:
    assert pytorch["template"]["spec"]["securityContext"]["supplementalGroups"] == [110]


def test_the_docker_group_is_123(dind: dict[str, Any]) -> None:
    assert dind["env"] == [{"name": "DOCKER_GROUP_GID", "value": "123"}]
    assert "--group=${DOCKER_GROUP_GID}" in dind["args"][0]


def test_docker_is_privileged(dind: dict[str, Any]) -> None:
    assert dind["securityContext"] == {"privileged": True}


def test_only_docker_is_privileged(runner: dict[str, Any], pytorch: dict[str, Any]) -> None:
    assert "securityContext" not in runner
    assert "securityContext" not in pytorch["template"]["spec"]["initContainers"][0]


def test_docker_data_is_cleared_before_the_pod_stops(dind: dict[str, Any]) -> None:
    assert dind["lifecycle"] == {"preStop": {"exec": {"command": ["sh", "-c", "rm -rf /home/runner/docker-data/*"]}}}


def test_what_is_cleared_is_where_docker_keeps_its_data(dind: dict[str, Any]) -> None:
    elsewhere = values_of(changed(PYTORCH, docker=Docker(data_root="/data")))
    daemon = elsewhere["template"]["spec"]["initContainers"][1]
    assert "--data-root=/data &" in daemon["args"][0]
    assert daemon["lifecycle"]["preStop"]["exec"]["command"][-1] == "rm -rf /data/*"
    assert mounts(daemon)["docker-data"] == "/data"
    assert mounts(elsewhere["template"]["spec"]["containers"][0])["docker-data"] == "/data"


def test_docker_waits_for_itself_and_keeps_running(dind: dict[str, Any]) -> None:
    script = dind["args"][0].splitlines()
    assert script[0].endswith(" &")
    assert script[1:] == ["until docker info >/dev/null 2>&1; do sleep 5; done", "tail -f /dev/null"]


def test_docker_is_a_sidecar(dind: dict[str, Any]) -> None:
    """It starts before the runner, and does not keep a finished pod alive."""
    assert dind["restartPolicy"] == "Always"


def test_docker_mounts_its_data_the_work_directory_the_socket_and_externals(dind: dict[str, Any]) -> None:
    assert mounts(dind) == {
        "work": "/home/runner/_work",
        "dind-sock": "/var/run",
        "dind-externals": "/home/runner/externals",
        "docker-data": "/home/runner/docker-data",
    }


def test_externals_are_copied_to_a_shared_volume(pytorch: dict[str, Any]) -> None:
    copying = pytorch["template"]["spec"]["initContainers"][0]
    assert copying["command"] == ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"]
    assert mounts(copying) == {"dind-externals": "/home/runner/tmpDir"}


def test_the_runner_mounts_what_the_prose_lists(runner: dict[str, Any]) -> None:
    assert mounts(runner) == {
        "work": "/home/runner/_work",
        "dind-sock": "/var/run",
        "dind-externals": "/home/runner/externals",
        "podinfo": "/etc/podinfo",
        "docker-data": "/home/runner/docker-data",
    }


def test_every_mount_has_its_volume(pytorch: dict[str, Any]) -> None:
    spec = pytorch["template"]["spec"]
    used = {name for container in spec["initContainers"] + spec["containers"] for name in mounts(container)}
    assert used == {volume["name"] for volume in spec["volumes"]}


def test_volumes_live_as_long_as_the_pod(pytorch: dict[str, Any]) -> None:
    assert all(volume["emptyDir"] == {} for volume in pytorch["template"]["spec"]["volumes"])


def test_the_runner_talks_to_docker_by_its_socket(runner: dict[str, Any]) -> None:
    assert {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"} in runner["env"]


@pytest.mark.parametrize(("name", "field"), [("POD_NAME", "metadata.name"), ("NODE_NAME", "spec.nodeName")])
def test_pod_and_node_name_come_from_the_downward_api(runner: dict[str, Any], name: str, field: str) -> None:
    assert {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} in runner["env"]


def test_there_is_no_limit_of_cpu_or_memory(runner: dict[str, Any]) -> None:
    assert runner["resources"]["limits"] == {"ephemeral-storage": "100G", "amd.com/gpu": 2}


def test_only_the_runner_asks_for_resources(pytorch: dict[str, Any]) -> None:
    """A sidecar's requests would add to the pod's, and two runners no longer fill a node as they should."""
    assert not any("resources" in container for container in pytorch["template"]["spec"]["initContainers"])


def test_both_images_are_always_pulled(pytorch: dict[str, Any]) -> None:
    spec = pytorch["template"]["spec"]
    pulled = {(each["image"], each["imagePullPolicy"]) for each in spec["initContainers"] + spec["containers"]}
    assert pulled == {
        ("ghcr.io/saienduri/ghascale-rocm-dev:main", "Always"),
        ("ghcr.io/saienduri/dind:main", "Always"),
    }


def test_runners_go_to_nodes_prepared_for_pytorch(pytorch: dict[str, Any]) -> None:
    """As a label's value `yes` has to be text; YAML reads it as a truth value."""
    assert pytorch["template"]["spec"]["nodeSelector"] == {"pytorch": "yes"}


def test_the_secret_is_named_and_never_held(pytorch: dict[str, Any]) -> None:
    assert pytorch["githubConfigSecret"] == "pytorch-secret"
    assert pytorch["githubConfigUrl"] == "https://github.com/pytorch"


def test_the_runner_waits_for_docker_before_it_starts(runner: dict[str, Any]) -> None:
    shell, option, script = runner["command"]
    assert (shell, option) == ("/bin/sh", "-c")
    assert script.splitlines()[-2:] == [
        "until docker info >/dev/null 2>&1; do sleep 5; done",
        "/home/runner/run.sh",
    ]


# -- the script, run --------------------------------------------------------------------------------------------------

LISTING = """\
total 0
drwxr-xr-x 3 root root        160 Nov 21 10:00 .
drwxr-xr-x 6 root root        380 Nov 21 10:00 ..
crw-rw---- 1 root video  226,   1 Nov 21 10:00 card1
crw-rw---- 1 root video  226,   9 Nov 21 10:00 card9
crw-rw---- 1 root render 226, 129 Nov 21 10:00 renderD129
crw-rw---- 1 root render 226, 137 Nov 21 10:00 renderD137
"""
"""What `ls -la /dev/dri/` says in a pod that was given two GPUs."""

EMPTY = "total 0\ndrwxr-xr-x 2 root root 40 Nov 21 10:00 .\ndrwxr-xr-x 6 root root 380 Nov 21 10:00 ..\n"


class Pod:
    """A pod of files: the script runs in a real shell, where `ls`, `docker` and `sleep` say what they would there."""

    def __init__(self, folder: pathlib.Path, listing: str) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "podinfo").mkdir()
        (folder / "listing").write_text(listing)
        self.program("bin/ls", f'echo "ls $*" >> {folder}/calls; cat {folder}/listing')
        # The daemon answers when it is asked for the third time.
        self.program("bin/docker", f'echo "docker $*" >> {folder}/calls; test $(grep -c docker {folder}/calls) -ge 3')
        self.program("bin/sleep", f'echo "sleep $*" >> {folder}/calls')
        self.program("run.sh", f'echo "run.sh" >> {folder}/calls')

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, script: str) -> str:
        """What the script leaves in the pod's information."""
        here = script.replace("/etc/podinfo", f"{self.folder}/podinfo").replace("/home/runner/run.sh", "run.sh")
        here = here.replace("run.sh", f"{self.folder}/run.sh")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        subprocess.run(["sh", "-c", here], env={"PATH": path}, check=True, timeout=20, capture_output=True)
        return (self.folder / "podinfo/gha-render-devices").read_text()

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.mark.process
def test_devices_become_options_of_docker_run(tmp_path: pathlib.Path) -> None:
    options = Pod(tmp_path, LISTING).run(docker_runner_script(110))
    assert options == "--group-add 110 --device /dev/dri/renderD129 --device /dev/dri/renderD137\n"


@pytest.mark.process
def test_a_pod_without_gpus_gives_no_devices(tmp_path: pathlib.Path) -> None:
    assert Pod(tmp_path, EMPTY).run(docker_runner_script(110)) == "--group-add 110\n"


@pytest.mark.process
def test_without_a_render_group_none_is_added(tmp_path: pathlib.Path) -> None:
    options = Pod(tmp_path, LISTING).run(docker_runner_script(None))
    assert options.split() == ["--device", "/dev/dri/renderD129", "--device", "/dev/dri/renderD137"]


@pytest.mark.process
def test_the_runner_starts_once_docker_answers(tmp_path: pathlib.Path) -> None:
    pod = Pod(tmp_path, LISTING)
    pod.run(docker_runner_script(110))
    assert pod.calls == ["ls -la /dev/dri/", *["docker info", "sleep 5"] * 2, "docker info", "run.sh"]


def test_the_script_in_the_values_is_the_one_tried_here(runner: dict[str, Any]) -> None:
    assert runner["command"][2] == docker_runner_script(110)


# -- the base runner of document 001 ----------------------------------------------------------------------------------


def test_without_docker_the_runner_is_the_same_without_docker() -> None:
    spec = values_of(BASE)["template"]["spec"]
    (container,) = spec["containers"]
    assert "initContainers" not in spec
    assert container["command"] == ["/home/runner/run.sh"]
    assert mounts(container) == {"work": "/home/runner/_work"}
    assert spec["volumes"] == [{"name": "work", "emptyDir": {}}]
    assert [variable["name"] for variable in container["env"]] == ["POD_NAME", "NODE_NAME"]
    assert container["resources"] == {
        "requests": {"cpu": "16", "memory": "200Gi", "amd.com/gpu": 1},
        "limits": {"amd.com/gpu": 1},
    }


def test_nothing_speaks_of_docker_without_docker() -> None:
    text = yaml.safe_dump(values_of(BASE)).lower()
    assert "docker" not in text
    assert "dind" not in text


def test_docker_changes_the_pod_and_nothing_else() -> None:
    without, with_docker = values_of(BASE), values_of(changed(BASE, docker=Docker()))
    found = differences(without, with_docker)
    assert {path.split(".")[0] for path in found} == {"template"}
    assert not any("resources" in path for path in found)


def test_a_runner_without_gpus_asks_for_none() -> None:
    spec = values_of(changed(BASE, resources=RunnerResources(cpu="1", memory="1Gi")))["template"]["spec"]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}


def test_variables_and_volumes_come_on_top() -> None:
    models = Volume(name="models", mount_path="/models", source={"hostPath": {"path": "/srv"}}, read_only=True)
    cache = Volume(name="cache", mount_path="/cache", source={"emptyDir": {}})
    spec = values_of(changed(PYTORCH, env={"HF_HOME": "/models"}, volumes=[models, cache]))["template"]["spec"]
    (container,) = spec["containers"]
    assert container["env"][-1] == {"name": "HF_HOME", "value": "/models"}
    assert container["volumeMounts"][-2:] == [
        {"name": "models", "mountPath": "/models", "readOnly": True},
        {"name": "cache", "mountPath": "/cache"},
    ]
    assert spec["volumes"][-2:] == [
        {"name": "models", "hostPath": {"path": "/srv"}},
        {"name": "cache", "emptyDir": {}},
    ]


def test_a_variable_comes_from_a_kubernetes_secret() -> None:
    sources = {"HF_TOKEN": SecretKey(name="hugging-face", key="token")}
    (container,) = values_of(changed(PYTORCH, env_from_secret=sources))["template"]["spec"]["containers"]
    reference = {"secretKeyRef": {"name": "hugging-face", "key": "token"}}
    assert container["env"][-1] == {"name": "HF_TOKEN", "valueFrom": reference}


def test_a_runtime_class_is_that_of_the_pod() -> None:
    assert values_of(changed(BASE, runtime_class="nvidia"))["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in values_of(BASE)["template"]["spec"]


def test_tolerations_and_runner_group_are_passed_on() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    values = values_of(changed(in_group(BASE, "gpus"), tolerations=[toleration]))
    assert values["template"]["spec"]["tolerations"] == [toleration]
    assert values["runnerGroup"] == "gpus"


def with_revision(args: RunnerScaleSetArgs, revision: str | None) -> RunnerScaleSetArgs:
    return changed(args, project=dataclasses.replace(args.project, credentials_revision=revision))


def test_the_listener_has_the_revision_of_the_credentials() -> None:
    """And nothing else of the listener or the runners depends on it."""
    values = values_of(with_revision(BASE, "2026-11"))
    annotations = {"gpufleet.dev/credentials-revision": "2026-11"}
    assert values.pop("listenerTemplate") == {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "listener"}]},
    }
    assert values == values_of(BASE)


def test_the_revision_keeps_the_controllers_template_of_listeners() -> None:
    template = {"spec": {"containers": [{"name": "listener"}], "nodeSelector": {"role": "system"}}}
    args = changed(BASE, controller=dataclasses.replace(BASE.controller, listener_template=template))
    assert values_of(args)["listenerTemplate"] == template
    assert values_of(with_revision(args, "2"))["listenerTemplate"]["spec"] == template["spec"]
    assert "metadata" not in template


@pytest.mark.parametrize("args", [PYTORCH, BASE], ids=["docker", "plain"])
def test_karpenter_is_asked_to_leave_runners_alone(args: RunnerScaleSetArgs) -> None:
    """And nothing else is changed; by default it is not asked."""
    plain, kept = values_of(args), values_of(changed(args, do_not_disrupt=True))
    assert "metadata" not in plain["template"]
    assert kept["template"].pop("metadata") == {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    assert kept == plain


def test_the_chart_hands_that_on_to_the_pods(render: Any) -> None:
    """ARC puts a scale set's pod template on each runner."""
    plan = recorded(lambda: RunnerScaleSet("scale-set", changed(PYTORCH, do_not_disrupt=True), on_cluster()))
    (scale_set,) = [each for each in render(release(plan, PYTORCH.label)) if each["kind"] == "AutoscalingRunnerSet"]
    assert scale_set["spec"]["template"]["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


# -- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [PYTORCH, BASE], ids=["with Docker", "without"])
def test_sizes_are_integers(args: RunnerScaleSetArgs) -> None:
    """The chart drops a size that is text, without a word."""
    values = values_of(args)
    assert type(values["minRunners"]) is int
    assert type(values["maxRunners"]) is int


def test_a_minimum_of_none_is_given_all_the_same() -> None:
    assert values_of(changed(BASE, min_runners=0))["minRunners"] == 0


def problems_of(**changes: Any) -> list[str]:
    return [str(problem) for problem in scale_set_problems(changed(BASE, **changes))]


@pytest.mark.parametrize("field", ["min_runners", "max_runners"])
def test_a_size_that_is_text_is_refused(field: str) -> None:
    (problem,) = problems_of(**{field: "1"})
    assert "'1'" in problem


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (2, 1)])
def test_impossible_sizes_are_refused(low: int, high: int) -> None:
    assert problems_of(min_runners=low, max_runners=high) == [
        f"min_runners: min {low}, max {high}; whole numbers, 0 <= min <= max, are allowed"
    ]


def test_a_label_that_the_chart_refuses_is_refused_at_once() -> None:
    assert problems_of(label="x" * 45) == []
    (problem,) = problems_of(label="x" * 46)
    assert problem.endswith("has 46 characters; at most 45 are allowed; shorten it")


def test_nothing_is_registered_of_a_scale_set_that_is_refused() -> None:
    def build() -> None:
        with pytest.raises(InvalidArguments, match=r"^ci: label: .*\nci: min_runners: "):
            RunnerScaleSet("ci", changed(BASE, label="x" * 46, min_runners=2, max_runners=1))

    assert recorded(build).resources == ()


@pytest.mark.parametrize("args", [PYTORCH, BASE], ids=["with Docker", "without"])
def test_the_container_is_called_runner_and_has_a_command(args: RunnerScaleSetArgs) -> None:
    """ARC gives a job's registration to that name alone, and the chart's own command goes with its container."""
    (container,) = values_of(args)["template"]["spec"]["containers"]
    assert container["name"] == "runner"
    assert "/home/runner/run.sh" in container["command"][-1]


@pytest.mark.parametrize("args", [PYTORCH, BASE], ids=["with Docker", "without"])
def test_the_controllers_account_is_always_given(args: RunnerScaleSetArgs) -> None:
    """Left out, the chart looks for it in the live cluster."""
    values = values_of(args)
    assert values["controllerServiceAccount"] == {"name": "arc-gha-rs-controller", "namespace": "arc-systems"}


@pytest.mark.parametrize("args", [PYTORCH, BASE], ids=["with Docker", "without"])
def test_the_charts_own_docker_mode_is_not_used(args: RunnerScaleSetArgs) -> None:
    """It fixes image, data root and arguments, and drops a container of ours that is named `dind`."""
    assert "containerMode" not in values_of(args)


def test_the_label_is_the_release() -> None:
    """The chart names the scale set after its release: `runs-on` has no other name."""
    plan = recorded(lambda: RunnerScaleSet("scale-set", BASE, on_cluster()))
    assert release(plan, "mi300-cluster").namespace == "base"
    assert "runnerScaleSetName" not in release(plan, "mi300-cluster").values


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, f"{ARC_REGISTRY}/gha-runner-scale-set", None),
        ("oci://registry.example/charts/", "oci://registry.example/charts/gha-runner-scale-set", None),
        ("https://charts.example/arc", "gha-runner-scale-set", "https://charts.example/arc"),
        ("/srv/charts", f"/srv/charts/gha-runner-scale-set-{ARC_VERSION}.tgz", None),
    ],
)
def test_charts_come_by_exact_version_from_anywhere(mirror: str | None, chart: str, repository: str | None) -> None:
    args = changed(BASE, controller=dataclasses.replace(BASE.controller, chart_mirror=mirror))
    plan = recorded(lambda: RunnerScaleSet("scale-set", args, on_cluster()))
    found = release(plan, "mi300-cluster")
    assert (found.chart, found.version, found.repository) == (chart, ARC_VERSION, repository)
    assert found in arc_releases.scale_sets(plan)


def test_values_are_known_to_the_chart(mi300: Plan, scale_set_chart: Any) -> None:
    """The chart has no schema: a key it does not know is silently ignored."""
    for each in arc_releases.scale_sets(mi300):
        # The chart hands listenerTemplate on as it is; the API server holds it against the CRD.
        free = (("template", "spec"), ("listenerTemplate",))
        assert scale_set_chart.unknown(each.values, free=free) == []


def test_an_enterprise_server_behind_a_proxy_is_passed_on_and_known_to_the_chart(scale_set_chart: Any) -> None:
    read, _ = load.from_file(ROOT / "tests/settings/arc-of-enterprise-server.ok.yaml")
    args = runners.project_args("ml", read.projects["ml"])
    assert args.proxy == {
        "http": {"url": "http://proxy.example.com:3128", "credentialSecretRef": "proxy"},
        "https": {"url": "http://proxy.example.com:3128"},
        "noProxy": ["example.com", ".cluster.local"],
    }
    assert args.server_tls == {
        "certificateFrom": {"configMapKeyRef": {"name": "github-ca", "key": "authority.crt"}},
        "runnerMountPath": "/usr/local/share/ca-certificates",
    }
    project = dataclasses.replace(PYTORCH.project, proxy=args.proxy, server_tls=args.server_tls)
    values = values_of(changed(PYTORCH, project=project))
    assert (values["proxy"], values["githubServerTLS"]) == (args.proxy, args.server_tls)
    assert scale_set_chart.unknown(values, free=(("template", "spec"),)) == []


def test_a_runner_group_is_known_to_the_chart(scale_set_chart: Any) -> None:
    values = values_of(in_group(PYTORCH, "gpus"))
    assert scale_set_chart.unknown(values, free=(("template", "spec"),)) == []


def test_a_misspelt_value_is_not_known_to_the_chart(scale_set_chart: Any) -> None:
    values = {"maxRunner": 1, "controllerServiceAccount": {"nam": "x", "name": "y"}}
    assert scale_set_chart.unknown(values) == [("maxRunner",), ("controllerServiceAccount", "nam")]


# -- the end ----------------------------------------------------------------------------------------------------------


def fleet_of_one() -> None:
    """A controller, a project and a scale set, which has references to the other two only."""
    opts = on_cluster()
    controller = ArcController("arc", ArcControllerArgs(), opts)
    credentials = GithubToken(secret_name="token", token="ghp")
    args = RunnerProjectArgs(config_url="https://github.com/org", namespace="base", credentials=credentials)
    project = RunnerProject("project", args, opts)
    args = changed(BASE, project=project.reference, controller=controller.reference)
    RunnerScaleSet("scale-set", args, opts)


def test_a_scale_set_goes_before_what_its_finalizers_need() -> None:
    """Controller, credentials and namespaces are removed only when the release is gone, without anybody's asking: what
    a scale set's references to its project and its controller carry the dependency."""
    plan = recorded(fleet_of_one)
    stay = stays_for(plan, the(plan, "Release", "scale-set"))
    for kind, name in (
        ("Release", "arc"),
        ("Secret", "project-credentials"),
        ("Namespace", "project-namespace"),
        ("Namespace", "arc-namespace"),
    ):
        assert the(plan, kind, name).urn in stay


def test_credentials_and_controller_go_before_their_namespaces() -> None:
    plan = recorded(fleet_of_one)
    secret, controller = the(plan, "Secret"), the(plan, "Release", "arc")
    assert the(plan, "Namespace", "project-namespace").urn in stays_for(plan, secret)
    assert the(plan, "Namespace", "arc-namespace").urn in stays_for(plan, controller)


def test_nothing_that_a_scale_set_needs_waits_for_it_to_stay() -> None:
    plan = recorded(fleet_of_one)
    scale_set = the(plan, "Release", "scale-set")
    for urn in stays_for(plan, scale_set):
        (needed,) = (resource for resource in plan.resources if resource.urn == urn)
        assert scale_set.urn not in stays_for(plan, needed)


def test_every_scale_set_of_the_stack_goes_first(mi300: Plan) -> None:
    controller, scale_sets = arc_releases.controller(mi300), arc_releases.scale_sets(mi300)
    assert scale_sets
    assert controller is not None
    for each in scale_sets:
        stay = stays_for(mi300, each.resource)
        assert controller.resource.urn in stay
        namespaces = [urn for urn, name in objects(mi300, "Namespace").items() if name == each.namespace]
        assert len(namespaces) == 1
        secrets = [urn for urn, name in objects(mi300, "Secret").items() if name == each.values["githubConfigSecret"]]
        assert stay.issuperset(namespaces + secrets)


def objects(plan: Plan, kind: str) -> dict[str, str]:
    """Names of the objects of a kind, made or looked up, by URN."""
    return {
        resource.urn: resource.read_id or resource.inputs["metadata"]["name"]
        for resource in plan.resources
        if resource.type == f"kubernetes:core/v1:{kind}"
    }


def test_scale_sets_and_controller_of_the_stack_have_one_version(mi300: Plan) -> None:
    """A controller deletes scale sets of another minor version."""
    versions = {each.version for each in mi300.releases() if "gha-runner-scale-set" in each.chart}
    assert len(versions) == 1
    assert re.fullmatch(r"\d+\.\d+\.\d+", versions.pop())


def test_scale_sets_of_the_stack_name_the_account_of_its_controller(mi300: Plan) -> None:
    controller = arc_releases.controller(mi300)
    assert controller is not None
    account = {"name": f"{controller.name}-gha-rs-controller", "namespace": controller.namespace}
    for each in arc_releases.scale_sets(mi300):
        assert each.values["controllerServiceAccount"] == account
