"""What is refused of an EKS cluster, all at once, and what is not."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import replace
from typing import Any

import botocore.loaders
import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.aws import AccessPolicy, ApiEndpoint, ClusterAccess, EksClusterArgs, NetworkReference, SystemNodes
from gpufleet.aws.eks.cluster_args import LogType, SystemAmiType
from gpufleet.aws.eks.cluster_rules import cluster_problems
from tests.components.aws.ec2.test_instance_types import described
from tests.components.aws.eks.test_cluster import ADDONS, CLUSTER, EBS, EVERYTHING, cluster

ROLE = "arn:aws:iam::111122223333:role/operations"


def problems(**args: Any) -> list[str]:
    return [str(problem) for problem in cluster_problems(EksClusterArgs(**(CLUSTER | args)))]


def team(*policies: AccessPolicy) -> dict[str, Any]:
    """A team with these access policies."""
    return {"access": {"ml": ClusterAccess(principal=ROLE, policies=policies)}}


def in_zones(*zones: str) -> NetworkReference:
    return NetworkReference(vpc_id="vpc-1", private_subnets=dict.fromkeys(zones, "subnet-1"), cidr="10.0.0.0/16")


@pytest.mark.parametrize("args", [{}, EVERYTHING], ids=["least", "everything"])
def test_nothing_is_wrong_with_what_other_tests_start_from(args: dict[str, Any]) -> None:
    assert problems(**args) == []


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"cluster_name": ""}, "cluster_name: '' is not valid; use letters, digits"),
        ({"cluster_name": "-ci"}, "cluster_name: '-ci' is not valid; use letters, digits"),
        ({"cluster_name": "ci.example"}, "cluster_name: 'ci.example' is not valid"),
        (
            {"cluster_name": "c" * 47},
            f"cluster_name: {'c' * 47!r} has 47 characters; at most 46 are allowed",
        ),
        ({"account_id": "1111"}, "account_id: '1111' is not an account ID; write 12 digits as text"),
        (
            {"account_id": 111122223333},
            "account_id: 111122223333 is not an account ID; write 12 digits as text",
        ),
        ({"partition": "aws-cn"}, "partition: 'aws-cn' is not the partition of region 'eu-west-1'; use 'aws'"),
        ({"network": in_zones()}, "network.private_subnets: has 0 zones; EKS requires at least 2"),
        ({"network": in_zones("eu-west-1a")}, "network.private_subnets: has 1 zones; EKS requires at least 2"),
        (
            {"network": replace(in_zones("eu-west-1a", "eu-west-1b"), control_plane_zones=["eu-west-1a"])},
            "network.control_plane_zones: has 1 of the 2 zones that EKS requires; list those of the cluster",
        ),
        (
            {"network": in_zones("eu-west-1a", "eu-west-2a")},
            "network.private_subnets.eu-west-2a: 'eu-west-2a' is not a zone of region 'eu-west-1'",
        ),
        ({"kubernetes_version": 1.33}, "kubernetes_version: 1.33 is not a minor version; write it as text"),
        ({"kubernetes_version": "1.33.1"}, "kubernetes_version: '1.33.1' is not a minor version"),
        ({"kubernetes_version": "latest"}, "kubernetes_version: 'latest' is not a minor version"),
        *(
            ({"addons": {name: version for name, version in ADDONS.items() if name != gone}}, f"addons: has no {gone},")
            for gone in ADDONS
        ),
        ({"addons": {}}, "addons: has no vpc-cni, kube-proxy, eks-pod-identity-agent, coredns, which nodes"),
        ({"addons": ADDONS | {"coredns": "latest"}}, "addons.coredns: 'latest' is not an exact version"),
        ({"addons": ADDONS | {"coredns": "v1.12.2"}}, "addons.coredns: 'v1.12.2' is not an exact version"),
        (
            {"addons": ADDONS | {"kube-proxy": "v1.34.0-eksbuild.2"}},
            "addons.kube-proxy: v1.34.0-eksbuild.2 is newer",
        ),
        (
            {"endpoint": ApiEndpoint(public=True)},
            "endpoint.cidrs: is empty, but the endpoint is public, so it would be open to the world",
        ),
        ({"endpoint": ApiEndpoint(cidrs=["192.0.2.0/24"])}, "endpoint.cidrs: only applies to a public endpoint"),
        (
            {"endpoint": ApiEndpoint(public=True, cidrs=["192.0.2.1/24"])},
            "endpoint.cidrs[0]: CIDR '192.0.2.1/24' is not an IPv4 network (192.0.2.1/24",
        ),
        (
            {"endpoint": ApiEndpoint(public=True, cidrs=["office"])},
            "endpoint.cidrs[0]: CIDR 'office' is not an IPv4 network",
        ),
        (
            {"endpoint": ApiEndpoint(public=True, cidrs=["0.0.0.0/0"])},
            "endpoint.cidrs[0]: CIDR '0.0.0.0/0' is wider than /8",
        ),
        (
            {"endpoint": ApiEndpoint(public=True, cidrs=["128.0.0.0/1"])},
            "endpoint.cidrs[0]: CIDR '128.0.0.0/1' is wider than",
        ),
        (
            {"endpoint": ApiEndpoint(private_cidrs=["vpn"])},
            "endpoint.private_cidrs[0]: CIDR 'vpn' is not an IPv4 network",
        ),
        (
            {"endpoint": ApiEndpoint(private_cidrs=["0.0.0.0/0"])},
            "endpoint.private_cidrs[0]: CIDR '0.0.0.0/0' is wider than /8",
        ),
        (
            {"endpoint": ApiEndpoint(private_cidrs=["10.0.0.0/16"])},
            "endpoint.private_cidrs[0]: CIDR '10.0.0.0/16' is listed twice",
        ),
        (
            {"endpoint": ApiEndpoint(private_cidrs=["10.8.0.0/16", "10.8.0.0/16"])},
            "endpoint.private_cidrs[1]: CIDR '10.8.0.0/16' is listed twice",
        ),
        (
            {"addons": ADDONS | {"kube-proxy": "v1.29.0-eksbuild.2"}},
            "addons.kube-proxy: v1.29.0-eksbuild.2 is more than 3 minor versions older",
        ),
        (
            {"system_nodes": SystemNodes(min_size=1)},
            "system_nodes.min_size: min 1 is too small; Karpenter's two replicas",
        ),
        (
            {"system_nodes": SystemNodes(min_size=3)},
            "system_nodes.min_size: min 3, desired 2, max 3; 1 <= min <= desired",
        ),
        (
            {"system_nodes": SystemNodes(desired_size=4)},
            "system_nodes.min_size: min 2, desired 4, max 3; 1 <= min <= desired",
        ),
        ({"system_nodes": SystemNodes(instance_types=[])}, "system_nodes.instance_types: is empty; at least one type"),
        ({"system_nodes": SystemNodes(ami_type="BOTTLEROCKET_x86_64")}, "system_nodes.ami_type: 'BOTTLE"),
        (
            {"system_nodes": SystemNodes(instance_types=["m7g.large"])},
            "system_nodes.instance_types[0]: m7g.large cannot run AL2023",
        ),
        (
            {"system_nodes": SystemNodes(ami_type="AL2023_ARM_64_STANDARD")},
            "system_nodes.instance_types[0]: m6i.large cannot run",
        ),
        ({"system_nodes": SystemNodes(disk_gib=8)}, "system_nodes.disk_gib: 8 GiB"),
        (
            {"system_nodes": SystemNodes(release_version="1.32.9-20251112")},
            "system_nodes.release_version: '1.32.9-20251112'",
        ),
        ({"admins": {"Operations": ROLE}}, "admins.Operations: 'Operations' is not a valid name"),
        ({"admins": {"one": ROLE, "two": ROLE}}, f"admins.two: {ROLE} is already listed as 'one'"),
        ({"admins": {"one": "operations"}}, "admins.one: 'operations' is not the ARN of an IAM role or user"),
        ({"admins": {"one": "arn:aws:iam::111122223333:root"}}, "admins.one: 'arn:aws:iam::111122223333:root'"),
        ({"admins": {"one": "arn:aws:sts::111122223333:assumed-role/a/b"}}, "admins.one: 'arn:aws:sts::1111"),
        (
            {"admins": {"one": ROLE.replace("aws", "aws-cn")}},
            f"admins.one: {ROLE.replace('aws', 'aws-cn')!r} is in partition 'aws-cn', but the cluster is in 'aws'",
        ),
        ({"log_types": ["kubelet"]}, "log_types[0]: 'kubelet' is not valid; allowed: api, audit, authenticator"),
        (
            {"log_retention_days": 10},
            "log_retention_days: 10 days is not supported by CloudWatch Logs; allowed: 1, 3, 5, 7, 14",
        ),
        (
            {"access": {"ml": ClusterAccess(principal=ROLE)}},
            "access.ml: grants no permissions; add policies or groups",
        ),
        (
            {"admins": {"one": ROLE}, "access": {"ml": ClusterAccess(principal=ROLE, groups=["ml"])}},
            f"access.ml.principal: {ROLE} is already listed as 'one'",
        ),
        (
            {"access": {"ml": ClusterAccess(principal="ml", groups=["ml"])}},
            "access.ml.principal: 'ml' is not the ARN of an IAM role or user",
        ),
        (
            {"access": {"ml": ClusterAccess(principal=ROLE, groups=["system:masters"])}},
            "access.ml.groups[0]: 'system:masters' is reserved, as are all groups that begin with system:, eks:,",
        ),
        (
            team(AccessPolicy(policy="AmazonEKSPolicy")),  # type: ignore[arg-type]
            "access.ml.policies[0].policy: 'AmazonEKSPolicy' is not valid; allowed: AmazonEKSAdminPolicy, ",
        ),
        (
            team(AccessPolicy(policy="AmazonEKSViewPolicy"), AccessPolicy(policy="AmazonEKSViewPolicy")),
            "access.ml.policies[1].policy: AmazonEKSViewPolicy is listed twice; list all namespaces in one entry",
        ),
        (
            team(AccessPolicy(policy="AmazonEKSViewPolicy", namespaces=["ML"])),
            "access.ml.policies[0].namespaces[0]: 'ML' is not a namespace; use lower-case letters, digits, '-' and '*'",
        ),
        (
            {"addon_configuration": {"metrics-server": {"replicas": 1}}},
            "addon_configuration.metrics-server: there is no add-on metrics-server; add it to addons",
        ),
        (
            {"addon_configuration": {"vpc-cni": {"init": {"resources": {"limits": {"cpu": "lots"}}}}}},
            "addon_configuration.vpc-cni.init.resources.limits.cpu: 'lots' is not a quantity; write for example 100m",
        ),
        (
            {"addon_configuration": {"coredns": {"nodeSelector": {"nodes": "mine"}}}},
            "addon_configuration.coredns.nodeSelector: is already set, to keep the add-on on the system nodes",
        ),
        (
            {
                "addons": ADDONS | EBS,
                "addon_configuration": {"aws-ebs-csi-driver": {"controller": {"nodeSelector": {}}}},
            },
            "addon_configuration.aws-ebs-csi-driver.controller.nodeSelector: is already set, to keep the add-on",
        ),
        (
            {"addon_configuration": {"vpc-cni": {"enableNetworkPolicy": True}}},
            "addon_configuration.vpc-cni.enableNetworkPolicy: true is not text, which the add-on's schema requires",
        ),
        (
            {"addon_configuration": {"vpc-cni": {"env": {"WARM_PREFIX_TARGET": 1}}}},
            "addon_configuration.vpc-cni.env.WARM_PREFIX_TARGET: 1 is not text",
        ),
        (
            {"addon_configuration": {"coredns": {"days": [datetime.date(2027, 1, 2)]}}},
            "addon_configuration.coredns.days[0]: 2027-01-02 is not a JSON value",
        ),
    ],
)
def test_a_fault_is_one_line(args: dict[str, Any], problem: str) -> None:
    (found,) = problems(**args)
    assert found.startswith(problem)
    assert found.count(";") >= 1
    assert len(found.splitlines()) == 1
    with pytest.raises(ValueError, match=r"^ci: "):
        cluster(**args)


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(ValueError, match="ci: account_id") as raised:
        cluster(account_id="1", kubernetes_version="1", addons={}, endpoint=ApiEndpoint(public=True))
    assert len(str(raised.value).splitlines()) == 4


def test_the_world_is_let_in_by_saying_so() -> None:
    open_endpoint = ApiEndpoint(public=True, cidrs=["0.0.0.0/0"], open_to_the_world=True)
    assert problems(endpoint=open_endpoint) == []


@given(cidrs=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)), min_size=1))
def test_no_set_of_cidrs_lets_in_the_world_unsaid(cidrs: list[tuple[int, int]]) -> None:
    """Not in halves either: to be everybody with /8 takes 256 of them."""
    networks = [ipaddress.IPv4Network(cidr, strict=False) for cidr in cidrs]
    refused = problems(endpoint=ApiEndpoint(public=True, cidrs=list(map(str, networks))))
    assert bool(refused) == any(network.prefixlen < 8 for network in networks)
    if not refused and len(networks) < 256:
        assert ipaddress.IPv4Network("0.0.0.0/0") not in list(ipaddress.collapse_addresses(networks))


@pytest.mark.parametrize("proxy", ["v1.33.3-eksbuild.4", "v1.32.9-eksbuild.2", "v1.31.10-minimal-eksbuild.2"])
def test_an_older_kube_proxy_is_taken_during_an_upgrade(proxy: str) -> None:
    assert problems(addons=ADDONS | {"kube-proxy": proxy}) == []


@pytest.mark.parametrize(
    ("region", "partition"), [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_a_region_has_one_partition(region: str, partition: str) -> None:
    network = in_zones(f"{region}a", f"{region}b")
    for each in ("aws", "aws-cn", "aws-us-gov"):
        assert bool(problems(region=region, network=network, partition=each)) == (each != partition)
    assert botocore.session.Session().get_partition_for_region(region) == partition


# -- AWS's own description of its API ---------------------------------------------------------------------------------


def shape(service: str, name: str) -> dict[str, Any]:
    return dict(botocore.loaders.Loader().load_service_model(service, "service-2")["shapes"][name])


@given(st.from_regex(shape("eks", "ClusterName")["pattern"], fullmatch=True))
def test_names_that_eks_takes_are_taken(name: str) -> None:
    # A line's end is not in the pattern, but Python's `$` would be before it.
    assert bool(problems(cluster_name=name)) == (len(name) > 46)


@pytest.mark.parametrize("ami_type", SystemAmiType.__args__)  # type: ignore[attr-defined]
def test_each_instance_type_starts_images_of_its_own_architecture(ami_type: SystemAmiType) -> None:
    """As EC2 describes its types, of which moto keeps a copy."""
    wanted = "arm64" if "ARM" in ami_type else "x86_64"
    assert ami_type in shape("eks", "AMITypes")["enum"]
    types = described()
    assert len(types) > 1000
    for name, each in types.items():
        refused = problems(system_nodes=SystemNodes(instance_types=[name], ami_type=ami_type))
        assert bool(refused) == (wanted not in each["ProcessorInfo"]["SupportedArchitectures"]), name


def test_log_types_are_those_of_eks() -> None:
    assert set(LogType.__args__) == set(shape("eks", "LogType")["enum"])  # type: ignore[attr-defined]
