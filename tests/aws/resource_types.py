"""How each type of AWS resource that this project makes is said to AWS's API and to CloudFormation.

A key of Pulumi's that has the same name there, but for capitals and plurals, is in no line of this table: its place is
read from botocore's models and CloudFormation's schemas. A key that has no place at all has to stand under `provider`,
or it is a finding.
"""

from __future__ import annotations

from tests.aws.ec2_types import EC2_TYPES
from tests.aws.eks_types import EKS_TYPES
from tests.aws.iam_types import IAM_TYPES
from tests.aws.resource_type import ResourceType
from tests.aws.service_types import SERVICE_TYPES

TYPES: dict[str, ResourceType] = {**EKS_TYPES, **EC2_TYPES, **IAM_TYPES, **SERVICE_TYPES}
"""By Pulumi's type."""
