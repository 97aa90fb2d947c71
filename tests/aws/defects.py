"""Defects that checks of AWS inputs are tried on: what is wrong, where, and which of the checks find it.

The list is by the same hand as some of the checks. Read it as a map of who looks where; it is no rate of detection.
"""

from __future__ import annotations

from tests.aws.defect import Defect, given, lacking
from tests.aws.eks_defects import EKS_DEFECTS
from tests.aws.iam_defects import IAM_DEFECTS
from tests.aws.network_defects import NETWORK_DEFECTS
from tests.aws.service_defects import SERVICE_DEFECTS

DEFECTS = [*EKS_DEFECTS, *NETWORK_DEFECTS, *IAM_DEFECTS, *SERVICE_DEFECTS]
"""What is injected into the program of resources, one at a time."""

OF_COMPONENTS = [
    # Inputs of an opaque cluster.
    Defect(
        "a cluster in one zone",
        "Cluster",
        "ci",
        given("privateSubnetIds", ["<<Subnet.network-private-eu-west-1a:id>>"]),
        ("rules",),
    ),
    Defect(
        "the nodes' role for the cluster",
        "Cluster",
        "ci",
        given("serviceRole", "<<Role.ci-node-role:id>>"),
        ("SDK", "verdicts"),
    ),
    Defect("an argument that there is not", "Cluster", "ci", given("authMode", "API"), ("SDK",)),
    Defect("a mode of access that there is not", "Cluster", "ci", given("authenticationMode", "APII"), ("SDK",)),
    # What else is elsewhere than in the program of resources.
    Defect(
        "the nodes' role for a driver",
        "Addon",
        "ci-aws-ebs-csi-driver",
        given("podIdentityAssociations.0.roleArn", "<<Role.ci-node-role:arn>>"),
        ("verdicts",),
    ),
    Defect("no tag to be found by", "SecurityGroup", "ci-nodes", lacking("tags"), ("rules", "packets")),
    Defect(
        "system nodes in the control plane's group",
        "LaunchTemplate",
        "ci-system-nodes",
        given("vpcSecurityGroupIds", ["<<SecurityGroup.ci-control-plane:id>>"]),
        ("packets",),
    ),
    Defect("no way out", "Route", "network-private-eu-west-1b-route", None, ("account",)),
]
"""What is injected into the program of components: the checks look there too."""
