"""One control plane for all tests of the sandbox, in a state directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane


@pytest.fixture(scope="session")
def built() -> binaries.Binaries:
    """The real programs, from this user's cache; built when missing, which takes minutes once."""
    return binaries.find()


@pytest.fixture(scope="session")
def control_plane(built: binaries.Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane; a test that harms it leaves it running."""
    shared = ControlPlane("shared", tmp_path_factory.mktemp("state") / "gpufleet" / "shared", built)
    shared.up()
    yield shared
    shared.down()


@pytest.fixture
def kubeconfig(control_plane: ControlPlane) -> Path:
    """The kubeconfig of the shared control plane, which is running."""
    control_plane.up()
    return control_plane.kubeconfig
