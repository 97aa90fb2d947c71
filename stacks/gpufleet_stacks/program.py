"""The Pulumi program: creates the components that the stack's settings describe."""

from __future__ import annotations

import pathlib

import pulumi

from gpufleet_stacks.fleet import Fleet
from gpufleet_stacks.settings import load


def run() -> Fleet:
    """Register every resource of the running stack, and return its components.

    The settings come from the engine's configuration. The stack file, `Pulumi.<stack>.yaml` in the project's folder,
    only provides line numbers for messages.

    Raise pulumi.RunError with one line for each problem of the settings.
    """
    settings = load.from_engine(pathlib.Path(pulumi.get_root_directory()))
    # Import only the SDKs of this kind of cluster: imports take most of a preview's time.
    if settings.cluster.kind == "eks":
        from gpufleet_stacks import eks
        from gpufleet_stacks.settings.models.eks import EksSettings

        assert isinstance(settings, EksSettings)
        return eks.build(settings)
    from gpufleet_stacks import bare_metal
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings

    assert isinstance(settings, BareMetalSettings)
    return bare_metal.build(settings)
