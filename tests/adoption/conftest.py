"""The environments of an adopter, made once for all tests, and projects of theirs."""

from __future__ import annotations

import pathlib

import pytest

from tests.adoption.environments import Environment, built_wheel, environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of this checkout."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def adopter(tmp_path_factory: pytest.TempPathFactory, wheel: pathlib.Path) -> Environment:
    """An environment with the wheel alone."""
    return environment(tmp_path_factory.mktemp("adopter"), wheel)


@pytest.fixture(scope="session")
def adopter_with_sandbox(tmp_path_factory: pytest.TempPathFactory, wheel: pathlib.Path) -> Environment:
    """An environment with the wheel and what its sandbox needs."""
    return environment(tmp_path_factory.mktemp("sandbox"), wheel, "[sandbox]")
