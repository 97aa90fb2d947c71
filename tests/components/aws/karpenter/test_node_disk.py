"""Root volumes of nodes, and how images get onto them."""

from __future__ import annotations

import email
from typing import Any

import pytest
import yaml

from gpufleet.aws import AmiTerm, KarpenterNodePoolArgs
from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.karpenter._node_pool_specs import node_class_spec
from gpufleet.aws.karpenter.node_disk import ignores_fast_image_pull
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from tests.node_pools import changed

RECENT = [AmiTerm(alias="al2023@v20260512")]
BOTTLEROCKET = [AmiTerm(alias="bottlerocket@v1.40.0")]


def volume(args: KarpenterNodePoolArgs) -> dict[str, Any]:
    (mapping,) = node_class_spec(args)["blockDeviceMappings"]
    ebs: dict[str, Any] = mapping["ebs"]
    return ebs


def spec(**fields: Any) -> dict[str, Any]:
    """The node class with these fields and a recent image."""
    spec: dict[str, Any] = node_class_spec(changed(class_ami_terms=RECENT, **fields))
    return spec


def test_a_volume_is_encrypted_and_goes_with_its_node() -> None:
    assert volume(changed()) == {
        "volumeSize": "200Gi",
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
    }


def test_performance_and_key_are_those_of_the_arguments() -> None:
    args = changed(class_root_volume_iops=4000, class_root_volume_throughput=1000, class_root_volume_key="alias/ci")
    found = volume(args)
    assert (found["iops"], found["throughput"], found["kmsKeyID"]) == (4000, 1000, "alias/ci")
    assert found["encrypted"] is True


def test_a_snapshot_decides_on_encryption() -> None:
    found = volume(changed(class_ami_terms=BOTTLEROCKET, class_image_snapshot="snap-0123456789abcdef0"))
    assert found["snapshotID"] == "snap-0123456789abcdef0"
    assert "encrypted" not in found


def test_the_gate_alone_is_a_node_config() -> None:
    """As nodeadm/doc/examples.md of awslabs/amazon-eks-ami has it."""
    assert yaml.safe_load(spec(class_fast_image_pull=True)["userData"]) == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"featureGates": {"FastImagePull": True}},
    }


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        ("#!/bin/sh\necho started\n", "text/x-shellscript"),
        ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n", "application/node.eks.aws"),
    ],
)
def test_the_gate_is_a_part_beside_user_data(own: str, kind: str) -> None:
    message = email.message_from_string(spec(class_fast_image_pull=True, class_user_data=own)["userData"])
    gate, other = message.get_payload()  # type: ignore[misc]
    assert (message.get_content_type(), gate.get_content_type()) == ("multipart/mixed", "application/node.eks.aws")
    assert yaml.safe_load(gate.get_payload())["spec"] == {"featureGates": {"FastImagePull": True}}
    assert (other.get_content_type(), other.get_payload().strip()) == (kind, own.strip())


def test_user_data_is_as_given_without_the_gate() -> None:
    assert spec(class_user_data="#!/bin/sh\n")["userData"] == "#!/bin/sh\n"
    assert "userData" not in spec()


def problems(**fields: Any) -> list[str]:
    given = {"class_ami_terms": RECENT} | fields
    return [str(each) for each in node_pool_problems(changed(**given))]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"class_root_volume_iops": 2999}, "root_volume_iops: 2999 is not between 3000 and 16000 IOPS"),
        ({"class_root_volume_iops": 16001}, "root_volume_iops: 16001 is not between 3000 and 16000 IOPS"),
        ({"class_root_volume_throughput": 124}, "root_volume_throughput: 124 is not between 125 and 1000 MiB/s"),
        ({"class_root_volume_throughput": 751}, "751 MiB/s requires 3004 IOPS, but the volume has 3000"),
        (
            {"class_root_volume_iops": 10001, "class_root_volume_size": "20Gi"},
            "10001 IOPS exceeds 500 for each GiB",
        ),
        ({"class_image_snapshot": "snap-01"}, "requires Bottlerocket"),
        ({"class_image_snapshot": "vol-01", "class_ami_terms": BOTTLEROCKET}, "'vol-01' is not a snapshot ID"),
        (
            {"class_image_snapshot": "snap-01", "class_ami_terms": BOTTLEROCKET, "class_root_volume_key": "alias/ci"},
            "not allowed together with a snapshot",
        ),
        (
            {"class_fast_image_pull": True, "class_ami_terms": BOTTLEROCKET},
            "requires AL2023, but the AMI family is Bottlerocket",
        ),
        (
            {"class_fast_image_pull": True, "class_ami_terms": [AmiTerm(alias="al2023@v20250813")]},
            "al2023@v20250813 does not support parallel image pulls; use v20250821 or later",
        ),
        (
            {"class_fast_image_pull": True, "class_user_data": "MIME-Version: 1.0\n"},
            "not supported with user data in MIME parts",
        ),
    ],
)
def test_what_ebs_or_nodeadm_would_not_do_is_refused(fields: dict[str, Any], problem: str) -> None:
    (found,) = problems(**fields)
    assert problem in found


@pytest.mark.parametrize(
    "fields",
    [
        {"class_root_volume_iops": 3000, "class_root_volume_throughput": 750},
        {"class_root_volume_iops": 16000, "class_root_volume_throughput": 1000},
        {"class_root_volume_iops": 10000, "class_root_volume_size": "20Gi"},
        {"class_fast_image_pull": True, "class_ami_terms": [AmiTerm(alias="al2023@v20250821")]},
        {
            "class_fast_image_pull": True,
            "class_ami_terms": [AmiTerm(id="ami-01")],
            "class_ami_family": "AL2023",
        },
        {"class_image_snapshot": "snap-01", "class_ami_terms": BOTTLEROCKET},
    ],
)
def test_what_they_would_do_is_not(fields: dict[str, Any]) -> None:
    assert problems(**fields) == []


def test_nodeadm_ignores_the_gate_on_small_nodes() -> None:
    """`UseSOCISnapshotter`: 4 vCPUs, and 7 GiB as the kernel sees them."""
    types = instance_types()
    assert [ignores_fast_image_pull(types[name]) for name in ("m6i.large", "c6i.xlarge", "g4dn.xlarge")] == [
        True,
        False,
        False,
    ]
