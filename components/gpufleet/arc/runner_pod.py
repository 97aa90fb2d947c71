"""Pod of one runner: its containers, its volumes, and support for job containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet.arc.job_timeout import start_hook
from gpufleet.arc.scale_set_args import (
    DO_NOT_DISRUPT,
    Docker,
    KubernetesMode,
    RunnerResources,
    RunnerScaleSetArgs,
    Volume,
)
from gpufleet.arc.strategic_merge import merged

Fields = dict[str, Any]
"""Part of a pod in Kubernetes syntax."""

RUNNER_COMMAND = ("/home/runner/run.sh",)
"""Command of the runner in GitHub's image."""

OWN_VOLUMES = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")
"""Names of volumes that the component adds to the pod."""

OWN_CONTAINERS = ("runner", "init-dind-externals", "dind")
"""Names of containers that the component adds to the pod."""

OWN_MOUNTS = ("/home/runner/_work", "/home/runner/externals", "/var/run", "/etc/podinfo")
"""Mount paths of those volumes in the runner container."""


def pod_template(args: RunnerScaleSetArgs) -> Fields:
    """Return the pod template of a scale set."""
    metadata = {key: dict(value) for key, value in args.pod_metadata.items() if value}
    if args.do_not_disrupt:
        metadata["annotations"] = {**metadata.get("annotations", {}), **DO_NOT_DISRUPT}
    template: Fields = {"spec": pod_spec(args)} | ({"metadata": metadata} if metadata else {})
    patched: Fields = merged(template, args.pod_template)
    return patched


def pod_spec(args: RunnerScaleSetArgs) -> Fields:
    """Return the pod spec of one runner."""
    spec: Fields = dict(args.pod_spec)
    if args.render_group is not None:
        context = dict(spec.get("securityContext", {}))
        groups = [args.render_group, *context.get("supplementalGroups", [])]
        spec["securityContext"] = {**context, "supplementalGroups": groups}
    if args.runtime_class:
        spec["runtimeClassName"] = args.runtime_class
    if args.node_selector:
        spec["nodeSelector"] = dict(args.node_selector)
    if args.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in args.tolerations]
    containers: list[Fields] = []
    if isinstance(args.docker, Docker):
        containers = [_externals_container(args), _docker_container(args, args.docker)]
    if containers := [*containers, *(dict(container) for container in args.init_containers)]:
        spec["initContainers"] = containers
    spec["containers"] = [_runner_container(args)]
    own = [{"name": name, **source} for name, source in _own_volumes(args).items()]
    if volumes := [*own, *({"name": volume.name, **volume.source} for volume in args.volumes)]:
        spec["volumes"] = volumes
    return spec


def _own_volumes(args: RunnerScaleSetArgs) -> dict[str, Mapping[str, Any]]:
    """Return the sources of the component's own volumes. In Kubernetes mode, the chart adds the work folder."""
    if isinstance(args.docker, KubernetesMode):
        return {}
    names = ["work"]
    if isinstance(args.docker, Docker):
        names += ["dind-sock", "dind-externals"]
        names += ["docker-data"] if args.docker.data_root else []
        names += ["podinfo"] if _lists_devices(args) else []
    sources: dict[str, Mapping[str, Any]] = {name: {"emptyDir": {}} for name in names}
    return sources | ({"work": args.work_volume} if args.work_volume else {})


def _lists_devices(args: RunnerScaleSetArgs) -> bool:
    """Return whether the runner starts with the script that lists the pod's GPUs for `docker run`."""
    return isinstance(args.docker, Docker) and args.command is None and args.args is None


_WORK = {"name": "work", "mountPath": "/home/runner/_work"}
_SOCKET = {"name": "dind-sock", "mountPath": "/var/run"}
_EXTERNALS = {"name": "dind-externals", "mountPath": "/home/runner/externals"}
_PODINFO = {"name": "podinfo", "mountPath": "/etc/podinfo"}


# -- Docker -----------------------------------------------------------------------------------------------------------


def _externals_container(args: RunnerScaleSetArgs) -> Fields:
    """Return the init container that copies the runner's tools to a volume that job containers can mount."""
    return {
        "name": "init-dind-externals",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }


def _docker_container(args: RunnerScaleSetArgs, docker: Docker) -> Fields:
    """Return the Docker daemon as a native sidecar: an init container with restart policy Always. It starts before the
    runner and ends after it."""
    container: Fields = {
        "name": "dind",
        "image": docker.image,
        "imagePullPolicy": args.image_pull_policy,
        "restartPolicy": "Always",
        **_start(docker),
        "env": [{"name": "DOCKER_GROUP_GID", "value": str(docker.group_id)}],
        "securityContext": {"privileged": True},
    }
    if docker.startup_probe:
        container["startupProbe"] = dict(docker.startup_probe)
    if docker.data_root:
        emptied = ["sh", "-c", f"rm -rf {docker.data_root}/*"]
        container["lifecycle"] = {"preStop": {"exec": {"command": emptied}}}
    mounts = [_WORK, _SOCKET, _EXTERNALS, *_data_mount(docker)]
    return container | {"volumeMounts": [*mounts, *(dict(mount) for mount in docker.volume_mounts)]}


def _start(docker: Docker) -> Fields:
    """Return command and arguments of the daemon's container. The default script keeps the container running after the
    daemon has ended, for the runner's last step."""
    if docker.command is not None or docker.args is not None:
        own = {"command": docker.command, "args": docker.args}
        return {key: list(words) for key, words in own.items() if words is not None}
    data_root = f" --data-root={docker.data_root}" if docker.data_root else ""
    script = (
        f"dockerd --host=unix:///var/run/docker.sock --group=${{DOCKER_GROUP_GID}}{data_root} &\n"
        "until docker info >/dev/null 2>&1; do sleep 5; done\n"
        "tail -f /dev/null\n"
    )
    return {"command": ["sh", "-c"], "args": [script]}


def _data_mount(docker: Docker) -> list[Fields]:
    return [{"name": "docker-data", "mountPath": docker.data_root}] if docker.data_root else []


# -- the runner -------------------------------------------------------------------------------------------------------


def _runner_container(args: RunnerScaleSetArgs) -> Fields:
    """Return the runner container. Its name must be `runner`: ARC passes the job's registration only to that container.
    Its command is set, because the list of containers replaces the chart's own."""
    container: Fields = {
        "name": "runner",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": _command(args),
    }
    if args.args is not None:
        container["args"] = list(args.args)
    container |= {"resources": _resources(args.resources), "env": _variables(args)}
    if args.job_timeout_minutes is not None:
        container["lifecycle"] = start_hook(args.job_timeout_minutes)
    if args.env_from:
        container["envFrom"] = [dict(source) for source in args.env_from]
    if args.security_context:
        container["securityContext"] = dict(args.security_context)
    mounts = [*_own_mounts(args), *_mounts(args.volumes), *(dict(mount) for mount in args.volume_mounts)]
    return container | ({"volumeMounts": mounts} if mounts else {})


def _command(args: RunnerScaleSetArgs) -> list[str]:
    if args.command is not None:
        return list(args.command)
    return ["/bin/sh", "-c", docker_runner_script(args.render_group)] if _lists_devices(args) else [*RUNNER_COMMAND]


def _variables(args: RunnerScaleSetArgs) -> list[Fields]:
    """Return the container's environment. Variables of the arguments replace the component's own."""
    own = [_field("POD_NAME", "metadata.name"), _field("NODE_NAME", "spec.nodeName")]
    if isinstance(args.docker, Docker):
        own.insert(0, {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"})
    given: list[Fields] = [{"name": name, "value": value} for name, value in args.env.items()]
    given += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": source.name, "key": source.key}}}
        for name, source in args.env_from_secret.items()
    ]
    given += [{"name": name, "valueFrom": dict(source)} for name, source in args.env_value_from.items()]
    names = {variable["name"] for variable in given}
    return [*(variable for variable in own if variable["name"] not in names), *given]


def _own_mounts(args: RunnerScaleSetArgs) -> list[Fields]:
    if isinstance(args.docker, KubernetesMode):
        return []
    mounts: list[Fields] = [dict(_WORK)]
    if isinstance(args.docker, Docker):
        mounts += [_SOCKET, _EXTERNALS]
        mounts += [_PODINFO] if _lists_devices(args) else []
        mounts += _data_mount(args.docker)
    # Mounts of the arguments at the same path replace the component's own.
    taken = {mount.get("mountPath") for mount in args.volume_mounts}
    return [mount for mount in mounts if mount["mountPath"] not in taken]


def docker_runner_script(render_group: int | None) -> str:
    """Return the start script of a runner with Docker. It writes the pod's GPUs as options of `docker run` to
    `/etc/podinfo/gha-render-devices`, and waits for the daemon.

    Workflows may ignore that file: the daemon is privileged and sees every device of the node.
    """
    group = "" if render_group is None else f"--group-add {render_group}"
    return f"""\
devices=$(ls -la /dev/dri/ | grep renderD | awk '{{print $10}}')
GHA_RENDER_DEVICES="{group}"
for device in $devices; do
  GHA_RENDER_DEVICES="${{GHA_RENDER_DEVICES}} --device /dev/dri/${{device}}"
done
echo "${{GHA_RENDER_DEVICES}}" > /etc/podinfo/gha-render-devices
# Wait for Docker to be ready before starting runner
echo "Waiting for docker..."
until docker info >/dev/null 2>&1; do sleep 5; done
/home/runner/run.sh
"""


def _field(name: str, path: str) -> Fields:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mounts(volumes: Sequence[Volume]) -> list[Fields]:
    """Return the mounts of volumes with a mount path in the runner container."""
    mounts = []
    for volume in volumes:
        if volume.mount_path is not None:
            mount: Fields = {"name": volume.name, "mountPath": volume.mount_path}
            mount |= {"subPath": volume.sub_path} if volume.sub_path else {}
            mounts.append(mount | ({"readOnly": True} if volume.read_only else {}))
    return mounts


def _resources(resources: RunnerResources) -> Fields:
    """Return requests and limits. Kubernetes requires both to be equal for extended resources."""
    both: Fields = {}
    if resources.ephemeral_storage is not None:
        both["ephemeral-storage"] = resources.ephemeral_storage
    if resources.gpus:
        both[resources.gpu_resource] = resources.gpus
    both |= resources.extended
    bounds = {"cpu": resources.cpu_limit, "memory": resources.memory_limit}
    limits = {name: amount for name, amount in bounds.items() if amount is not None} | both
    requests = {"cpu": resources.cpu, "memory": resources.memory, **both}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}
