"""Hosts for a test, where this machine can make any."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.hosts import base_layer, namespaces
from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Hosts


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
