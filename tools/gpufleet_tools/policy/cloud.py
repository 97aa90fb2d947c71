"""Rules about AWS and about hosts, on what a program registers. Plain data in, text out; only the standard library,
since the policy pack runs them in an environment of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet_tools.plan.plan import UNKNOWN
from gpufleet_tools.policy.pods import Properties

LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
CLUSTER = "aws:eks/cluster:Cluster"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
GROUP_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
CLUSTER_COMPONENT = "eks:index:Cluster"

NEARLY_EVERYBODY = 8
"""Bits of a network's prefix below which it is nearly the whole internet."""

ADMIN_POLICIES = frozenset({"AdministratorAccess", "PowerUserAccess", "IAMFullAccess"})
"""Policies of AWS's own that give an account away (docs.aws.amazon.com, AWS managed policies for job functions)."""


def reachable_metadata(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Instances whose pods reach the node's own credentials. Left out, Karpenter writes a limit of 1 and required
    tokens (defaults of the CRD at 1.14.1); AWS leaves both to the account."""
    if type_token == NODE_CLASS:
        options, tokens, limit = _map(_map(properties, "spec"), "metadataOptions"), "required", 1
    elif type_token in (LAUNCH_TEMPLATE, INSTANCE):
        options, tokens, limit = _map(properties, "metadataOptions"), None, None
    else:
        return
    if options.get("httpEndpoint") in ("disabled", UNKNOWN):
        return
    if options.get("httpTokens", tokens) not in ("required", UNKNOWN):
        yield "metadata answers without a token; write httpTokens: required"
    hops = options.get("httpPutResponseHopLimit", limit)
    if hops is not UNKNOWN and (not isinstance(hops, int | float) or hops > 1):
        yield f"pods reach the node's credentials: its metadata goes {_said(hops)} network hops far; write 1"


def _said(hops: Any) -> str:
    return f"{hops:g}" if isinstance(hops, int | float) else "who knows how many"


def open_endpoints(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """API servers that nearly everybody reaches. AWS's default is a public endpoint, open to all."""
    if type_token == CLUSTER:
        access = _map(properties, "vpcConfig")
    elif type_token == CLUSTER_COMPONENT:
        access = properties
    else:
        return
    if access.get("endpointPublicAccess", True) not in (True, "true"):
        return
    for network in _several(access.get("publicAccessCidrs") or "0.0.0.0/0"):
        if _is_nearly_everybody(network):
            yield f"{network} reaches the API server: its own authentication is all that is left; name networks"


def _is_nearly_everybody(network: Any) -> bool:
    bits = network.partition("/")[2] if isinstance(network, str) else ""
    return bits.isdigit() and int(bits) < NEARLY_EVERYBODY


ADMINISTRATION = {22: "SSH", 2379: "etcd", 3389: "RDP", 10250: "the kubelet"}
"""Ports that administer a machine. Port 443 is not among them: a load balancer may serve it to all."""


def open_ports(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Security groups that admit nearly everybody to ports that administer a machine, or to all."""
    if type_token == GROUP:
        rules = _several(properties.get("ingress"))
    elif type_token == INGRESS_RULE or (type_token == GROUP_RULE and properties.get("type") == "ingress"):
        rules = [properties]
    else:
        return
    for rule in rules:
        if isinstance(rule, Mapping) and (ports := _administration(rule)):
            for network in filter(_is_nearly_everybody, _networks(rule)):
                yield f"{network} reaches {ports}; name the networks that need them"


def _networks(rule: Properties) -> Iterator[Any]:
    for key in ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6"):
        yield from _several(rule.get(key))


def _administration(rule: Properties) -> str:
    """What a rule admits to: in words, empty where it is nothing that administers a machine."""
    protocol = rule.get("protocol", rule.get("ipProtocol"))
    first, last = rule.get("fromPort"), rule.get("toPort")
    if str(protocol) in ("-1", "all"):
        return "all ports"
    if protocol is UNKNOWN or not isinstance(first, int | float) or not isinstance(last, int | float):
        return ""
    if first <= 1 and last >= 65535:
        return "all ports"
    found = [f"port {port} ({use})" for port, use in ADMINISTRATION.items() if first <= port <= last]
    return ", ".join(found) if str(protocol) in ("tcp", "6") else ""


def unencrypted(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """What lies on a disk as it is. Buckets and log groups are left out: AWS encrypts them whatever one writes."""
    where = _map(properties, "spec") if type_token == NODE_CLASS else properties
    if type_token in (LAUNCH_TEMPLATE, NODE_CLASS):
        for volume in _several(where.get("blockDeviceMappings")):
            if isinstance(volume, Mapping) and "ebs" in volume and not _yes(_map(volume, "ebs").get("encrypted")):
                yield f"volume {volume.get('deviceName')} is not encrypted; write encrypted: true"
    elif type_token in ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem"):
        if not _yes(properties.get("encrypted")):
            yield "it is not encrypted; write encrypted: true"
    elif type_token == "aws:sqs/queue:Queue":
        if not _yes(properties.get("sqsManagedSseEnabled")) and not properties.get("kmsMasterKeyId"):
            yield "its messages are not encrypted; write sqsManagedSseEnabled: true, or name a key"
    elif type_token == CLUSTER and not properties.get("encryptionConfig"):
        yield "Kubernetes secrets are encrypted with no key of yours; name one in encryptionConfig"
    elif type_token == CLUSTER_COMPONENT and not properties.get("encryptionConfigKeyArn"):
        yield "Kubernetes secrets are encrypted with no key of yours; name one in encryptionConfigKeyArn"


def _yes(value: Any) -> bool:
    """AWS's provider takes some truths as text."""
    return value in (True, "true") or value is UNKNOWN


def admin_policies(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Rights over a whole account or cluster."""
    kind = type_token.rpartition(":")[2]
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        if _map(properties, "roleRef").get("name") == "cluster-admin":
            yield "it gives the whole cluster away; bind a role with what is needed"
    elif type_token.startswith("aws:iam/"):
        arns = [properties.get("policyArn"), *_several(properties.get("managedPolicyArns"))]
        for arn in arns:
            if isinstance(arn, str) and arn.rpartition("/")[2] in ADMIN_POLICIES:
                yield f"{arn.rpartition('/')[2]} gives the account away; write a policy with what is needed"
        policies = _several(properties.get("inlinePolicies"))
        inline = [each.get("policy") for each in policies if isinstance(each, Mapping)]
        for document in [properties.get("policy"), *inline]:
            if _gives_all(document):
                yield "its policy allows every action on everything; name actions and resources"


def _gives_all(document: Any) -> bool:
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return False
    statements = document.get("Statement", ()) if isinstance(document, Mapping) else ()
    return any(
        statement.get("Effect") == "Allow"
        and {"*", "*:*", "iam:*"} & {*_several(statement.get("Action"))}
        and "*" in _several(statement.get("Resource"))
        for statement in _several(statements)
        if isinstance(statement, Mapping)
    )


def unheld_toolkits(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Commands that install NVIDIA's container toolkit and leave its version to the next upgrade: a hold keeps `apt
    upgrade` from it, and only a preference also keeps a dependency of another package from it."""
    if not type_token.startswith("command:"):
        return
    parts = [properties.get(key, "") for key in ("create", "update", "stdin")]
    text = "\n".join(part for part in parts if isinstance(part, str))
    kept = UNKNOWN in parts or ("apt-mark hold" in text and "Pin-Priority" in text)
    if "nvidia-container-toolkit" in text and "install" in text and not kept:
        yield "it installs NVIDIA's container toolkit and does not keep its version: hold and pin all four packages"


class _Unknown(dict[str, Any]):
    """A part of a resource that is not known yet: whatever it is asked for is not known either."""

    def get(self, key: str, default: Any = None) -> Any:
        return UNKNOWN


def _map(value: Properties, key: str) -> Properties:
    found = value.get(key)
    return found if isinstance(found, Mapping) else _Unknown() if found is UNKNOWN else {}


def _several(value: Any) -> list[Any]:
    """Where AWS takes one or a list of them."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
