"""Who imports whom: components <- stacks <- tools, no circle of modules, and private modules stay in their area."""

from __future__ import annotations

import ast
import functools
import graphlib
import pathlib

import pytest

from tests.conftest import PACKAGES, ROOT

ALLOWED = {
    "gpufleet": {"gpufleet"},
    "gpufleet_stacks": {"gpufleet", "gpufleet_stacks"},
    "gpufleet_tools": {"gpufleet", "gpufleet_stacks", "gpufleet_tools"},
}
"""Packages that each package may import."""

MOST = 12
"""Python files in one folder; a reader has to find one by its name."""


def module_of(file: pathlib.Path, root: pathlib.Path) -> str:
    """The name under which a file is imported."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file, folder.parent): file for folder in PACKAGES for file in sorted(folder.rglob("*.py"))}
"""Every module of this project."""


@functools.cache
def imports(source: str) -> set[str]:
    """Modules that a source imports, wherever in it. `from a import b` imports a, and a.b where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides what is imported"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # What a package's own file has is not imported with a module of it.
            found |= {name for name in names if name in FILES} or {str(node.module)}
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_arrows_point_one_way(package: str) -> None:
    ours = {*ALLOWED, "tests"}
    for module, file in FILES.items():
        if module.split(".")[0] == package:
            wrong = {name for name in imports(file.read_text()) if name.split(".")[0] in ours - ALLOWED[package]}
            assert not wrong, f"{file.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_bare_metal_and_arc_never_import_aws() -> None:
    for module, file in FILES.items():
        if module.startswith("gpufleet.") and not module.startswith("gpufleet.aws"):
            wrong = {name for name in imports(file.read_text()) if name.startswith(("gpufleet.aws", "pulumi_aws"))}
            assert not wrong, f"{module} imports {', '.join(sorted(wrong))}"


def test_no_circle() -> None:
    """Imports inside functions and for type checkers count: what they hide is a circle all the same."""
    graph = {module: imports(file.read_text()) & FILES.keys() - {module} for module, file in FILES.items()}
    assert [*graphlib.TopologicalSorter(graph).static_order()]


def test_private_modules_stay_in_their_area() -> None:
    for module, file in FILES.items():
        for name in imports(file.read_text()) & FILES.keys():
            parts = name.split(".")
            private = next((index for index, part in enumerate(parts) if part.startswith("_")), None)
            # A private module of `gpufleet.aws.eks` is for all of `gpufleet.aws`.
            area = ".".join(parts[: min(private, 2)]) if private else ""
            assert module.startswith(area), f"{module} imports the private {name}"


def test_a_folder_can_be_read_at_a_glance() -> None:
    for folder in {file.parent for file in FILES.values()}:
        files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
        assert len(files) <= MOST, f"{folder.relative_to(ROOT)} has {len(files)} files: divide it"


def test_every_module_says_what_it_is() -> None:
    for module, file in FILES.items():
        assert ast.get_docstring(ast.parse(file.read_text())), f"{module} has no docstring"


def test_an_import_inside_a_function_counts() -> None:
    found = imports("def f():\n    from gpufleet_stacks.settings import load\n    import tests.recording, json\n")
    assert found == {"gpufleet_stacks.settings.load", "tests.recording", "json"}
