"""`gpufleet diff` in a project of somebody else's: what changes for them, by their hand or with gpufleet."""

from __future__ import annotations

import pathlib

import pytest

from tests.adoption import ci_fleet
from tests.adoption.environments import Environment, built_wheel
from tests.conftest import Outcome

pytestmark = pytest.mark.install

OLD, NEW = "0.0.8", "0.0.9"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with two other versions, as an index has them; the newer one has another default."""
    folder = tmp_path_factory.mktemp("index")
    edit = (
        "components/gpufleet/arc/scale_set_args.py",
        "runner_releases.known().default.image",
        '"example.test/runner:new"',
    )
    for wheel in (built_wheel(folder, OLD), built_wheel(folder, NEW, edit)):
        wheel.rename(folder / wheel.name)
    return folder


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """The project, committed once."""
    folder = ci_fleet.written(tmp_path / "ci-fleet")
    ci_fleet.committed(folder)
    return folder


def diff(adopter: Environment, project: pathlib.Path, *arguments: str, index: pathlib.Path | None = None) -> Outcome:
    """`gpufleet diff` of the last commit, with packages from a folder alone."""
    cache = project.parent / "cache"
    offline = {"PIP_NO_INDEX": "1", "XDG_CACHE_HOME": str(cache)} | ({"PIP_FIND_LINKS": str(index)} if index else {})
    return adopter.run("gpufleet", "diff", *(arguments or ["HEAD~1..HEAD"]), cwd=project, more=offline)


def test_a_stack_file_that_changes(adopter: Environment, project: pathlib.Path) -> None:
    ci_fleet.edited(project, "Pulumi.lab.yaml", "max: 4", "max: 5")
    ci_fleet.committed(project)
    inside = diff(adopter, project)
    assert (inside.code, inside.err) == (0, "")
    assert "lab-gpu-1 (lab): max 4 → 5" in inside.out
    outside = adopter.run("gpufleet", "-C", "ci-fleet", "diff", "HEAD~1..HEAD", cwd=project.parent)
    assert outside == inside


def test_their_own_configuration_reaches_their_own_resource(adopter: Environment, project: pathlib.Path) -> None:
    ci_fleet.edited(project, "Pulumi.lab.yaml", "oncall@", "nobody@")
    found = diff(adopter, project, "HEAD")
    assert "ConfigMap alerts replaced: data.to " in found.out
    assert "+  to: nobody@example.test" in found.out


@pytest.mark.parametrize(
    ("file", "before", "after", "shown"),
    [
        ("__main__.py", '{"to": alerts_to()', '{"for": alerts_to()', "+  for: oncall@example.test"),
        ("components/alerts.py", "return ", "return 'mail:' + ", "+  to: mail:oncall@example.test"),
        ("room.txt", "42", "43", "+  room: '43'"),
    ],
)
def test_their_program_changes(
    file: str, before: str, after: str, shown: str, adopter: Environment, project: pathlib.Path
) -> None:
    ci_fleet.edited(project, file, before, after)
    ci_fleet.committed(project)
    found = diff(adopter, project)
    assert (found.code, found.err) == (0, "")
    assert shown in found.out
    assert "ConfigMap alerts replaced" in found.out


def test_a_module_that_registers_when_it_is_imported_does_so_in_every_run(
    adopter: Environment, project: pathlib.Path
) -> None:
    """Both revisions are evaluated in one process, whose second run finds the module imported already."""
    stack = "import pulumi\n\n\nclass Note(pulumi.ComponentResource):\n    pass\n\n\nNote('x:y:Note', 'note')\n"
    (project / "components/note.py").write_text(stack)
    ci_fleet.edited(
        project, "__main__.py", "import pulumi_kubernetes", "import components.note\nimport pulumi_kubernetes"
    )
    ci_fleet.committed(project)
    ci_fleet.edited(project, "Pulumi.lab.yaml", "max: 4", "max: 5")
    found = diff(adopter, project, "HEAD")
    assert "lab: 1 updated\n" in found.out


# -- another version of gpufleet --------------------------------------------------------------------------------------


def pinned(project: pathlib.Path, before: str, after: str) -> None:
    """Two commits, each with its own line in requirements.txt."""
    for line in (before, after):
        (project / "requirements.txt").write_text(f"# What our fleet is made of.\n{line}\n")
        ci_fleet.committed(project)


def assert_new_image(found: Outcome) -> None:
    assert found.err == ""
    assert f"note: gpufleet {OLD} -> {NEW}: each revision was evaluated with the version that it pins" in found.out
    assert "+" in found.out
    assert "example.test/runner:new" in found.out


def test_an_upgrade_is_a_version_number(adopter: Environment, project: pathlib.Path, wheels: pathlib.Path) -> None:
    pinned(project, f"gpufleet=={OLD}", f"gpufleet[sandbox]=={NEW} ; python_version > '3'")
    assert_new_image(diff(adopter, project, index=wheels))
    # What has been installed once is there without an index.
    assert_new_image(diff(adopter, project))


def test_an_upgrade_is_another_wheel(adopter: Environment, project: pathlib.Path, wheels: pathlib.Path) -> None:
    old, new = (wheels / f"gpufleet-{version}-py3-none-any.whl" for version in (OLD, NEW))
    pinned(project, f"gpufleet @ {old.as_uri()}", f"{new.as_uri()}")
    assert_new_image(diff(adopter, project))


def test_the_version_that_is_installed_is_not_fetched(
    adopter: Environment, project: pathlib.Path, wheels: pathlib.Path, wheel: pathlib.Path
) -> None:
    here = wheel.name.split("-")[1]
    pinned(project, f"gpufleet=={OLD}", f"gpufleet=={here}")
    found = diff(adopter, project, index=wheels)
    assert found.err == ""
    assert f"note: gpufleet {OLD} -> {here}: " in found.out
    assert "lab: nothing" in found.out


def test_a_version_that_cannot_be_had(adopter: Environment, project: pathlib.Path) -> None:
    pinned(project, f"gpufleet=={OLD}", f"gpufleet=={NEW}")
    found = diff(adopter, project)
    assert (found.code, found.out) == (2, "")
    assert found.err.count("\n") == 1
    assert f"pins another gpufleet: gpufleet {OLD} cannot be installed: No matching distribution" in found.err


def test_a_hash_that_does_not_fit(adopter: Environment, project: pathlib.Path, wheels: pathlib.Path) -> None:
    pinned(project, f"gpufleet=={OLD} \\\n    --hash=sha256:{'0' * 64}", f"gpufleet=={NEW}")
    found = diff(adopter, project, index=wheels)
    assert (found.code, found.out) == (2, "")
    assert found.err.count("\n") == 1
    assert f"gpufleet {OLD} cannot be installed: " in found.err
