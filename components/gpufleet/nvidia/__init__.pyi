"""NVIDIA device plugin, GPU operator and GPU sharing."""

from .device_plugin import NvidiaDevicePlugin as NvidiaDevicePlugin
from .device_plugin import NvidiaDevicePluginArgs as NvidiaDevicePluginArgs
from .gpu_operator import NvidiaGpuOperator as NvidiaGpuOperator
from .gpu_operator import NvidiaGpuOperatorArgs as NvidiaGpuOperatorArgs
from .sharing import Mig as Mig
from .sharing import Mps as Mps
from .sharing import TimeSlicing as TimeSlicing
