"""Fixtures of the tests on hosts."""

from tests.components.conftest import document_003
from tests.hosts.fixtures import host_layer, hosts, repository, toolkit_packages

__all__ = ["document_003", "host_layer", "hosts", "repository", "toolkit_packages"]
