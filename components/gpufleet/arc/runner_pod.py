"""The pod of one runner: its containers, its volumes, and the ways in which its jobs run containers."""

from __future__ import annotations

from typing import Any

from gpufleet.arc.scale_set_args import Docker, RunnerResources, RunnerScaleSetArgs, Volume


def pod_spec(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the pod spec of one runner."""
    spec: dict[str, Any] = {}
    if args.render_group is not None:
        spec["securityContext"] = {"supplementalGroups": [args.render_group]}
    if args.runtime_class:
        spec["runtimeClassName"] = args.runtime_class
    if args.node_selector:
        spec["nodeSelector"] = dict(args.node_selector)
    if args.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in args.tolerations]
    if args.docker:
        spec["initContainers"] = [_externals_container(args), _docker_container(args, args.docker)]
    spec["containers"] = [_runner_container(args)]
    volumes = [{"name": name, "emptyDir": {}} for name in (_DOCKER_VOLUMES if args.docker else _PLAIN_VOLUMES)]
    spec["volumes"] = volumes + [{"name": volume.name, **volume.source} for volume in args.volumes]
    return spec


_PLAIN_VOLUMES = ("work",)
_DOCKER_VOLUMES = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")

_WORK = {"name": "work", "mountPath": "/home/runner/_work"}
_SOCKET = {"name": "dind-sock", "mountPath": "/var/run"}
_EXTERNALS = {"name": "dind-externals", "mountPath": "/home/runner/externals"}
_PODINFO = {"name": "podinfo", "mountPath": "/etc/podinfo"}


def _externals_container(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the container that copies the runner's tools to where the jobs' containers can mount them."""
    return {
        "name": "init-dind-externals",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }


def _docker_container(args: RunnerScaleSetArgs, docker: Docker) -> dict[str, Any]:
    """Return the Docker daemon as a native sidecar: an init container with restart policy Always. It starts before the
    runner and ends after it."""
    return {
        "name": "dind",
        "image": docker.image,
        "imagePullPolicy": args.image_pull_policy,
        "restartPolicy": "Always",
        "command": ["sh", "-c"],
        "args": [
            "dockerd --host=unix:///var/run/docker.sock --group=${DOCKER_GROUP_GID}"
            f" --data-root={docker.data_root} &\n"
            "until docker info >/dev/null 2>&1; do sleep 5; done\n"
            "tail -f /dev/null\n"
        ],
        "env": [{"name": "DOCKER_GROUP_GID", "value": str(docker.group_id)}],
        "securityContext": {"privileged": True},
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", f"rm -rf {docker.data_root}/*"]}}},
        "volumeMounts": [_WORK, _SOCKET, _EXTERNALS, {"name": "docker-data", "mountPath": docker.data_root}],
    }


def _runner_container(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the runner container. Its name must be `runner`: ARC passes the job's registration only to that container.
    Its command is set, because the list of containers replaces the chart's own."""
    env = [_field("POD_NAME", "metadata.name"), _field("NODE_NAME", "spec.nodeName")]
    env += [{"name": name, "value": value} for name, value in args.env.items()]
    env += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": source.name, "key": source.key}}}
        for name, source in args.env_from_secret.items()
    ]
    mounts: list[dict[str, Any]] = [dict(_WORK)]
    command = ["/home/runner/run.sh"]
    if args.docker:
        env.insert(0, {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"})
        mounts += [_SOCKET, _EXTERNALS, _PODINFO, {"name": "docker-data", "mountPath": args.docker.data_root}]
        command = ["/bin/sh", "-c", docker_runner_script(args.render_group)]
    return {
        "name": "runner",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": command,
        "resources": _resources(args.resources),
        "env": env,
        "volumeMounts": mounts + [_mount(volume) for volume in args.volumes],
    }


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


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mount(volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
    return mount | {"readOnly": True} if volume.read_only else mount


def _resources(resources: RunnerResources) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if resources.ephemeral_storage is not None:
        limits["ephemeral-storage"] = resources.ephemeral_storage
    if resources.gpus:
        limits[resources.gpu_resource] = resources.gpus
    requests = {"cpu": resources.cpu, "memory": resources.memory, **limits}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}
