"""Fixtures of the tests on hosts."""

from tests.hosts.fixtures import host_layer, hosts

__all__ = ["host_layer", "hosts"]
