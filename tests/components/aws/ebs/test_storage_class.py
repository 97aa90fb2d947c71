"""EbsStorageClass: what it registers, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.aws import EbsStorageClass, EbsStorageClassArgs
from gpufleet_tools.plan.plan import Plan
from tests.input_types import wrong_inputs
from tests.recording import on_cluster, recorded, the


def storage_class(**args: Any) -> Plan:
    return recorded(lambda: EbsStorageClass("gp3", EbsStorageClassArgs(storage_class="gp3", **args), on_cluster()))


def registered(**args: Any) -> dict[str, Any]:
    plan = storage_class(**args)
    assert wrong_inputs(plan) == []
    return dict(the(plan, "StorageClass").inputs)


def test_volumes_are_encrypted_and_in_the_zone_of_their_pod() -> None:
    found = registered()
    assert found["metadata"] == {"name": "gp3"}
    assert found["provisioner"] == "ebs.csi.aws.com"
    assert found["parameters"] == {"type": "gp3", "encrypted": "true"}
    assert (found["volumeBindingMode"], found["allowVolumeExpansion"]) == ("WaitForFirstConsumer", True)
    assert found["reclaimPolicy"] == "Delete"


def test_parameters_are_texts() -> None:
    """As Kubernetes requires of them."""
    arn = "arn:aws:kms:eu-west-1:111122223333:key/1"
    found = registered(iops=4000, throughput=1000, key_arn=arn, default=True, reclaim_policy="Retain")
    assert found["parameters"] == {
        "type": "gp3",
        "encrypted": "true",
        "iops": "4000",
        "throughput": "1000",
        "kmsKeyId": arn,
    }
    assert found["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert found["reclaimPolicy"] == "Retain"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"iops": 2999}, "gp3: iops: 2999 is not between 3000 and 16000 IOPS"),
        ({"throughput": 124}, "gp3: throughput: 124 is not between 125 and 1000 MiB/s"),
        ({"throughput": 751}, "gp3: throughput: 751 MiB/s requires 3004 IOPS, but the volume has 3000"),
    ],
)
def test_performance_that_aws_refuses_is_refused(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=r"^gp3: ") as raised:
        storage_class(**args)
    assert str(raised.value).startswith(problem)


def test_most_throughput_takes_enough_iops() -> None:
    assert registered(throughput=1000, iops=4000)["parameters"]["throughput"] == "1000"
