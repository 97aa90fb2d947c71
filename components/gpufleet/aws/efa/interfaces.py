"""EFA interfaces of a node: their resource name, and their layout on network cards."""

from __future__ import annotations

from typing import Any

EFA = "vpc.amazonaws.com/efa"
"""Resource name of an EFA interface. If a pod requests it, Karpenter starts a node with all EFA interfaces of its
instance type (pkg/providers/launchtemplate/launchtemplate.go of aws/karpenter-provider-aws at v1.14.1)."""

EFA_LABEL = "vpc.amazonaws.com/efa.present"
"""Label of nodes on which the device plugin runs."""


def network_interfaces(efa_only: int) -> list[dict[str, Any]]:
    """Return the network interfaces of a node with EFA-only interfaces, which need no IP address.

    The primary interface is an ordinary one, with an EFA-only interface beside it on the first network card. Each
    further card has an EFA-only interface (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html).
    """
    primary = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    others = [
        {"networkCardIndex": card, "deviceIndex": 0 if card else 1, "interfaceType": "efa-only"}
        for card in range(efa_only)
    ]
    return [primary, *others]
