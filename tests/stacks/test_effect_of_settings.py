"""Every setting of a cluster on EKS reaches the program: a change of it alone changes what is registered."""

from __future__ import annotations

import functools
import pathlib
import shutil

import pytest

from gpufleet_stacks.settings import schema
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.diff.settings.table import SETTINGS
from gpufleet_tools.plan.stack import Stack
from tests.conftest import ROOT
from tests.tools.diff.test_settings import changed_alone, documents, loaded

pytestmark = pytest.mark.slow

EVERY = "eks-every-setting.ok.yaml"

READ_BY_COMMANDS = {"cluster.nodePools.<pool>.overcommit"}
"""Settings without an effect on the program."""


def of_eks() -> list[str]:
    """Rows of the settings of a cluster on EKS and its plugins."""
    tidy = schema._tidy(EksSettings.model_json_schema())
    paths = {setting.path for setting in schema._rows("", tidy, tidy["$defs"], "required")}
    sections = ("cluster.", "nvidiaPlugin.", "efaPlugin.")
    return sorted(path for path in paths if path.startswith(sections) and path in SETTINGS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    for name in ("stacks", "components"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def registered(stack: Stack) -> list[str]:
    return [repr(each) for each in stack.plan().resources]


@functools.cache
def registered_before(root: pathlib.Path) -> list[str]:
    return registered(loaded(documents()[EVERY], root))


@pytest.mark.parametrize("path", of_eks())
def test_a_change_of_it_changes_the_program(path: str, root: pathlib.Path) -> None:
    found = changed_alone(path, root, [EVERY])
    if found is None:
        pytest.skip("no guess of another value is valid by itself")
    _, head = found
    assert (registered(head) != registered_before(root)) == (path not in READ_BY_COMMANDS)
