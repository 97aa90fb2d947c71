"""Helm releases in Git: what a HelmRelease of Flux and an Application of Argo CD tell Helm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpufleet.arc.charts import SCALE_SET_CHART


@dataclass(frozen=True)
class Release:
    """One release of a chart."""

    what: str
    """Kind and name of the manifest."""
    name: str | None
    """Name of the Helm release."""
    namespace: str | None
    """Namespace of the release, where the manifest tells it."""
    chart: str | None
    """Name of the chart, where the manifest tells it."""
    values: Mapping[str, Any] = field(repr=False)
    """Values in the manifest."""
    elsewhere: tuple[str, ...]
    """Other sources of the release's values that are not in the manifest."""


def release(manifest: Mapping[str, Any]) -> Release | None:
    """Return the release that a manifest describes; None for other manifests."""
    group = str(manifest.get("apiVersion")).partition("/")[0]
    kind = (group, manifest.get("kind"))
    if kind == ("helm.toolkit.fluxcd.io", "HelmRelease"):
        return _of_flux(manifest)
    return _of_argo(manifest) if kind == ("argoproj.io", "Application") else None


def _of_flux(manifest: Mapping[str, Any]) -> Release:
    """helm.toolkit.fluxcd.io/v2: the name is `releaseName`, or else that of the manifest, behind `targetNamespace`
    (GetReleaseName in api/v2/helmrelease_types.go of fluxcd/helm-controller)."""
    metadata, spec = _mapping(manifest.get("metadata")), _mapping(manifest.get("spec"))
    chart = _mapping(_mapping(spec.get("chart")).get("spec")).get("chart")
    target = spec.get("targetNamespace")
    name = spec.get("releaseName") or "-".join(filter(None, [target, metadata.get("name")]))
    sources = [
        f"valuesFrom {source.get('kind')} {source.get('name')}"
        for source in spec.get("valuesFrom") or ()
        if isinstance(source, dict)
    ]
    return Release(
        what=f"HelmRelease {metadata.get('name')}",
        name=str(name) or None,
        namespace=target or metadata.get("namespace"),
        chart=str(chart).rpartition("/")[2] if chart else None,
        values=_mapping(spec.get("values")),
        elsewhere=(*sources, *(["postRenderers"] if spec.get("postRenderers") else [])),
    )


def _of_argo(manifest: Mapping[str, Any]) -> Release:
    """argoproj.io/v1alpha1: the source with the chart; `valuesObject` goes before `values` (ValuesYAML in
    pkg/apis/application/v1alpha1/types.go of argoproj/argo-cd)."""
    metadata, spec = _mapping(manifest.get("metadata")), _mapping(manifest.get("spec"))
    sources = [_mapping(each) for each in [spec.get("source"), *_items(spec.get("sources"))]]
    source = next((each for each in sources if _chart(each) == SCALE_SET_CHART), None)
    source = source or next((each for each in sources if "helm" in each), {})
    helm = _mapping(source.get("helm"))
    return Release(
        what=f"Application {metadata.get('name')}",
        name=str(helm.get("releaseName") or metadata.get("name") or "") or None,
        namespace=_mapping(spec.get("destination")).get("namespace"),
        chart=_chart(source),
        values=_argo_values(helm),
        elsewhere=tuple(_beside(helm)),
    )


def _argo_values(helm: Mapping[str, Any]) -> Mapping[str, Any]:
    if helm.get("valuesObject"):
        return _mapping(helm["valuesObject"])
    text = helm.get("values")
    return _mapping(yaml.safe_load(text)) if isinstance(text, str) else {}


def _beside(helm: Mapping[str, Any]) -> Iterator[str]:
    """Yield an Application's Helm settings other than values."""
    yield from (f"valueFiles {file}" for file in _items(helm.get("valueFiles")))
    for key in ("parameters", "fileParameters"):
        yield from (f"{key} {_mapping(each).get('name')}" for each in _items(helm.get(key)))


def _chart(source: Mapping[str, Any]) -> str | None:
    """The chart of a source: `chart`, or the end of an OCI registry's path."""
    name = source.get("chart") or str(source.get("repoURL", "")).rpartition("/")[2]
    return str(name) if source.get("chart") or name == SCALE_SET_CHART else None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
