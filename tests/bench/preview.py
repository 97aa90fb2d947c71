"""`gpufleet preview` and `gpufleet check`, beside what importing the SDK takes by itself."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.bench.fleets import ROOT, project
from tests.bench.timing import in_turn, median, ratio

GPUFLEET = str(pathlib.Path(sys.executable).with_name("gpufleet"))

FLOOR = """
import gc
gc.disable()
import pulumi, pulumi_kubernetes
{}
import os
os._exit(0)
"""
"""What a program imports of the SDK, imported as a program does; as in the command without garbage collection and
without an orderly end."""

MODULES = {
    "mi300": """
from pulumi_command import Provider
from pulumi_command.local import Command
from pulumi_command.remote import Command
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import ClusterRole
""",
    "dev": """
import pulumi_eks
from pulumi_aws import Provider
from pulumi_aws.cloudwatch import LogGroup
from pulumi_aws.ec2 import Vpc
from pulumi_aws.eks import AccessEntry
from pulumi_aws.iam import Role
from pulumi_aws.kms import Key
from pulumi_aws.sqs import Queue
from pulumi_aws.vpc import SecurityGroupIngressRule
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.node.v1 import RuntimeClass
""",
}
"""By stack, the modules of the SDK that its program uses."""


def measure(*, smallest: bool = False) -> None:
    """Prints the ratios to the import floors, and the curve from 1 to 1,000 runners."""
    console = Console(highlight=False)
    for stack, modules in MODULES.items():
        commands = {
            "imports alone": [sys.executable, "-c", FLOOR.format(modules)],
            "check": [GPUFLEET, "-C", str(ROOT), "check", stack],
            "preview": [GPUFLEET, "-C", str(ROOT), "preview", stack],
        }
        runs = in_turn(commands, rounds=1 if smallest else 7)
        table = Table("", "seconds", "x imports (at most 1.5)", title=f"offline commands, {stack}", box=None)
        for name in commands:
            against = f"{ratio(runs[name], runs['imports alone']):.2f}"
            table.add_row(name, f"{median(runs[name]):.2f}", against)
        console.print(table)

    table = Table("runners", "seconds (at most 5)", "MiB (at most 400)", title="preview, by runners", box=None)
    with tempfile.TemporaryDirectory() as folder:
        for count in (1,) if smallest else (1, 10, 100, 1000):
            fleet = project(pathlib.Path(folder, str(count)), runners=count)
            measured = in_turn(
                {"preview": [GPUFLEET, "-C", str(fleet), "preview", "mi300"]}, rounds=1 if smallest else 3
            )["preview"]
            table.add_row(str(count), f"{median(measured):.2f}", f"{max(one.mebibytes for one in measured):.0f}")
    console.print(table)
