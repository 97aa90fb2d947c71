"""Reusable Pulumi components for GPU CI clusters.

One package for each area: `gpufleet.arc`, `gpufleet.aws`, `gpufleet.bare_metal`, `gpufleet.nvidia` and `gpufleet.amd`.
The public names are those in each package's `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
