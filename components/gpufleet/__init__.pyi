"""Reusable Pulumi components for GPU CI clusters.

One package for each area: `gpufleet.arc`, `gpufleet.aws`, `gpufleet.bare_metal`, `gpufleet.nvidia` and `gpufleet.amd`.
The public names are those in each package's `__init__.pyi`.
"""

from .gpu_validation import ExpectedGpus as ExpectedGpus
from .gpu_validation import GpuValidation as GpuValidation
from .problem import InvalidArguments as InvalidArguments
from .problem import Problem as Problem
from .taint import Taint as Taint
