"""Rules about AWS resources and hosts. They take plain data and yield text. Only the standard library is imported,
since the policy pack runs in a separate environment."""

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
"""Prefix length below which a network is nearly the whole internet."""

ADMIN_POLICIES = frozenset({"AdministratorAccess", "PowerUserAccess", "IAMFullAccess"})
"""AWS managed policies with all rights of an account (docs.aws.amazon.com, AWS managed policies for job functions)."""


def reachable_metadata(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield instances whose pods can reach the node's credentials. Karpenter's defaults are a hop limit of 1 and
    required tokens (CRD at 1.14.1); AWS's defaults depend on the account."""
    if type_token == NODE_CLASS:
        options, tokens, limit = _map(_map(properties, "spec"), "metadataOptions"), "required", 1
    elif type_token in (LAUNCH_TEMPLATE, INSTANCE):
        options, tokens, limit = _map(properties, "metadataOptions"), None, None
    else:
        return
    if options.get("httpEndpoint") in ("disabled", UNKNOWN):
        return
    if options.get("httpTokens", tokens) not in ("required", UNKNOWN):
        yield "instance metadata does not require a token; set httpTokens: required"
    hops = options.get("httpPutResponseHopLimit", limit)
    if hops is not UNKNOWN and (not isinstance(hops, int | float) or hops > 1):
        limit_text = f"{hops:g}" if isinstance(hops, int | float) else "unknown"
        yield f"instance metadata is reachable from pods (hop limit {limit_text}; use 1)"


def open_endpoints(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield API servers that are open to the internet, as they are by default in AWS."""
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
            yield f"{network} can reach the API server, which is then protected by authentication only; name networks"


def _is_nearly_everybody(network: Any) -> bool:
    bits = network.partition("/")[2] if isinstance(network, str) else ""
    return bits.isdigit() and int(bits) < NEARLY_EVERYBODY


ADMINISTRATION = {22: "SSH", 2379: "etcd", 3389: "RDP", 10250: "the kubelet"}
"""Ports that administer a machine. Port 443 is not among them: a load balancer may be open to all."""


def open_ports(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield security groups that open all ports or administration ports to the internet."""
    if type_token == GROUP:
        rules = _several(properties.get("ingress"))
    elif type_token == INGRESS_RULE or (type_token == GROUP_RULE and properties.get("type") == "ingress"):
        rules = [properties]
    else:
        return
    for rule in rules:
        if isinstance(rule, Mapping) and (ports := _administration(rule)):
            for network in filter(_is_nearly_everybody, _networks(rule)):
                yield f"{network} can reach {ports}; name the networks that require them"


def _networks(rule: Properties) -> Iterator[Any]:
    for key in ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6"):
        yield from _several(rule.get(key))


def _administration(rule: Properties) -> str:
    """Return the administration ports that a rule opens, as text; empty if there are none."""
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
    """Yield unencrypted storage. Buckets and log groups are not checked: AWS always encrypts them."""
    where = _map(properties, "spec") if type_token == NODE_CLASS else properties
    if type_token in (LAUNCH_TEMPLATE, NODE_CLASS):
        for volume in _several(where.get("blockDeviceMappings")):
            if isinstance(volume, Mapping) and "ebs" in volume and not _yes(_map(volume, "ebs").get("encrypted")):
                yield f"volume {volume.get('deviceName')} is not encrypted; set encrypted: true"
    elif type_token in ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem"):
        if not _yes(properties.get("encrypted")):
            yield "it is not encrypted; set encrypted: true"
    elif type_token == "aws:sqs/queue:Queue":
        if not _yes(properties.get("sqsManagedSseEnabled")) and not properties.get("kmsMasterKeyId"):
            yield "its messages are not encrypted; set sqsManagedSseEnabled: true, or specify a key"
    elif type_token == CLUSTER and not properties.get("encryptionConfig"):
        yield "Kubernetes secrets are not encrypted with your own key; specify one in encryptionConfig"
    elif type_token == CLUSTER_COMPONENT and not properties.get("encryptionConfigKeyArn"):
        yield "Kubernetes secrets are not encrypted with your own key; specify one in encryptionConfigKeyArn"


def _yes(value: Any) -> bool:
    """Return whether a value is true. AWS's provider also accepts text."""
    return value in (True, "true") or value is UNKNOWN


def admin_policies(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield bindings and policies with all rights of an account or cluster."""
    kind = type_token.rpartition(":")[2]
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        if _map(properties, "roleRef").get("name") == "cluster-admin":
            yield "it grants all rights in the cluster; bind a role with the required rights"
    elif type_token.startswith("aws:iam/"):
        arns = [properties.get("policyArn"), *_several(properties.get("managedPolicyArns"))]
        for arn in arns:
            if isinstance(arn, str) and arn.rpartition("/")[2] in ADMIN_POLICIES:
                yield f"{arn.rpartition('/')[2]} grants all rights in the account; use a narrower policy"
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
    """Yield commands that install NVIDIA's container toolkit without pinning its version. A hold prevents `apt
    upgrade`; only a preference also prevents an upgrade as a dependency of another package."""
    if not type_token.startswith("command:"):
        return
    parts = [properties.get(key, "") for key in ("create", "update", "stdin")]
    text = "\n".join(part for part in parts if isinstance(part, str))
    kept = UNKNOWN in parts or ("apt-mark hold" in text and "Pin-Priority" in text)
    if "nvidia-container-toolkit" in text and "install" in text and not kept:
        yield "it installs NVIDIA's container toolkit without pinning its version; hold and pin all four packages"


class _Unknown(dict[str, Any]):
    """An unknown part of a resource; all its values are unknown."""

    def get(self, key: str, default: Any = None) -> Any:
        return UNKNOWN


def _map(value: Properties, key: str) -> Properties:
    found = value.get(key)
    return found if isinstance(found, Mapping) else _Unknown() if found is UNKNOWN else {}


def _several(value: Any) -> list[Any]:
    """Return a value, which may be one item or a list, as a list."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
