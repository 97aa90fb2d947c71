"""EKS cluster: control plane, system nodes, add-ons and access entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_eks
from pulumi_aws.cloudwatch import LogGroup
from pulumi_aws.ec2 import (
    LaunchTemplate,
    LaunchTemplateBlockDeviceMappingArgs,
    LaunchTemplateBlockDeviceMappingEbsArgs,
    LaunchTemplateMetadataOptionsArgs,
    LaunchTemplateTagSpecificationArgs,
    Tag,
)
from pulumi_aws.eks import (
    AccessEntry,
    AccessPolicyAssociation,
    AccessPolicyAssociationAccessScopeArgs,
    Addon,
    AddonPodIdentityAssociationArgs,
    NodeGroup,
    NodeGroupLaunchTemplateArgs,
    NodeGroupScalingConfigArgs,
    NodeGroupTaintArgs,
    NodeGroupUpdateConfigArgs,
)
from pulumi_aws.iam import Role
from pulumi_aws.kms import Key
from pulumi_kubernetes import Provider

from gpufleet.aws._managed_policies import attached_policies
from gpufleet.aws.eks._kubeconfig import kubeconfig
from gpufleet.aws.eks.access import ADMINISTRATOR, AccessPolicy, ClusterAccess
from gpufleet.aws.eks.addons import addon_configuration
from gpufleet.aws.eks.cluster_args import (
    DAEMON_ADDONS,
    EBS_CSI_DRIVER,
    SYSTEM_NODE_LABELS,
    EksClusterArgs,
    EksClusterReference,
)
from gpufleet.aws.eks.cluster_rules import cluster_problems
from gpufleet.aws.eks.network_args import DISCOVERY_TAG
from gpufleet.aws.eks.security_groups import ClusterSecurityGroups, cluster_security_groups
from gpufleet.aws.karpenter.policies import NODE_POLICIES, as_text, node_trust, pod_identity_trust, policy_document
from gpufleet.problem import refuse

ROOT_DEVICE = "/dev/xvda"
"""Root device of the Amazon Linux AMIs for EKS."""


class EksCluster(pulumi.ComponentResource):
    """An EKS cluster prepared for Karpenter.

    Owns the control plane with its role, key and log group; the security groups; the system nodes with their role; the
    add-ons; and the administrators' access entries. It does not own the network.

    `pulumi_eks.Cluster` creates the control plane, and is configured to create nothing else. It stays opaque: without
    the engine, a preview shows its arguments only. It does not show the `aws.eks.Cluster` and the unused Kubernetes
    provider that it creates (nodejs/eks/cluster/cluster.ts of pulumi/pulumi-eks at 7bf0c1b). Two of its behaviours
    cannot be configured: the creator of the cluster becomes an administrator, and an `aws` command, 2.7 or newer, must
    be on PATH.

    EKS creates one more security group, for the control plane only. It also creates the access entry of the system
    nodes' role, as for every managed node group (https://www.eksworkshop.com/docs/security/cluster-access-management/managing).

    Destroying the cluster takes two updates, because EKS refuses it while `deletion_protection` is on. Resources on the
    cluster are deleted first, through `provider`, while nodes, add-ons and NAT gateways still exist. The log group is
    deleted last; EKS may recreate it for late logs of the control plane.
    """

    ready: pulumi.Resource
    """The CoreDNS add-on; depend on it to wait until pods run and can resolve each other's names."""
    reference: EksClusterReference
    """Connection details passed to components that run on the cluster."""
    provider: Provider
    """Kubernetes provider of the cluster. Previews identify it by the cluster's name, and never confuse it with another
    cluster's."""

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, cluster_problems(args))
        super().__init__("gpu-runners:index:EksCluster", name, None, opts)
        groups = cluster_security_groups(name, args, self._child())
        made = self._control_plane(name, args, groups).eks_cluster
        # Use the output, not the literal name, so that replacing the cluster replaces its contents.
        cluster = made.name
        daemons = self._addons(name, args, cluster, DAEMON_ADDONS, [])
        nodes = self._system_nodes(name, args, cluster, groups.nodes.id, [*daemons.values()])
        others = self._addons(name, args, cluster, [each for each in args.addons if each not in DAEMON_ADDONS], [nodes])
        needs = [
            *(nodes, *daemons.values(), *others.values()),
            *self._access(name, args, cluster),
            *self._discovery_tags(name, args),
        ]
        self.ready = others["coredns"]
        self.reference = EksClusterReference(
            name=args.cluster_name,
            region=args.region,
            account_id=args.account_id,
            partition=args.partition,
            endpoint=made.endpoint,
            certificate_authority=made.certificate_authority.data,
            security_group_id=groups.nodes.id,
            private_subnet_ids=list(args.network.private_subnets.values()),
            needs=needs,
        )
        self.provider = Provider(
            f"{name}-kubernetes",
            kubeconfig=pulumi.Output.all(self.reference.endpoint, self.reference.certificate_authority).apply(
                lambda known: kubeconfig(args.cluster_name, args.region, known[0], known[1], args.credentials)
            ),
            cluster_identifier=args.cluster_name,
            # Update Secrets in place. By default, a rotated key first deletes the Secret that runners need.
            enable_secret_mutable=True,
            opts=self._child(*needs),
        )
        self.register_outputs({"name": args.cluster_name, "endpoint": self.reference.endpoint})

    def _child(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*needs])

    def _control_plane(self, name: str, args: EksClusterArgs, groups: ClusterSecurityGroups) -> pulumi_eks.Cluster:
        """Create the control plane, and nothing else that `pulumi_eks.Cluster` could create."""
        role, attachments = self._role(
            f"{name}-role", args, f"{args.cluster_name}-cluster", control_plane_trust(), ["AmazonEKSClusterPolicy"]
        )
        # Otherwise EKS creates the log group itself, with unlimited retention.
        logs = LogGroup(
            f"{name}-logs",
            name=f"/aws/eks/{args.cluster_name}/cluster",
            retention_in_days=args.log_retention_days,
            tags=dict(args.tags),
            opts=self._child(),
        )
        # No configuration needed; the recorder requires explicit providers.
        plugin = pulumi_eks.Provider(f"{name}-eks", opts=self._child())
        return pulumi_eks.Cluster(
            name,
            name=args.cluster_name,
            version=args.kubernetes_version,
            service_role=role,
            vpc_id=args.network.vpc_id,
            private_subnet_ids=args.network.control_plane_subnets,
            cluster_security_group=groups.control_plane,
            endpoint_private_access=True,
            endpoint_public_access=args.endpoint.public,
            public_access_cidrs=list(args.endpoint.cidrs) if args.endpoint.public else None,
            authentication_mode=pulumi_eks.AuthenticationMode.API,
            encryption_config_key_arn=args.secrets_key_arn or self._secrets_key(name, args),
            enabled_cluster_log_types=list(args.log_types),
            deletion_protection=args.deletion_protection,
            provider_credential_opts=pulumi_eks.KubeconfigOptionsArgs(
                role_arn=args.credentials.role_arn, profile_name=args.credentials.profile
            ),
            tags=dict(args.tags),
            skip_default_node_group=True,
            skip_default_security_groups=True,
            create_instance_role=False,
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options=pulumi_eks.KubeProxyAddonOptionsArgs(enabled=False),
            coredns_addon_options=pulumi_eks.CoreDnsAddonOptionsArgs(enabled=False),
            opts=pulumi.ResourceOptions(
                parent=self,
                providers=[plugin],
                # Pulumi refuses before it deletes anything; EKS would refuse only after all else is deleted.
                protect=args.deletion_protection or None,
                depends_on=[*args.needs, role, *attachments, logs, groups.control_plane, *groups.rules],
            ),
        )

    def _secrets_key(self, name: str, args: EksClusterArgs) -> pulumi.Output[str]:
        key = Key(
            f"{name}-secrets",
            description=f"Kubernetes secrets of {args.cluster_name}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            tags=dict(args.tags),
            opts=self._child(),
        )
        return key.arn

    def _role(
        self, name: str, args: EksClusterArgs, role_name: str, trust: Mapping[str, Any], policies: Iterable[str]
    ) -> tuple[Role, list[pulumi.Resource]]:
        """Create a role with AWS managed policies."""
        role = Role(name, name=role_name, assume_role_policy=as_text(trust), tags=dict(args.tags), opts=self._child())
        return role, attached_policies(name, role, args.partition, policies, self._child())

    def _system_nodes(
        self,
        name: str,
        args: EksClusterArgs,
        cluster: pulumi.Output[str],
        group: pulumi.Input[str],
        daemons: Sequence[pulumi.Resource],
    ) -> NodeGroup:
        """Create the managed node group. Pulumi generates its name, so that a replacement can exist before the old one
        is deleted."""
        nodes = args.system_nodes
        role, attachments = self._role(
            f"{name}-node-role", args, f"{args.cluster_name}-system-nodes", node_trust(args.scope), NODE_POLICIES
        )
        template = self._launch_template(name, args, group)
        taints = [NodeGroupTaintArgs(key="CriticalAddonsOnly", value="true", effect="NO_SCHEDULE")]
        return NodeGroup(
            f"{name}-system-nodes",
            cluster_name=cluster,
            node_role_arn=role.arn,
            subnet_ids=args.network.control_plane_subnets,
            ami_type=nodes.ami_type,
            instance_types=list(nodes.instance_types),
            version=args.kubernetes_version,
            release_version=nodes.release_version,
            launch_template=NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            scaling_config=NodeGroupScalingConfigArgs(
                min_size=nodes.min_size, desired_size=nodes.desired_size, max_size=nodes.max_size
            ),
            update_config=NodeGroupUpdateConfigArgs(max_unavailable=1),
            labels={**nodes.labels, **SYSTEM_NODE_LABELS},
            taints=taints if nodes.critical_addons_only else None,
            tags=dict(args.tags),
            opts=self._child(*args.network.needs, *attachments, *daemons),
        )

    def _launch_template(self, name: str, args: EksClusterArgs, group: pulumi.Input[str]) -> LaunchTemplate:
        """Create a launch template with a hop limit of 1, so that pods cannot use the node's credentials. EKS's own
        template does not limit it."""
        return LaunchTemplate(
            f"{name}-system-nodes",
            description=f"System nodes of {args.cluster_name}",
            vpc_security_group_ids=[group],
            metadata_options=LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
            ),
            block_device_mappings=[
                LaunchTemplateBlockDeviceMappingArgs(
                    device_name=ROOT_DEVICE,
                    ebs=LaunchTemplateBlockDeviceMappingEbsArgs(
                        volume_size=args.system_nodes.disk_gib,
                        volume_type="gp3",
                        encrypted="true",
                        delete_on_termination="true",
                    ),
                )
            ],
            tag_specifications=[
                LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=args.tagged("system-nodes"))
                for kind in ("instance", "volume", "network-interface")
            ],
            update_default_version=True,
            tags=args.tagged("system-nodes"),
            opts=self._child(),
        )

    def _addons(
        self,
        name: str,
        args: EksClusterArgs,
        cluster: pulumi.Output[str],
        addons: Iterable[str],
        needs: Sequence[pulumi.Resource],
    ) -> dict[str, pulumi.Resource]:
        """Create the add-ons in exact versions, each after its prerequisites; return them by name."""
        made: dict[str, pulumi.Resource] = {}
        for addon in addons:
            values = addon_configuration(args, addon)
            identities, granted = self._volume_identity(name, args) if addon == EBS_CSI_DRIVER else (None, [])
            made[addon] = Addon(
                f"{name}-{addon}",
                cluster_name=cluster,
                addon_name=addon,
                addon_version=args.addons[addon],
                configuration_values=json.dumps(values) if values else None,
                # If the settings in the cluster and in the add-on differ, the add-on's take precedence.
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="OVERWRITE",
                pod_identity_associations=identities,
                tags=dict(args.tags),
                opts=self._child(*needs, *granted),
            )
        return made

    def _volume_identity(
        self, name: str, args: EksClusterArgs
    ) -> tuple[list[AddonPodIdentityAssociationArgs], list[pulumi.Resource]]:
        """Create the IAM role with which the driver creates volumes, and its association. The nodes' own role is out of
        its reach."""
        role, attachments = self._role(
            f"{name}-volumes",
            args,
            f"{args.cluster_name}-ebs-csi-driver",
            pod_identity_trust(),
            ["service-role/AmazonEBSCSIDriverPolicy"],
        )
        identity = AddonPodIdentityAssociationArgs(role_arn=role.arn, service_account="ebs-csi-controller-sa")
        return [identity], attachments

    def _access(self, name: str, args: EksClusterArgs, cluster: pulumi.Output[str]) -> list[pulumi.Resource]:
        """Create access entries of administrators and of other IAM principals, with their access policies."""
        made: list[pulumi.Resource] = []
        for key, arn in args.admins.items():
            entry = self._entry(f"{name}-admin-{key}", args, cluster, ClusterAccess(principal=arn))
            everything = AccessPolicy(policy=ADMINISTRATOR)
            made += [entry, self._association(f"{name}-admin-{key}-policy", args, cluster, entry, everything)]
        for key, access in args.access.items():
            entry = self._entry(f"{name}-access-{key}", args, cluster, access)
            granted = [
                self._association(f"{name}-access-{key}-{each.policy}", args, cluster, entry, each)
                for each in access.policies
            ]
            made += [entry, *granted]
        return made

    def _entry(
        self, name: str, args: EksClusterArgs, cluster: pulumi.Output[str], access: ClusterAccess
    ) -> AccessEntry:
        return AccessEntry(
            name,
            cluster_name=cluster,
            principal_arn=access.principal,
            type="STANDARD",
            kubernetes_groups=list(access.groups) or None,
            tags=dict(args.tags),
            opts=self._child(),
        )

    def _association(
        self, name: str, args: EksClusterArgs, cluster: pulumi.Output[str], entry: AccessEntry, access: AccessPolicy
    ) -> AccessPolicyAssociation:
        scope = AccessPolicyAssociationAccessScopeArgs(
            type="namespace" if access.namespaces else "cluster", namespaces=list(access.namespaces) or None
        )
        return AccessPolicyAssociation(
            name,
            cluster_name=cluster,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{args.partition}:eks::aws:cluster-access-policy/{access.policy}",
            access_scope=scope,
            opts=self._child(),
        )

    def _discovery_tags(self, name: str, args: EksClusterArgs) -> list[pulumi.Resource]:
        """Tag existing subnets for discovery by Karpenter, which otherwise finds no subnet for its nodes."""
        if args.network.discoverable:
            return []
        return [
            Tag(
                f"{name}-discovery-{zone}",
                resource_id=subnet,
                key=DISCOVERY_TAG,
                value=args.cluster_name,
                opts=self._child(),
            )
            for zone, subnet in args.network.private_subnets.items()
        ]


def control_plane_trust() -> dict[str, Any]:
    """Return the trust policy that lets EKS assume the control plane's role
    (https://docs.aws.amazon.com/eks/latest/userguide/cluster-iam-role.html)."""
    return policy_document(
        {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": ["sts:AssumeRole"]}
    )
