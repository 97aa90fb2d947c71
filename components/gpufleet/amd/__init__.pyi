"""AMD device plugin and node labeller."""

from .device_plugin import AmdGpuDevicePlugin as AmdGpuDevicePlugin
from .device_plugin import AmdGpuDevicePluginArgs as AmdGpuDevicePluginArgs
