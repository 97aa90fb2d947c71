"""Strategic merge patches of pods, with the result of `kubectl patch --type strategic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists of a pod that are merged, each with the key of its items (patchMergeKey in core/v1/types.go of k8s.io/api at
0.36.4). All other lists are replaced."""

REPLACED_ITEMS = frozenset({"resourceClaims", "volumes"})
"""Lists whose items are replaced as a whole (patchStrategy `merge,retainKeys`): a volume has one source."""


def merged(original: Any, patch: Any, key: str = "") -> Any:
    """Return a value of a pod with a patch merged into it. `key` is the name of the field.

    `null` removes a field, `$patch: delete` an item of a list, and `$patch: replace` the whole original.
    """
    if isinstance(patch, Mapping):
        directive = patch.get("$patch")
        content = {name: value for name, value in patch.items() if name != "$patch"}
        base = dict(original) if isinstance(original, Mapping) and directive != "replace" else {}
        changed = {name: merged(base.get(name), value, name) for name, value in content.items() if value is not None}
        return {name: value for name, value in base.items() if name not in content} | changed
    if _is_list(patch) and _is_list(original) and key in MERGE_KEYS:
        return _merged_list(original, patch, key)
    if _is_list(patch):
        return [merged(None, item) for item in patch if not _directive(item)]
    return patch


def _merged_list(original: Sequence[Any], patch: Sequence[Any], key: str) -> list[Any]:
    by = MERGE_KEYS[key]
    items = {str(item.get(by)): item for item in original if not any(_directive(each) == "replace" for each in patch)}
    for item in patch:
        name, directive = str(item.get(by)), _directive(item)
        if directive == "delete":
            items.pop(name, None)
        elif directive != "replace" or by in item:
            items[name] = merged(None if key in REPLACED_ITEMS else items.get(name), item)
    return list(items.values())


def _directive(item: Any) -> Any:
    return item.get("$patch") if isinstance(item, Mapping) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
