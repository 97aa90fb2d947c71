"""Effect of changed inputs on a resource: an update in place, a replacement, or unknown without the provider.

The tables list replacements as the providers plan them, each with its source. A change that no table has is `unknown`,
never an update.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet_tools.plan.plan import RELEASE

Path = tuple[str | int, ...]
"""Path in a resource's inputs."""

Verdict = Literal["update", "replace", "unknown", "refused"]
"""`unknown`: depends on the provider. `refused`: the provider would update it, but the API server rejects that."""


@dataclass(frozen=True)
class Judgement:
    """Effect of changed inputs on a resource."""

    verdict: Verdict
    """Most disruptive effect."""
    reasons: tuple[str, ...] = ()
    """Reasons for an effect other than an update, or notes about an update."""


KUBERNETES_SOURCE = "provider/pkg/provider/diff.go of pulumi/pulumi-kubernetes at 94977969"
"""A commit of 2026-07-01. The file, `forceNewFields` in helm_release.go and `DiffConfig` in provider.go beside it are
the same as at v4.32.0. The release that requirements.txt pins is newer, and its source was not available: compare again
when the pin changes."""

_SELECTED = ("spec.selector",)
_BOUND = ("roleRef",)

_REPLACING: Mapping[tuple[str, str], Sequence[str]] = {
    ("apps", "DaemonSet"): _SELECTED,
    ("apps", "Deployment"): _SELECTED,
    ("apps", "StatefulSet"): (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BOUND,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BOUND,
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner"),
    ("core", "PersistentVolumeClaim"): (
        "spec.accessModes",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeName",
    ),
    ("core", "ResourceQuota"): ("spec.scopes",),
    ("core", "Secret"): ("type",),
    ("core", "Service"): ("spec.clusterIP",),
}
"""Inputs whose change replaces an object, by API group and kind: `forceNew` in KUBERNETES_SOURCE. Prefixes of paths."""

_BY_CONTENT = {"Secret": ("type", "stringData", "data"), "ConfigMap": ("binaryData", "data")}
"""Objects that a change of their content replaces, unless the provider's configuration makes them mutable and they are
not marked immutable (`forceNewProperties` in KUBERNETES_SOURCE)."""

_NOT_IN_TABLES = frozenset({("core", "Pod"), ("core", "PersistentVolume"), ("policy", "PodDisruptionBudget")})
"""Objects with long lists or versions in `forceNew`, which the programs of this repository do not create."""

_IMMUTABLE: Mapping[tuple[str, str], Sequence[str]] = {
    ("node.k8s.io", "RuntimeClass"): ("handler",),
    ("scheduling.k8s.io", "PriorityClass"): ("value", "preemptionPolicy"),
    ("storage.k8s.io", "StorageClass"): ("reclaimPolicy", "volumeBindingMode"),
}
"""Fields that the API server does not allow to change and that the provider's list lacks, verified with a real API
server by tests/tools/sandbox/control_plane/test_immutable_fields.py."""

_EKS_REPLACING = ("bootstrapSelfManagedAddons", "name", "serviceRole")
"""Inputs of pulumi-eks's Cluster that cannot change in place: `ForceNew` in internal/service/eks/cluster.go of
hashicorp/terraform-provider-aws at 00555dc5, which pulumi-aws is built on."""

_EKS_UPDATING = (
    "authenticationMode",
    "clusterSecurityGroup",
    "deletionProtection",
    "enabledClusterLogTypes",
    "endpointPrivateAccess",
    "endpointPublicAccess",
    "privateSubnetIds",
    "publicAccessCidrs",
    "tags",
    "version",
)
"""Inputs that change in place, from the same file; `deletionProtection` from CloudFormation's schema."""

_DEPENDS_ON_PROVIDER = "the effect depends on its provider"

_AWS_DATA = pathlib.Path(__file__).with_name("replacement.aws.json")


def judged(
    token: str, before: Mapping[str, Any], after: Mapping[str, Any], provider: Mapping[str, Any] | None = None
) -> Judgement:
    """Return the effect of changed inputs on a resource of that type. `provider` are the inputs of its provider."""
    paths = changed(before, after)
    if not paths:
        return Judgement("update")
    if token == RELEASE:
        # `forceNewFields` in helm_release.go beside KUBERNETES_SOURCE.
        return _replacing(paths, ("name", "namespace"))
    if token == "pulumi:providers:kubernetes":
        return _cluster(before, after)
    if token in ("command:remote:Command", "command:local:Command", "command:remote:CopyToRemote"):
        # The tags `replaceOnChanges` in provider/pkg/provider of pulumi-command v1.2.1.
        return _replacing(paths, ("triggers",))
    if token == "eks:index:Cluster":
        return _eks_cluster(before, after, paths)
    if token.startswith("kubernetes:") and "kind" in after:
        return _object(token, before, after, paths, provider or {})
    if token.startswith("aws:"):
        return _aws(token, paths)
    return Judgement("unknown", (_DEPENDS_ON_PROVIDER,))


def _replacing(paths: Sequence[Path], prefixes: Sequence[str]) -> Judgement:
    found = tuple(f"{written(path)} cannot be changed in place" for path in paths if _below(path, prefixes))
    return Judgement("replace", found) if found else Judgement("update")


def _below(path: Path, prefixes: Sequence[str]) -> bool:
    parts = tuple(str(part) for part in path)
    return any(parts[: len(wanted)] == wanted for wanted in (tuple(prefix.split(".")) for prefix in prefixes))


def _object(
    token: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    paths: Sequence[Path],
    provider: Mapping[str, Any],
) -> Judgement:
    # kubernetes:apps/v1:DaemonSet; a custom resource has its own group in that place.
    group, kind = token.split(":")[1].partition("/")[0], str(after["kind"])
    prefixes = ["metadata.name", "metadata.namespace", *_REPLACING.get((group, kind), ())]
    if group == "core" and kind in _BY_CONTENT:
        mutable = str(provider.get(f"enable{kind}Mutable", "false")).lower() == "true"
        if not mutable or after.get("immutable") is True:
            prefixes += _BY_CONTENT[kind]
    found = _replacing(paths, prefixes)
    if found.verdict == "replace":
        return _with_order(found, before, after)
    refused = [written(path) for path in paths if _below(path, _IMMUTABLE.get((group, kind), ()))]
    if refused:
        return Judgement("refused", tuple(f"{path} is immutable" for path in refused))
    if (group, kind) in _NOT_IN_TABLES:
        return Judgement("unknown", (_DEPENDS_ON_PROVIDER,))
    return found


def _with_order(judgement: Judgement, before: Mapping[str, Any], after: Mapping[str, Any]) -> Judgement:
    """Add the order of a replacement. An object that keeps its name is deleted before its replacement is created
    (`deleteBeforeReplace` in `Diff`, provider/pkg/provider/provider.go)."""
    names = [(each["metadata"].get("namespace"), each["metadata"].get("name")) for each in (before, after)]
    same = names[0] == names[1] and names[0][1] is not None
    order = "deleted first, because it keeps its name" if same else "deleted after its replacement is created"
    return Judgement("replace", (*judgement.reasons, order))


def _cluster(before: Mapping[str, Any], after: Mapping[str, Any]) -> Judgement:
    """Return the effect on a provider of a cluster: `DiffConfig` in provider.go beside KUBERNETES_SOURCE."""
    known, wanted = before.get("clusterIdentifier"), after.get("clusterIdentifier")
    if wanted is not None and known == wanted:
        return Judgement("update")
    if known is not None and wanted is not None:
        return Judgement("replace", ("clusterIdentifier identifies another cluster",))
    inputs = [key for key in ("kubeconfig", "context", "cluster") if before.get(key) != after.get(key)]
    if inputs:
        return Judgement(
            "unknown", (f"{', '.join(inputs)} may select another cluster, which would replace everything on it",)
        )
    return Judgement("update")


def _eks_cluster(before: Mapping[str, Any], after: Mapping[str, Any], paths: Sequence[Path]) -> Judgement:
    """Return the effect on a remote component: its inputs are those of the cluster that it creates."""
    inputs = list(dict.fromkeys(str(path[0]) for path in paths))
    replacing = [name for name in inputs if name in _EKS_REPLACING]
    if replacing:
        return Judgement("replace", tuple(f"{name} is create-only; the cluster is replaced" for name in replacing))
    unsure = [name for name in inputs if name not in _EKS_UPDATING]
    if unsure:
        return Judgement("unknown", tuple(f"the effect of changing {name} depends on its provider" for name in unsure))
    if "version" not in inputs:
        return Judgement("update")
    versions = f"Kubernetes {before.get('version')} → {after.get('version')}"
    return Judgement("update", (f"{versions}: EKS upgrades one minor version at a time and cannot downgrade",))


def _aws(token: str, paths: Sequence[Path]) -> Judgement:
    """Return the effect on an AWS resource. AWS services cannot change CloudFormation's create-only properties, and can
    change all others. Pulumi's provider, which is Terraform's, may replace the resource anyway, except for tags."""
    known = aws_types().get(token, {"replace": (), "update": ()})
    inputs = list(dict.fromkeys(str(path[0]) for path in paths))
    replacing = [name for name in inputs if name in known["replace"]]
    if replacing:
        return Judgement("replace", tuple(f"{name} is create-only" for name in replacing))
    unsure = [name for name in inputs if name != "tags"]
    if not unsure:
        return Judgement("update")
    return Judgement(
        "unknown",
        tuple(
            f"AWS can change {name} in place, but Pulumi's provider may replace the resource"
            if name in known["update"]
            else f"the effect of changing {name} depends on its provider"
            for name in unsure
        ),
    )


@functools.cache
def aws_types() -> Mapping[str, Mapping[str, Any]]:
    """Return, by type token, the inputs that AWS accepts only on creation (`replace`) and those that it can change
    (`update`), generated from the CloudFormation schemas that cfn-lint ships."""
    types: Mapping[str, Mapping[str, Any]] = json.loads(_AWS_DATA.read_text())["types"]
    return types


def changed(before: Any, after: Any, at: Path = ()) -> list[Path]:
    """Return the paths of the leaves that differ, including added and removed ones."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [path for key in keys for path in changed(before.get(key, _ABSENT), after.get(key, _ABSENT), (*at, key))]
    if isinstance(before, list) and isinstance(after, list):
        longest = max(len(before), len(after))
        sides = ([*side, *[_ABSENT] * (longest - len(side))] for side in (before, after))
        return [
            path
            for index, (old, new) in enumerate(zip(*sides, strict=True))
            for path in changed(old, new, (*at, index))
        ]
    if before is _ABSENT or after is _ABSENT:
        return list(_leaves(after if before is _ABSENT else before, at))
    return [] if before == after and isinstance(before, bool) == isinstance(after, bool) else [at]


_ABSENT = object()


def _leaves(value: Any, at: Path) -> Iterator[Path]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*at, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*at, index))
    else:
        yield at


def written(path: Path) -> str:
    """Return a path as text: `spec.template.spec.containers[0].image`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f'["{part}"]' if "." in part or "/" in part else f".{part}"
    return text.removeprefix(".")
