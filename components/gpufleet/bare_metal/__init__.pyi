"""Machines reached over SSH: kubespray clusters, the NVIDIA container toolkit, and preflight checks. Never imports
AWS's SDK."""

from .container_toolkit import Advisory as Advisory
from .container_toolkit import NvidiaContainerToolkit as NvidiaContainerToolkit
from .container_toolkit import NvidiaContainerToolkitArgs as NvidiaContainerToolkitArgs
from .etcd_snapshots import EtcdSnapshots as EtcdSnapshots
from .etcd_snapshots import EtcdSnapshotsArgs as EtcdSnapshotsArgs
from .etcd_snapshots import SnapshotBucket as SnapshotBucket
from .etcd_snapshots import SnapshotFolder as SnapshotFolder
from .kubespray.args import Calico as Calico
from .kubespray.args import ImageGc as ImageGc
from .kubespray.args import Kubespray as Kubespray
from .kubespray.args import KubesprayClusterArgs as KubesprayClusterArgs
from .kubespray.args import KubesprayNode as KubesprayNode
from .kubespray.args import KubesprayRunner as KubesprayRunner
from .kubespray.args import Mirrors as Mirrors
from .kubespray.args import NvidiaRuntime as NvidiaRuntime
from .kubespray.cluster import KubesprayCluster as KubesprayCluster
from .preflight.facts import HostFacts as HostFacts
from .preflight.needs import GpuNeeds as GpuNeeds
from .preflight.needs import HostNeeds as HostNeeds
from .ssh import SshHost as SshHost
from .ssh import SshLogin as SshLogin
