"""ARC's pods in the sandbox: where they run, and what they request."""

from __future__ import annotations

from gpufleet_stacks.settings.system_requests import ARC_CONTROLLER, LISTENER
from gpufleet_tools.plan import arc_releases, stack
from gpufleet_tools.sandbox import arc_stand_in
from tests.conftest import ROOT


def test_the_controller_and_a_listener_for_each_label_are_on_the_system_nodes() -> None:
    """With the requests that `check` counts on the system nodes."""
    read = stack.read(ROOT, "dev")
    jobs = arc_stand_in.pods(read.plan())
    pods = {each["metadata"]["name"].rpartition("-")[0]: each["spec"]["template"]["spec"] for each in jobs}
    assert {name: pod["containers"][0]["resources"]["requests"] for name, pod in pods.items()} == {
        "arc-manager": ARC_CONTROLLER.requests,
        **{f"{label}-listener": LISTENER.requests for label in read.settings.runners},
    }
    assert {pod["nodeSelector"]["gpu-runners/nodes"] for pod in pods.values()} == {"system"}
    assert {each["metadata"]["namespace"] for each in jobs} == {read.settings.arc.namespace}


def test_another_template_is_another_job() -> None:
    """The template of a Job is immutable, and an update of the stack must not fail for it."""
    plan = stack.read(ROOT, "dev").plan()
    names = {each["metadata"]["name"] for each in arc_stand_in.pods(plan)}
    controller = arc_releases.controller(plan)
    assert controller is not None
    assert isinstance(controller.values, dict)
    controller.values["resources"] = {"requests": {"cpu": "1"}}
    assert len(names & {each["metadata"]["name"] for each in arc_stand_in.pods(plan)}) == len(names) - 1
