"""Commands that more than one finding has."""

from __future__ import annotations

from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import View, identity


def controller_log(view: View, text: str) -> str:
    """Return the command that shows the controller's recent messages with a text."""
    controller = view.declared.controller
    log = f"logs -n {controller.namespace} deploy/{controller.deployment} --since=10m"
    return f"{view.target.kubectl(log)} | grep {text}"


def restart_controller(view: View) -> str:
    """Return the command that replaces the controller's pod."""
    controller = view.declared.controller
    return view.target.kubectl(f"rollout restart deployment -n {controller.namespace} {controller.deployment}")


def restart_listener(view: View, listener: Object) -> str:
    """Return the command after which the controller creates a new AutoscalingListener; no job is touched."""
    namespace, name = identity(listener)
    return view.target.kubectl(f"delete autoscalinglistener -n {namespace} {name}")


def reinstall(view: View, release: str, namespace: str) -> str:
    """Return the command that creates missing objects of a Helm release again. While Helm has a record that the release
    is installed, `pulumi up` changes nothing."""
    wanted = (namespace, release, "deployed")
    for each in view.snapshot["releases"]:
        labels = each["metadata"].get("labels", {})
        if (each["metadata"]["namespace"], labels.get("name"), labels.get("status")) == wanted:
            manifest = view.target.helm(f"get manifest -n {namespace} {release}")
            return f"{manifest} | {view.target.kubectl(f'apply -n {namespace} -f -')}"
    return f"pulumi up --stack {view.declared.stack} --refresh"


def replace_runner_set(view: View, scale_set: DeclaredScaleSet, old: str) -> str:
    """Return the command that replaces the EphemeralRunnerSet `old` and the listener: an annotation in the template of
    the runners. Runners with a job end first. To delete the EphemeralRunnerSet does not do that: as long as it has
    runners, the controller takes it for the current one (`latest` in autoscalingrunnerset_controller.go at 0.14.2)."""
    patch = f'{{"spec":{{"template":{{"metadata":{{"annotations":{{"gpufleet.dev/replaces":"{old}"}}}}}}}}}}'
    place = f"-n {scale_set.namespace} {scale_set.label}"
    return view.target.kubectl(f"patch autoscalingrunnerset {place} --type merge -p '{patch}'")
