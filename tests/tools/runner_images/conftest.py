"""A server that simulates a registry and GitHub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.runner_images.servers import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own."""
    with serving() as running:
        yield running
