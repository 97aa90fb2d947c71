"""Build of Karpenter for stacks on EKS: the AWS provider with simulated instances, its CRDs and its prices."""

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
"""Edit: metrics and health endpoints listen on loopback. Karpenter has no setting for their address, and would listen
on every interface."""

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
"""Edit: the simulated EC2 starts the cheapest of all instance types that Karpenter lists, as EC2 does. The original
uses the first launch template only. There is one for each maximum number of pods, in random order, so that either g4dn
or g5 would be started."""

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
"""Edits: an instance uses the capacity reservation that it was started for. The original simulation has no
reservations: after a minute Karpenter would regard the instance as on-demand, and replace it."""

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
    # None of them changes Karpenter's decisions.
    edits=(_ON_LOOPBACK, _CHEAPEST_TEMPLATE, *_IN_A_RESERVATION),
)
"""Recipe of the program, with its CRDs and its table of prices."""


def find(source: str | None = None, console: Console | None = None) -> Path:
    """Return the directory with Karpenter and its files; build them if missing. `source` may be a directory. There are
    no releases of this build, so that "download" builds it too. Raises SandboxError."""
    if source in (None, "build", "download"):
        return go_build.build(KARPENTER, console)
    return go_build.given(Path(str(source)), KARPENTER)
