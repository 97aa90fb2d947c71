"""Types of AWS values in a stack file: regions, ARNs, CIDRs and IDs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpufleet.aws.ebs.volume import IOPS, THROUGHPUT
from gpufleet.aws.eks.cluster_args import ACCOUNT
from gpufleet.aws.eks.network_args import REGION
from gpufleet_stacks.settings.models.value_types import Filled, Text

Region = Annotated[str, Text(REGION, 32, "an AWS region such as ap-southeast-1")]
Zone = Annotated[str, Text(f"{REGION}[a-z]", 32, "an availability zone such as ap-southeast-1a")]
Account = Annotated[str, Text(ACCOUNT, 12, "an AWS account ID: twelve digits, in quotes")]
Arn = Annotated[str, Text(r"arn:aws[-a-z]*:[a-z0-9-]+:[^:]*:[0-9]*:.+", 2048, "an ARN: arn:aws:iam::ACCOUNT:role/NAME")]
Cidr = Annotated[str, Text(r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}", 18, "an IPv4 range such as 10.0.0.0/16")]
ResourceId = Annotated[
    str, Text(r"[a-z]+-[0-9a-f]{8,17}", 64, "the ID of an AWS resource, such as vpc-0123456789abcdef0")
]
InstanceType = Annotated[str, Text(r"[a-z0-9-]+\.[a-z0-9-]+", 32, "an instance type such as m6i.large")]
Iops = Annotated[int, Field(strict=True, ge=IOPS[0], le=IOPS[1])]
Throughput = Annotated[int, Field(strict=True, ge=THROUGHPUT[0], le=THROUGHPUT[1])]
Tags = dict[Filled, str]
