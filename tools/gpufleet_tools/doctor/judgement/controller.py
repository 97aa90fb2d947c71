"""Judgement of ARC's controller and CRDs."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_tools.doctor import crds
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.commands import reinstall
from gpufleet_tools.doctor.view import SETTLED, View, identity, is_terminating

SUBJECT = "controller"

_EVENTUAL = "--update-strategy=eventual"


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about the controller and the CRDs."""
    if view.snapshot.knows("controllers"):
        yield from _presence(view)
        yield from _version(view)
        yield from _others(view)
    yield from _definitions(view)


def _presence(view: View) -> Iterator[Finding]:
    wanted, found = view.declared.controller, view.controller
    waiting = [each for each in view.snapshot["runner sets"] if is_terminating(each)]
    consequence = "No scale set is changed, replaced or removed; running listeners and jobs continue."
    if waiting:
        names = ", ".join(identity(each)[1] for each in waiting)
        consequence = f"Only a running controller removes the finalizers of scale sets: {names} cannot be deleted."
    if found is None:
        yield Finding(
            name="controller-missing",
            severity="error",
            subject=SUBJECT,
            fact=f"Deployment {wanted.namespace}/{wanted.deployment} does not exist",
            consequence=f"{consequence} Install it again.",
            commands=(reinstall(view, wanted.release, wanted.namespace),),
        )
        return
    replicas = found["spec"].get("replicas", 1)
    name = f"-n {wanted.namespace} {wanted.deployment}"
    if replicas == 0:
        yield Finding(
            name="controller-stopped",
            severity="error",
            subject=SUBJECT,
            fact=f"Deployment {wanted.namespace}/{wanted.deployment} has 0 replicas",
            consequence=f"{consequence} Start it again.",
            commands=(view.target.kubectl(f"scale deployment {name} --replicas=1"),),
        )
    elif not view.controller_runs and view.age(found) > SETTLED:
        yield Finding(
            name="controller-not-ready",
            severity="error",
            subject=SUBJECT,
            fact=f"no pod of Deployment {wanted.namespace}/{wanted.deployment} is ready",
            consequence=f"{consequence} Its pod and its log show the reason.",
            commands=(
                view.target.kubectl(f"describe deployment {name}"),
                view.target.kubectl(f"logs -n {wanted.namespace} deploy/{name.split()[-1]}"),
            ),
        )


def _version(view: View) -> Iterator[Finding]:
    wanted, version = view.declared.controller, view.controller_version
    if version is None or version == wanted.version:
        return
    same_minor = crds.minor(version) == crds.minor(wanted.version)
    consequence = (
        "Apply the stack file."
        if same_minor
        else "A controller deletes scale sets of another minor version: do not apply the stack file before you have"
        " read how to upgrade ARC (docs/operations.md)."
    )
    yield Finding(
        name="controller-version",
        severity="warning" if same_minor else "error",
        subject=SUBJECT,
        fact=f"version {version} runs, but the stack declares {wanted.version}",
        consequence=consequence,
        commands=(f"pulumi preview --stack {view.declared.stack} --diff",),
    )


def _others(view: View) -> Iterator[Finding]:
    """Yield a finding about a second controller that watches all namespaces, as the stack's own does."""
    own = (view.declared.controller.namespace, view.declared.controller.deployment)
    for each in view.snapshot["controllers"]:
        arguments = each["spec"]["template"]["spec"]["containers"][0].get("args", ())
        if identity(each) == own or any(argument.startswith("--watch-single-namespace") for argument in arguments):
            continue
        namespace, name = identity(each)
        yield Finding(
            name="second-controller",
            severity="error",
            subject=SUBJECT,
            fact=f"Deployment {namespace}/{name} is another controller that watches all namespaces",
            consequence="Two controllers create listeners for the same scale sets, and each undoes the other's work.",
            commands=(view.target.kubectl(f"scale deployment -n {namespace} {name} --replicas=0"),),
        )


def _definitions(view: View) -> Iterator[Finding]:
    live, wanted = view.snapshot.crds, view.declared.controller
    if live is None:
        return
    apply = view.target.kubectl("apply --server-side --force-conflicts -f -")
    cure = f"helm show crds {wanted.chart} | {apply}"
    if absent := [plural for plural in crds.PLURALS if plural not in live]:
        yield Finding(
            name="crds-missing",
            severity="error",
            subject="CRDs",
            fact=f"{', '.join(absent)} of actions.github.com are missing",
            consequence="The controller does not start. Install the CRDs of the chart.",
            commands=(cure,),
        )
    elif missing := crds.missing(live, wanted.version):
        version = crds.version_of(live)
        yield Finding(
            name="crds-version",
            severity="error" if view.controller_version == wanted.version else "warning",
            subject="CRDs",
            fact=f"they are those of ARC {version or 'another version'}; the stack declares {wanted.version}, which has"
            f" {len(missing)} more fields, such as {missing[0]}",
            consequence="The API server silently drops these fields. Helm never upgrades CRDs; apply the chart's.",
            commands=(cure,),
        )


def eventual_argument(view: View) -> int | None:
    """Return the index of the controller's argument for the update strategy `eventual`; None if it is not set."""
    if view.controller is None:
        return None
    arguments = list(view.controller["spec"]["template"]["spec"]["containers"][0].get("args", ()))
    return arguments.index(_EVENTUAL) if _EVENTUAL in arguments else None
