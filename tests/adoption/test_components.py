"""Adoption of components alone: the README's program, with nothing but the wheel, beside folders of the same names."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.adoption import ci_fleet
from tests.adoption.environments import Environment
from tests.test_program import COMPOSED, RECORD

pytestmark = pytest.mark.install


def test_a_scale_set_in_a_program_of_theirs(adopter: Environment, tmp_path: pathlib.Path) -> None:
    folder = ci_fleet.written(tmp_path)
    (folder / "__main__.py").write_text(f"import components, stacks\n{COMPOSED}")
    ended = adopter.run("python", "-c", RECORD, cwd=folder)
    assert ended.err == ""
    recorded = json.loads(ended.out)
    assert ["gpu-runners:index:RunnerScaleSet", "theirs"] in recorded["resources"]
    assert recorded["exports"] == {"label": "their-gpus"}
    assert recorded["stacks"] == []


@pytest.mark.parametrize("area", ["amd", "arc", "aws", "bare_metal", "nvidia"])
def test_every_public_name_is_in_the_wheel(area: str, adopter: Environment, tmp_path: pathlib.Path) -> None:
    program = (
        f"import gpufleet.{area} as area, pathlib\n"
        "assert area.__all__ and all(hasattr(area, name) for name in area.__all__)\n"
        "assert pathlib.Path(area.__file__).with_suffix('.pyi').is_file()\n"
        "print(area.__file__)\n"
    )
    ended = adopter.run("python", "-c", program, cwd=tmp_path)
    assert ended.err == ""
    assert pathlib.Path(ended.out.strip()).is_relative_to(adopter.folder)
