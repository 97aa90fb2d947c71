"""Karpenter's build, for stacks on EKS alone: the AWS provider over simulated instances, its CRDs and its prices."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from gpufleet_tools.sandbox.build import go_build
from gpufleet_tools.sandbox.build.go_build import Binary, Edit, Recipe, SourceFile

PROVIDER = "github.com/aws/karpenter-provider-aws"
_CORE = "sigs.k8s.io/karpenter"

_ON_LOOPBACK = Edit(
    SourceFile(_CORE, "pkg/operator/operator.go"),
    'Sprintf(":%d"',
    'Sprintf("127.0.0.1:%d"',
)
"""Metrics and health: Karpenter has no setting for the address, and would listen on every interface."""

_CHEAPEST_TEMPLATE = Edit(
    SourceFile(PROVIDER, "kwok/ec2/ec2.go"),
    "\t\tltConfig := input.LaunchTemplateConfigs[0]\n",
    """\
		lowest := func(config ec2types.FleetLaunchTemplateConfigRequest) float64 {
			capacityType := lo.Ternary(
				input.TargetCapacitySpecification.DefaultTargetCapacityType == ec2types.DefaultTargetCapacityTypeSpot,
				v1.CapacityTypeSpot, v1.CapacityTypeOnDemand)
			return lo.Min(lo.Map(config.Overrides, func(o ec2types.FleetLaunchTemplateOverridesRequest, _ int) float64 {
				subnet, _ := lo.Find(c.subnets, func(s ec2types.Subnet) bool {
					return lo.FromPtr(s.SubnetId) == lo.FromPtr(o.SubnetId)
				})
				return c.strategy.GetScore(string(o.InstanceType), capacityType, lo.FromPtr(subnet.AvailabilityZone))
			}))
		}
		ltConfig := lo.MinBy(input.LaunchTemplateConfigs, func(a, b ec2types.FleetLaunchTemplateConfigRequest) bool {
			return lowest(a) < lowest(b)
		})
""",
)
"""The instance type that is started is the cheapest of all that Karpenter names, as EC2 does it. The simulated EC2
looks into the first launch template only, and which that is, is chance: there is one for each number of pods that nodes
take, so that now g4dn and now g5 would be started."""

_IN_A_RESERVATION = (
    Edit(
        SourceFile(PROVIDER, "kwok/ec2/ec2.go"),
        "\t\tinstance := ec2types.Instance{\n",
        """\
		var reservationID *string
		var reservation *ec2types.CapacityReservationSpecificationResponse
		asked := lt.B.CapacityReservationSpecification
		if asked != nil && asked.CapacityReservationTarget != nil {
			reservationID = asked.CapacityReservationTarget.CapacityReservationId
			reservation = &ec2types.CapacityReservationSpecificationResponse{
				CapacityReservationPreference: asked.CapacityReservationPreference,
			}
		}
		instance := ec2types.Instance{
""",
    ),
    Edit(
        SourceFile(PROVIDER, "kwok/ec2/ec2.go"),
        """\
			// Don't support ODCR yet
			CapacityReservationId:                   nil,
			CapacityReservationSpecification:        nil,
""",
        """\
			CapacityReservationId:                   reservationID,
			CapacityReservationSpecification:        reservation,
""",
    ),
    Edit(
        SourceFile(PROVIDER, "kwok/ec2/ec2.go"),
        "func (c *Client) TerminateInstances(",
        """\
func (c *Client) DescribeCapacityReservations(
	ctx context.Context,
	input *ec2.DescribeCapacityReservationsInput,
	opts ...func(*ec2.Options),
) (*ec2.DescribeCapacityReservationsOutput, error) {
	out, err := c.Client.DescribeCapacityReservations(ctx, input, opts...)
	if err != nil {
		return nil, err
	}
	<-c.readBackupCompleted
	for i := range out.CapacityReservations {
		reservation := &out.CapacityReservations[i]
		available := lo.FromPtr(reservation.TotalInstanceCount)
		c.instances.Range(func(_, v any) bool {
			instance := v.(ec2types.Instance)
			if lo.FromPtr(instance.CapacityReservationId) == lo.FromPtr(reservation.CapacityReservationId) {
				available--
			}
			return true
		})
		reservation.AvailableInstanceCount = lo.ToPtr(max(available, 0))
	}
	return out, nil
}

func (c *Client) TerminateInstances(""",
    ),
)
"""An instance is in the capacity reservation that it was started for, and takes one of its places. The simulated EC2
knows no reservations: Karpenter would take the instance to be on demand after a minute, and replace it."""

KARPENTER = Recipe(
    module=Path(__file__).parent / "modules/karpenter",
    # Seconds: measured as in binaries.py, by itself.
    binaries=(Binary("karpenter", f"{PROVIDER}/kwok", 100),),
    files=(
        SourceFile(PROVIDER, "pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml"),
        SourceFile(PROVIDER, "pkg/apis/crds/karpenter.sh_nodeclaims.yaml"),
        SourceFile(PROVIDER, "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml"),
        SourceFile(PROVIDER, "pkg/apis/crds/karpenter.sh_nodepools.yaml"),
        SourceFile(PROVIDER, "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml"),
        SourceFile(PROVIDER, "pkg/providers/pricing/zz_generated.pricing_aws.go"),
    ),
    # None touches what Karpenter decides.
    edits=(_ON_LOOPBACK, _CHEAPEST_TEMPLATE, *_IN_A_RESERVATION),
)
"""The program and the files of its own module that it needs, or that say what it knows."""


def find(source: str | None = None, console: Console | None = None) -> Path:
    """The directory with Karpenter and its files: built when missing, or `source` when that is a directory. Nobody
    releases this build of Karpenter, so that "download" builds it too. Raises SandboxError."""
    if source in (None, "build", "download"):
        return go_build.build(KARPENTER, console)
    return go_build.given(Path(str(source)), KARPENTER)
