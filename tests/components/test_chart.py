"""Where charts come from."""

from __future__ import annotations

import pytest

from gpufleet.chart import Chart

CHART = {"name": "nginx", "registry": "oci://ghcr.io/org/charts", "version": "1.2.3"}


def repository(chart: Chart) -> object:
    return chart.repository and chart.repository.repo


@pytest.mark.parametrize(
    ("mirror", "reference", "repo"),
    [
        (None, "oci://ghcr.io/org/charts/nginx", None),
        ("oci://registry.example/mirror", "oci://registry.example/mirror/nginx", None),
        ("oci://registry.example/mirror/", "oci://registry.example/mirror/nginx", None),
        ("https://charts.example/stable", "nginx", "https://charts.example/stable"),
        ("https://charts.example/stable/", "nginx", "https://charts.example/stable"),
        ("http://charts.internal", "nginx", "http://charts.internal"),
        ("/srv/charts", "/srv/charts/nginx-1.2.3.tgz", None),
        ("/srv/charts/", "/srv/charts/nginx-1.2.3.tgz", None),
    ],
)
def test_a_chart_is_found(mirror: str | None, reference: str, repo: str | None) -> None:
    chart = Chart(**CHART, mirror=mirror)
    assert chart.reference == reference
    assert repository(chart) == repo


def test_the_version_is_in_the_files_name() -> None:
    """A folder holds one file for each version: another version is another file, never a silent stand-in."""
    chart = Chart(name="nginx", registry="oci://ghcr.io/org/charts", version="1.2.4", mirror="/srv/charts")
    assert chart.reference == "/srv/charts/nginx-1.2.4.tgz"
