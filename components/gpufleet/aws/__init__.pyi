"""EKS clusters, their networks, Karpenter and its node pools."""

from .eks.cluster import EksCluster as EksCluster
from .eks.cluster_args import ApiEndpoint as ApiEndpoint
from .eks.cluster_args import ClusterCredentials as ClusterCredentials
from .eks.cluster_args import EksClusterArgs as EksClusterArgs
from .eks.cluster_args import EksClusterReference as EksClusterReference
from .eks.cluster_args import SystemNodes as SystemNodes
from .eks.network import EksNetwork as EksNetwork
from .eks.network_args import EksNetworkArgs as EksNetworkArgs
from .eks.network_args import NetworkReference as NetworkReference
from .karpenter.controller import FeatureGates as FeatureGates
from .karpenter.controller import Irsa as Irsa
from .karpenter.controller import Karpenter as Karpenter
from .karpenter.controller import KarpenterArgs as KarpenterArgs
from .karpenter.controller import KarpenterReference as KarpenterReference
from .karpenter.controller import PodIdentity as PodIdentity
from .karpenter.node_pool import KarpenterNodePool as KarpenterNodePool
from .karpenter.node_pool_args import AmiTerm as AmiTerm
from .karpenter.node_pool_args import CapacityReservationTerm as CapacityReservationTerm
from .karpenter.node_pool_args import Disruption as Disruption
from .karpenter.node_pool_args import DisruptionBudget as DisruptionBudget
from .karpenter.node_pool_args import KarpenterNodePoolArgs as KarpenterNodePoolArgs
from .karpenter.node_pool_args import Kubelet as Kubelet
from .karpenter.node_pool_args import NodeClass as NodeClass
from .karpenter.node_pool_args import Requirement as Requirement
from .karpenter.node_pool_args import SecurityGroupTerm as SecurityGroupTerm
from .karpenter.node_pool_args import SubnetTerm as SubnetTerm
