"""Hosts for a test, where this machine can make any."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.hosts import base_layer, namespaces, package_repository
from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Hosts
from tests.hosts.package_repository import PackageRepository


@pytest.fixture(scope="session")
def host_layer(tmp_path_factory: pytest.TempPathFactory) -> BaseLayer:
    """What all hosts of this test process start from; made once, in some seconds."""
    lacks = namespaces.missing() + base_layer.missing()
    if lacks:
        pytest.skip(f"no hosts on this machine: it lacks {', '.join(lacks)}")
    return base_layer.make(tmp_path_factory.mktemp("hosts") / "base")


@pytest.fixture
def hosts(host_layer: BaseLayer, tmp_path: pathlib.Path) -> Iterator[Hosts]:
    """A network without hosts yet: `hosts.start("node-1")`. All end with the test."""
    with Hosts(tmp_path / "hosts", host_layer) as made:
        yield made


@pytest.fixture(scope="session")
def toolkit_packages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Files of a repository with the container toolkit at 1.17.8-1 and at 1.20.0-1."""
    if lacks := package_repository.missing():
        pytest.skip(f"no package repository on this machine: it lacks {', '.join(lacks)}")
    folder = tmp_path_factory.mktemp("packages")
    package_repository.make(folder, ("1.17.8-1", "1.20.0-1"))
    return folder


@pytest.fixture
def repository(hosts: Hosts, toolkit_packages: pathlib.Path) -> Iterator[PackageRepository]:
    """That repository, where hosts reach it."""
    with package_repository.served(toolkit_packages, hosts.machine_address) as serving:
        yield serving
