"""Fixtures of the tests on hosts."""

from tests.hosts.fixtures import host_layer, hosts, repository, toolkit_packages

__all__ = ["host_layer", "hosts", "repository", "toolkit_packages"]
