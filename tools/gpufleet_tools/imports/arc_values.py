"""Existing scale sets in files: values of the chart, output of `helm get values`, and rendered manifests."""

from __future__ import annotations

import base64
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from gpufleet.arc.charts import SCALE_SET_CHART
from gpufleet_stacks.settings.secrets import SECRET, holds_secret, secret_keys
from gpufleet_tools.imports import gitops

LARGEST = 1024**2
"""Maximum size of a file in bytes; the chart's own values have 20,000."""

MOST_VALUES = 100_000
"""Maximum number of values in a file with expanded aliases."""

NO_SCALE_SET = f"has no scale set: neither values of the chart {SCALE_SET_CHART} nor an AutoscalingRunnerSet"
"""Message about files without anything to import."""


class UnreadableValues(Exception):
    """The file has no readable scale set. `str()` is one line."""


@dataclass(frozen=True)
class ScaleSet:
    """One scale set as values of the chart `gha-runner-scale-set`."""

    origin: str
    """File of the scale set."""
    label: str | None
    """`runs-on` label, if the file has it."""
    namespace: str | None
    """Namespace, if the file has it."""
    values: Mapping[str, Any] = field(repr=False)
    """Values of the chart, with SECRET for each secret."""
    rendered: bool = False
    """Whether it is rendered, with the additions of the chart."""
    elsewhere: tuple[str, ...] = ()
    """Sources of other values and changes that are not in the file."""


@dataclass(frozen=True)
class GithubSecret:
    """Manifest of a Secret with GitHub credentials, without the secret values."""

    origin: str
    """File of the manifest."""
    name: str
    """Name of the Secret."""
    namespace: str | None
    """Namespace, if the manifest has it."""
    kind: Literal["githubApp", "token"]
    """Kind of credentials: a GitHub App, or a personal access token."""
    app_id: str | None
    """ID of the App; None for a token, or if unreadable."""
    installation_id: str | None
    """ID of the App's installation; None for a token, or if unreadable."""
    further: tuple[str, ...]
    """Names of keys that ARC does not read."""


@dataclass(frozen=True)
class Passed:
    """A document that is not imported, and the reason."""

    what: str
    why: str


Found = ScaleSet | GithubSecret | Passed
"""Content of a document."""


def read(path: pathlib.Path) -> list[Found]:
    """Return the content of a file. Raises UnreadableValues."""
    try:
        if path.stat().st_size > LARGEST:
            raise UnreadableValues(f"{path}: has more than {LARGEST:,} bytes")
        documents = list(yaml.safe_load_all(path.read_bytes()))
        found = [one for document in documents for one in _document(_Clean().value(document), str(path))]
    except OSError as error:
        raise UnreadableValues(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f":{mark.line + 1}" if mark else ""
        raise UnreadableValues(f"{path}{at}: is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        # An invalid date, or bytes that are not text.
        raise UnreadableValues(f"{path}: is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UnreadableValues(f"{path}: its nesting is too deep, or its aliases are circular") from None
    if all(isinstance(one, Passed) for one in found):
        raise UnreadableValues(f"{path}: {NO_SCALE_SET}")
    return found


class _Clean:
    """A copy without secrets, of bounded size."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def value(self, value: Any, key: str = "") -> Any:
        self._left -= 1
        if self._left < 0:
            raise RecursionError
        if isinstance(value, dict):
            hidden = _hidden_keys(value, key)
            return {
                str(name): SECRET if name in hidden else self.value(item, str(name)) for name, item in value.items()
            }
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return SECRET if isinstance(value, str) and holds_secret(value) else value


def _hidden_keys(value: dict[Any, Any], key: str) -> set[Any]:
    """Return the keys of a mapping whose values are secrets."""
    if key in ("githubConfigSecret", "data", "stringData"):
        return {name for name in value if name not in ("github_app_id", "github_app_installation_id")}
    return secret_keys(value)


def _document(document: Any, origin: str) -> Iterator[Found]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise UnreadableValues(f"{origin}: is a {type(document).__name__}, not a mapping")
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _document(item, origin)
    elif "kind" in document and "apiVersion" in document:
        release = gitops.release(document)
        if release is None:
            yield _manifest(document, origin)
        else:
            yield from _release(release, origin)
    else:
        # `helm get values` prints a heading before the YAML.
        headings = ("USER-SUPPLIED VALUES", "COMPUTED VALUES")
        values = {key: value for key, value in document.items() if key not in headings or value is not None}
        scale_sets = [_scale_set(part, origin) for part in _charts(values)]
        yield from scale_sets
        if not scale_sets:
            yield Passed(f"keys {', '.join(sorted(values)[:5])}", "none of them is the scale-set chart's")


def _charts(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return values of the scale-set chart: the given ones, or those of a chart's dependencies."""
    if values.keys() & _OF_THE_CHART:
        return [values]
    parts = [part for part in values.values() if isinstance(part, dict) and part.keys() >= _OF_A_PART]
    # `enabled` belongs to the outer chart.
    return [{key: value for key, value in part.items() if key != "enabled"} for part in parts]


_OF_THE_CHART = {"template", "githubConfigUrl", "githubConfigSecret", "minRunners", "maxRunners"}
"""Keys that identify values of the scale-set chart."""

_OF_A_PART = {"githubConfigUrl"}
"""Keys that identify values of the scale-set chart as a dependency."""


def _scale_set(values: dict[str, Any], origin: str) -> ScaleSet:
    name = values.get("runnerScaleSetName")
    return ScaleSet(origin, str(name) if name else None, values.get("namespaceOverride") or None, values)


def _release(release: gitops.Release, origin: str) -> Iterator[Found]:
    """Yield the scale sets in a release of Flux or Argo CD, whose chart may be another one that depends on theirs."""
    charts = _charts(dict(release.values)) if release.chart in (None, SCALE_SET_CHART) else []
    if release.chart == SCALE_SET_CHART and not charts:
        raise UnreadableValues(f"{origin}: {release.what} has its values elsewhere: {', '.join(release.elsewhere)}")
    for values in charts:
        found = _scale_set(values, origin)
        own = replace(found, label=found.label or release.name, namespace=found.namespace or release.namespace)
        yield replace(own, elsewhere=release.elsewhere)
    if not charts:
        yield Passed(release.what, f"it is of the chart {release.chart or 'of another name'}")


def _manifest(manifest: dict[str, Any], origin: str) -> Found:
    metadata = _mapping(manifest.get("metadata"))
    kind, name = str(manifest["kind"]), str(metadata.get("name", ""))
    if kind == "Secret":
        return _secret(manifest, name, metadata.get("namespace"), origin)
    if kind != "AutoscalingRunnerSet":
        by_chart = kind in ("ServiceAccount", "Role", "RoleBinding")
        why = "the chart creates it" if by_chart else "only scale sets are imported"
        return Passed(f"{kind} {name}", why)
    spec = dict(_mapping(manifest.get("spec")))
    values = {_VALUES.get(key, key): value for key, value in spec.items()}
    for part in ("labels", "annotations"):
        own = {key: value for key, value in _mapping(metadata.get(part)).items() if not _by_chart(key)}
        values |= {part: own} if own else {}
    label = str(spec.get("runnerScaleSetName") or name)
    return ScaleSet(origin, label or None, metadata.get("namespace"), values, rendered=True)


_TOKEN, _APP = ("github_token",), ("github_app_id", "github_app_installation_id", "github_app_private_key")
"""Keys of a secret that ARC reads (FromSecret in apis/actions.github.com/v1alpha1/appconfig/appconfig.go of
actions/actions-runner-controller at gha-runner-scale-set-0.14.2)."""


def _secret(manifest: Mapping[str, Any], name: str, namespace: str | None, origin: str) -> GithubSecret | Passed:
    encoded, plain = (_mapping(manifest.get(part)) for part in ("data", "stringData"))
    keys = [*dict.fromkeys([*encoded, *plain])]
    read = _TOKEN if "github_token" in keys else _APP if "github_app_id" in keys else ()
    if not read:
        return Passed(f"Secret {name}", f"no scale set registers with it: it has neither {_TOKEN[0]} nor {_APP[0]}")
    ids = [str(plain[key]) if key in plain else _decoded(encoded.get(key)) for key in _APP[:2]]
    return GithubSecret(
        origin=origin,
        name=name,
        namespace=namespace,
        kind="token" if read is _TOKEN else "githubApp",
        app_id=ids[0],
        installation_id=ids[1],
        further=tuple(key for key in keys if key not in read),
    )


def _decoded(text: Any) -> str | None:
    """Return an ID of a GitHub App; None if unreadable."""
    try:
        return base64.b64decode(str(text), validate=True).decode().strip() if text else None
    except ValueError:
        return None


_VALUES = {"runnerScaleSetLabels": "scaleSetLabels", "vaultConfig": "keyVault"}
"""Fields of an AutoscalingRunnerSet that have another name among the chart's values
(templates/autoscalingrunnerset.yaml at 0.14.2)."""


def _by_chart(key: str) -> bool:
    """Return whether Helm, the chart, the controller or kubectl sets a label or annotation."""
    return key.startswith(
        ("app.kubernetes.io/", "helm.sh/", "meta.helm.sh/", "actions.github.com/", "kubectl.kubernetes.io/")
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
