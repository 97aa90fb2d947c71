"""Public files that tests of components compare with, where they lie beside the repository."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet_tools.plan.plan import Release
from tests.karpenter_module import karpenter_file

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"

Keys = tuple[str, ...]


class ChartValues:
    """A chart's file of default values, with what is commented out in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.keys = frozenset(_keys(text))

    @property
    def defaults(self) -> dict[str, Any]:
        """What holds where nothing is given."""
        return dict(yaml.safe_load(self.text))

    def unknown(self, values: object, *, free: tuple[Keys, ...] = ()) -> list[Keys]:
        """Paths in the values that the file does not have. What lies below a path of `free` is not looked at."""
        return [path for path in _paths(values, (), free) if path not in self.keys]

    def commented_out(self, key: str) -> object:
        """The value that a comment gives to a top-level key."""
        _, _, rest = self.text.partition(f"\n# {key}:\n")
        lines = []
        for line in rest.splitlines():
            if not line.startswith("# "):
                break
            lines.append(line.removeprefix("# "))
        return yaml.safe_load("\n".join(lines))


def _keys(text: str) -> set[Keys]:
    """Every key of the file by its path, derived from indentation; `# ` before a key counts for nothing."""
    found: set[Keys] = set()
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.match(r"(\s*)(?:# )?(\s*)([A-Za-z_][\w-]*):(\s|$)", line)
        if not match:
            continue
        indent = len(match[1]) + len(match[2])
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, match[3]))
        found.add(tuple(key for _, key in above))
    return found


def _paths(value: object, path: Keys, free: tuple[Keys, ...]) -> list[Keys]:
    if path in free or not isinstance(value, dict):
        return []
    return [found for key, below in value.items() for found in [(*path, key), *_paths(below, (*path, key), free)]]


def _shared(folder: str, pattern: str) -> str:
    files = sorted((SHARED / folder).glob(pattern))
    if not files:
        pytest.skip(f"no {pattern} in {folder} of a folder 'shared' beside the repository")
    return files[0].read_text()


@pytest.fixture
def document_000() -> str:
    """The description of the MI300 cluster on bare metal."""
    return _shared("seeds", "000_*.txt")


@pytest.fixture
def document_002() -> str:
    """The description of the pytorch 2-GPU scale set."""
    return _shared("seeds", "002_*.txt")


@pytest.fixture
def document_003() -> str:
    """The description of GPU runners on hosts with a pinned container toolkit."""
    return _shared("seeds", "003_*.txt")


@pytest.fixture
def document_004() -> str:
    """The description of the EKS cluster with Karpenter and NVIDIA GPUs."""
    return _shared("seeds", "004_*.txt")


@pytest.fixture
def scale_set_chart() -> ChartValues:
    """Default values of the pinned scale-set chart."""
    return ChartValues(_shared("data/charts", "gha-runner-scale-set-0.14.2.values.yaml"))


@pytest.fixture
def controller_chart() -> ChartValues:
    """Default values of the pinned controller chart."""
    return ChartValues(_shared("data/charts", "gha-runner-scale-set-controller-0.14.2.values.yaml"))


@pytest.fixture
def karpenter_chart() -> ChartValues:
    """Default values of the pinned Karpenter chart."""
    return ChartValues(karpenter_file("charts/karpenter/values.yaml").read_text())


@pytest.fixture
def device_plugin_chart() -> ChartValues:
    """Default values of the pinned NVIDIA device plugin chart."""
    return ChartValues(_shared("data/charts", "nvidia-device-plugin-0.20.0.values.yaml"))


@pytest.fixture
def gpu_operator_chart() -> ChartValues:
    """Default values of the pinned GPU operator chart."""
    return ChartValues(_shared("data/charts", "nvidia-gpu-operator-v26.7.0.values.yaml"))


@pytest.fixture
def render() -> Callable[[Release], list[dict[str, Any]]]:
    """What the real Helm makes of a release, from a chart on disk."""
    folder = os.environ.get("GPUFLEET_CHARTS")
    if not folder:
        pytest.skip("GPUFLEET_CHARTS names no folder with charts, <name>-<version>.tgz")
    helm = shutil.which("helm")
    if not helm:
        pytest.skip("no helm on PATH")

    def rendered(release: Release) -> list[dict[str, Any]]:
        name = release.chart.split("/")[-1].removesuffix(".tgz").removesuffix(f"-{release.version}")
        chart = pathlib.Path(folder) / f"{name}-{release.version}.tgz"
        if not chart.is_file():
            pytest.skip(f"GPUFLEET_CHARTS has no {chart.name}")
        done = subprocess.run(
            [helm, "template", release.name, str(chart), "--namespace", release.namespace, "--values", "-"],
            input=json.dumps(release.values),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]

    return rendered
