"""Whole AWS programs against checks that mostly are not ours: what they register is well formed, and goes together.

Covered: names, types, enumerations, patterns and lengths by Pulumi's hints, botocore's models and CloudFormation's
schemas; what refers to what; what policies decide; networks and events in an account in memory.

Not covered by anything here: quotas, eventual consistency, what the provider checks and compares by itself (Check and
Diff), which versions of Kubernetes, addons and images there are, whether a service principal or an AMI exists, Pod
Identity at run time. What `pulumi_eks.Cluster` makes is opaque. Nothing of this has been applied to AWS.
"""

from __future__ import annotations

import pytest

from gpufleet_tools.plan.plan import Plan, Unknown
from tests.aws.checks import CHECKS
from tests.aws.cloudformation import EXCEPTIONS, findings, template
from tests.aws.programs import PROGRAMS
from tests.aws.references import references
from tests.aws.resource_types import TYPES
from tests.aws.said import UNKNOWN_VALUES, aws_resources, untold

each_program = pytest.mark.parametrize("program", PROGRAMS)


@each_program
@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_found_in_a_program(plans: dict[str, Plan], program: str, check: str) -> None:
    assert CHECKS[check](plans[program]) == []


@each_program
def test_every_resource_of_aws_is_looked_at(plans: dict[str, Plan], program: str) -> None:
    assert untold(plans[program]) == []


def test_the_programs_have_every_type_that_is_known(of_resources: Plan) -> None:
    """Otherwise a line of the table would stand there untried."""
    assert TYPES.keys() - {each.type for each in aws_resources(of_resources)} == set()


@each_program
def test_what_is_unknown_is_of_the_opaque_cluster(plans: dict[str, Plan], program: str) -> None:
    """Everything else is a reference, and checked as one."""
    unknown = {
        key
        for each in aws_resources(plans[program])
        for key, value in each.inputs.items()
        if isinstance(value, Unknown)
    }
    assert unknown <= UNKNOWN_VALUES.keys()
    assert unknown == ({"clusterName"} if "components" in program else set())


@each_program
def test_a_template_refers_to_whatever_the_program_refers_to(plans: dict[str, Plan], program: str) -> None:
    made, _ = template(plans[program])
    edges = {each for resource in aws_resources(plans[program]) for each in references(resource.inputs)}
    assert len(edges) > 20
    text = str(made)
    assert "<<" not in text
    assert text.count("'Ref'") + text.count("'Fn::GetAtt'") + text.count("'Fn::Sub'") >= len(edges)


def test_every_exception_is_needed(of_resources: Plan) -> None:
    found = {match.rule.id for match in findings(template(of_resources)[0])}
    assert found == set(EXCEPTIONS)
