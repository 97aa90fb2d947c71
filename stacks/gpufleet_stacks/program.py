"""The Pulumi program: the settings of the stack that is running, turned into components."""

from __future__ import annotations

import pathlib

import pulumi

from gpufleet_stacks.fleet import Fleet
from gpufleet_stacks.settings import load


def run() -> Fleet:
    """Register every resource of the running stack, and return its components.

    The settings are the engine's configuration of the stack. Its file, `Pulumi.<stack>.yaml` in the project's folder,
    gives the line numbers of messages.

    Raises pulumi.RunError with every problem of the settings, one a line.
    """
    settings = load.from_engine(pathlib.Path(pulumi.get_root_directory()))
    # One kind of cluster is imported: the SDKs take most of the time of a preview.
    if settings.cluster.kind == "eks":
        from gpufleet_stacks import eks
        from gpufleet_stacks.settings.models.eks import EksSettings

        assert isinstance(settings, EksSettings)
        return eks.build(settings)
    from gpufleet_stacks import bare_metal
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings

    assert isinstance(settings, BareMetalSettings)
    return bare_metal.build(settings)
