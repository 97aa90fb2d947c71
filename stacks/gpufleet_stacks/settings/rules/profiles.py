"""Rules for a profile: its containers, volumes, mounts and variables must be consistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpufleet.arc.job_timeout import conflicts
from gpufleet.arc.runner_pod import OWN_CONTAINERS, OWN_MOUNTS, OWN_VOLUMES
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings.models.profiles.docker import DockerSidecar, KubernetesPods
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import listed, nearest, plain_secret
from gpufleet_stacks.settings.secrets import is_secret, secret_keys


def _env_holds_no_secret(profile: Profile, where: Path) -> Iterator[Problem]:
    """Reject secrets in environment variables, which are visible in the state and in every preview."""
    for variable, value in profile.env.items():
        if is_secret(variable, value):
            place = (*where, "env", variable)
            yield Problem(place, "plain-secret", plain_secret(place))


def _objects_hold_no_secret(profile: Profile, where: Path) -> Iterator[Problem]:
    """Reject secrets in objects in Kubernetes syntax."""
    objects = {
        "docker": getattr(profile.docker, "startup_probe", None),
        "initContainers": profile.init_containers,
        "listenerTemplate": profile.listener_template,
        "podTemplate": profile.pod_template,
    }
    for name, value in objects.items():
        for path in _secrets(value, (*where, name)):
            message = (
                "is a secret in plain text; revoke it, store a new one in a Kubernetes Secret, and write"
                " valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}"
            )
            yield Problem(path, "plain-secret", message)


def _secrets(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        found = secret_keys(value)
        for key, item in value.items():
            yield from [(*path, key)] if key in found else _secrets(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))


def _time_limit_is_kept(profile: Profile, where: Path) -> Iterator[Problem]:
    """Reject pod templates that prevent the time limit of jobs."""
    if profile.job_timeout_minutes is not None:
        for path, message in conflicts(profile.pod_template or {}):
            yield Problem((*where, "podTemplate", *path), "job-timeout", message)


def _variables_are_set_once(profile: Profile, where: Path) -> Iterator[Problem]:
    """Allow one source for each variable."""
    sources: dict[str, Mapping[str, Any]] = {
        "envFromSecret": profile.env_from_secret,
        "envValueFrom": profile.env_value_from,
    }
    seen = dict.fromkeys(profile.env, "env")
    for source, variables in sources.items():
        for variable in variables:
            if variable in seen:
                place = (*where, seen[variable], variable)
                yield Problem(place, "variable-twice", f"{variable} is also set in {source}; remove one of them")
            seen.setdefault(variable, source)


def _volumes_are_free(profile: Profile, where: Path) -> Iterator[Problem]:
    """Require unique volume names and mount paths that the runner's pod does not already use."""
    docker = profile.docker
    places = {*OWN_MOUNTS} | ({docker.data_root} if isinstance(docker, DockerSidecar) and docker.data_root else set())
    for key, volume in profile.volumes.items():
        place: Path = (*where, "volumes", key)
        if key in OWN_VOLUMES:
            message = f"the runner's pod already has a volume '{key}'; use another name"
            yield Problem(place, "volume-name", message)
        if volume.mount_path is not None:
            if volume.mount_path.rstrip("/") in places:
                message = f"another volume is already mounted at {volume.mount_path}; use another path"
                yield Problem((*place, "mountPath"), "mount-path", message)
            places.add(volume.mount_path.rstrip("/"))


def _mounts_name_volumes(profile: Profile, where: Path) -> Iterator[Problem]:
    """Require that additional mounts name volumes of the pod."""
    mounts: dict[Path, Any] = {("volumeMounts",): profile.volume_mounts}
    if isinstance(profile.docker, DockerSidecar):
        mounts["docker", "volumeMounts"] = profile.docker.volume_mounts
    for index, container in enumerate(profile.init_containers):
        mounts["initContainers", index, "volumeMounts"] = container.get("volumeMounts", ())
    for path, items in mounts.items():
        for index, mount in enumerate(items):
            name = str(mount.get("name"))
            if name not in profile.volumes and name not in OWN_VOLUMES:
                message = f"the pod has no volume '{name}'; {nearest(name, [*profile.volumes, *OWN_VOLUMES])}"
                yield Problem((*where, *path, index, "name"), "no-such-volume", message)


def _init_containers_have_names_of_their_own(profile: Profile, where: Path) -> Iterator[Problem]:
    """Require unique container names."""
    names = [container["name"] for container in profile.init_containers]
    often = Counter(names)
    for index, name in enumerate(names):
        place = (*where, "initContainers", index, "name")
        if name in OWN_CONTAINERS:
            message = f"the runner's pod already has a container '{name}'; use another name"
            yield Problem(place, "container-name", message)
        elif often[name] > 1 and index != names.index(name):
            yield Problem(place, "container-name", f"another init container is named '{name}'; use another name")


def _one_work_volume(profile: Profile, where: Path) -> Iterator[Problem]:
    """Allow no second volume for the work folder if jobs run as pods, which share a volume claim with the runner."""
    if profile.work_volume is not None and isinstance(profile.docker, KubernetesPods):
        message = "docker.workVolumeClaim already defines the volume of the work folder; remove workVolume"
        yield Problem((*where, "workVolume"), "work-volume", message)


def _daemon_uses_its_data_root(profile: Profile, where: Path) -> Iterator[Problem]:
    """Require that custom arguments of the Docker daemon set its data root."""
    docker = profile.docker
    if not isinstance(docker, DockerSidecar) or docker.data_root is None:
        return
    arguments = [*(docker.command or ()), *(docker.args or ())]
    if arguments and not any(docker.data_root in argument for argument in arguments):
        own = listed([name for name, words in (("command", docker.command), ("args", docker.args)) if words], "and")
        message = (
            f"{docker.data_root} is not in the daemon's {own}, so the daemon stores images elsewhere;"
            f" add --data-root={docker.data_root}, or set dataRoot: null"
        )
        yield Problem((*where, "docker", "dataRoot"), "data-root", message)


_OF_A_PROFILE: tuple[Callable[[Profile, Path], Iterator[Problem]], ...] = (
    _env_holds_no_secret,
    _objects_hold_no_secret,
    _time_limit_is_kept,
    _variables_are_set_once,
    _volumes_are_free,
    _mounts_name_volumes,
    _init_containers_have_names_of_their_own,
    _one_work_volume,
    _daemon_uses_its_data_root,
)


def profiles_are_sound(settings: Settings) -> Iterator[Problem]:
    """Yield the problems of every profile."""
    for name, profile in settings.profiles.items():
        for rule in _OF_A_PROFILE:
            yield from rule(profile, ("profiles", name))


RULES = (profiles_are_sound,)
