"""What every component keeps to."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator

import pulumi
import pytest
from pulumi_kubernetes.core.v1 import Namespace

import gpufleet
from gpufleet import ExpectedGpus, GpuValidation, amd, arc, aws, bare_metal, nvidia
from gpufleet.amd import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from gpufleet.arc import (
    ArcController,
    ArcControllerArgs,
    ControllerReference,
    ExistingSecret,
    GithubApp,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
    RunnerResources,
    RunnerScaleSet,
    RunnerScaleSetArgs,
)
from gpufleet.aws import (
    AmiTerm,
    ApiEndpoint,
    CachedRegistry,
    EbsStorageClass,
    EbsStorageClassArgs,
    EcrImageCache,
    EcrImageCacheArgs,
    EfaDevicePlugin,
    EfaDevicePluginArgs,
    EksCluster,
    EksClusterArgs,
    EksNetwork,
    EksNetworkArgs,
    Irsa,
    Karpenter,
    KarpenterArgs,
    KarpenterNodePool,
    KarpenterNodePoolArgs,
    NetworkReference,
    NodeClass,
    Requirement,
    SecurityGroupTerm,
    SubnetTerm,
)
from gpufleet.bare_metal import (
    EtcdSnapshots,
    EtcdSnapshotsArgs,
    KubesprayCluster,
    KubesprayClusterArgs,
    KubesprayNode,
    NvidiaContainerToolkit,
    NvidiaContainerToolkitArgs,
    SnapshotBucket,
    SnapshotFolder,
    SshHost,
    SshLogin,
)
from gpufleet.nvidia import (
    NvidiaDevicePlugin,
    NvidiaDevicePluginArgs,
    NvidiaGpuOperator,
    NvidiaGpuOperatorArgs,
    TimeSlicing,
)
from gpufleet.problem import Problem
from gpufleet_tools.plan.plan import Plan, Resource
from tests.conftest import ROOT
from tests.recording import HOST_KEY, on_aws, on_cluster, on_hosts, recorded

AREAS = (gpufleet, amd, arc, aws, bare_metal, nvidia)
"""Packages with public names."""

TOKENS: dict[type[pulumi.ComponentResource], str] = {
    AmdGpuDevicePlugin: "gpu-runners:index:AmdGpuDevicePlugin",
    ArcController: "gpu-runners:index:ArcController",
    EbsStorageClass: "gpu-runners:index:EbsStorageClass",
    EcrImageCache: "gpu-runners:index:EcrImageCache",
    EfaDevicePlugin: "gpu-runners:index:EfaDevicePlugin",
    EksCluster: "gpu-runners:index:EksCluster",
    EksNetwork: "gpu-runners:index:EksNetwork",
    EtcdSnapshots: "gpu-runners:index:EtcdSnapshots",
    Karpenter: "gpu-runners:index:Karpenter",
    KubesprayCluster: "gpu-runners:index:KubesprayCluster",
    NvidiaContainerToolkit: "gpu-runners:index:NvidiaContainerToolkit",
    NvidiaDevicePlugin: "gpu-runners:index:NvidiaDevicePlugin",
    NvidiaGpuOperator: "gpu-runners:index:NvidiaGpuOperator",
    KarpenterNodePool: "gpu-runners:index:KarpenterNodePool",
    RunnerProject: "gpu-runners:index:RunnerProject",
    RunnerScaleSet: "gpu-runners:index:RunnerScaleSet",
}
"""Type tokens are part of every resource's identity in the state: one that changes replaces the whole subtree."""

ON_AWS = {EcrImageCache, EksCluster, EksNetwork, Karpenter}
"""Those that need a provider of AWS too."""

ON_HOSTS = {EtcdSnapshots, KubesprayCluster, NvidiaContainerToolkit}
"""Those that need a provider of commands and no cluster."""

ORG = "https://github.com/org"

ON_EKS = {
    "cluster_name": "ci",
    "region": "eu-west-1",
    "account_id": "111122223333",
    "cluster_endpoint": "https://ci.example",
}
CLUSTER = {
    "cluster_name": "ci",
    "region": "eu-west-1",
    "account_id": "111122223333",
    "kubernetes_version": "1.33",
    "network": NetworkReference(
        vpc_id="vpc-1",
        private_subnets={"eu-west-1a": "subnet-1", "eu-west-1b": "subnet-2"},
        cidr="10.0.0.0/16",
    ),
    "addons": {
        "vpc-cni": "v1.20.4-eksbuild.2",
        "kube-proxy": "v1.33.3-eksbuild.4",
        "eks-pod-identity-agent": "v1.3.8-eksbuild.2",
        "coredns": "v1.12.2-eksbuild.4",
    },
}
NETWORK = {"cluster_name": "ci", "region": "eu-west-1", "zones": ["eu-west-1a", "eu-west-1b"]}
NODE_CLASS = NodeClass(
    name="machines",
    role="nodes",
    ami_terms=[AmiTerm(alias="al2023@v20250501")],
    subnet_terms=[SubnetTerm(tags={"karpenter.sh/discovery": "cluster"})],
    security_group_terms=[SecurityGroupTerm(tags={"karpenter.sh/discovery": "cluster"})],
)

GPU_TYPES = Requirement(key="karpenter.k8s.aws/instance-family", operator="In", values=["g5"])

VALIDATION = GpuValidation(nodes={"gpu-1": ExpectedGpus(count=8)})

EXAMPLES: dict[str, tuple[type[pulumi.ComponentResource], object]] = {
    "AmdGpuDevicePlugin": (AmdGpuDevicePlugin, AmdGpuDevicePluginArgs()),
    "AmdGpuDevicePlugin with validation": (AmdGpuDevicePlugin, AmdGpuDevicePluginArgs(validation=VALIDATION)),
    "ArcController": (ArcController, ArcControllerArgs()),
    "EbsStorageClass": (EbsStorageClass, EbsStorageClassArgs(storage_class="gp3")),
    "EcrImageCache": (
        EcrImageCache,
        EcrImageCacheArgs(
            region="eu-west-1",
            account_id="111122223333",
            policy_name="ci-image-cache",
            registries={"quay": CachedRegistry(registry="quay.io")},
            node_roles=["nodes"],
        ),
    ),
    "EfaDevicePlugin": (EfaDevicePlugin, EfaDevicePluginArgs()),
    "EksCluster": (EksCluster, EksClusterArgs(**CLUSTER)),
    "EksCluster with everything": (
        EksCluster,
        EksClusterArgs(
            **CLUSTER | {"addons": CLUSTER["addons"] | {"aws-ebs-csi-driver": "v1.48.0-eksbuild.1"}},
            endpoint=ApiEndpoint(public=True, cidrs=["192.0.2.0/24"]),
            admins={"operations": "arn:aws:iam::111122223333:role/operations"},
        ),
    ),
    "EksNetwork": (EksNetwork, EksNetworkArgs(**NETWORK)),
    "EksNetwork without a way out": (
        EksNetwork,
        EksNetworkArgs(
            **NETWORK, nat="none", interface_endpoints=["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "sts"]
        ),
    ),
    "Karpenter": (Karpenter, KarpenterArgs(**ON_EKS)),
    "Karpenter with a token of its service account": (
        Karpenter,
        KarpenterArgs(**ON_EKS, identity=Irsa(provider_arn="arn", provider_url="https://oidc.example")),
    ),
    "KubesprayCluster": (
        KubesprayCluster,
        KubesprayClusterArgs(
            cluster="bare-metal",
            nodes=[
                KubesprayNode(
                    name="node-1",
                    address="192.0.2.1",
                    roles=["control_plane", "etcd", "worker"],
                    host_keys=[HOST_KEY],
                )
            ],
            login=SshLogin(user="ci", private_key="key"),
        ),
    ),
    "EtcdSnapshots": (
        EtcdSnapshots,
        EtcdSnapshotsArgs(
            hosts=[SshHost(name="gpu-1", address="192.0.2.1", host_keys=[HOST_KEY])],
            login=SshLogin(user="ci", private_key="key"),
            target=SnapshotFolder(path="/mnt/snapshots"),
        ),
    ),
    "EtcdSnapshots in S3": (
        EtcdSnapshots,
        EtcdSnapshotsArgs(
            hosts=[SshHost(name="gpu-1", address="192.0.2.1", host_keys=[HOST_KEY])],
            login=SshLogin(user="ci", private_key="key"),
            target=SnapshotBucket(
                bucket="lab-etcd", region="eu-west-1", access_key_id="AKIA0", secret_access_key="secret"
            ),
        ),
    ),
    "NvidiaContainerToolkit": (
        NvidiaContainerToolkit,
        NvidiaContainerToolkitArgs(
            hosts=[SshHost(name="gpu-1", address="192.0.2.1", host_keys=[HOST_KEY])],
            login=SshLogin(user="ci", private_key="key"),
            nvkind=True,
        ),
    ),
    "NvidiaDevicePlugin": (NvidiaDevicePlugin, NvidiaDevicePluginArgs()),
    "NvidiaDevicePlugin with sharing and a RuntimeClass": (
        NvidiaDevicePlugin,
        NvidiaDevicePluginArgs(sharing=TimeSlicing(replicas=10), runtime_class=True, runtime_class_name="nvidia"),
    ),
    "NvidiaGpuOperator": (NvidiaGpuOperator, NvidiaGpuOperatorArgs(host_toolkit_pinned=True)),
    "NvidiaGpuOperator with validation": (
        NvidiaGpuOperator,
        NvidiaGpuOperatorArgs(host_toolkit_pinned=True, validation=VALIDATION),
    ),
    "KarpenterNodePool without GPUs": (
        KarpenterNodePool,
        KarpenterNodePoolArgs(pool="cpu", node_class=NODE_CLASS, requirements=[], gpu_counts=()),
    ),
    "KarpenterNodePool with shared GPUs": (
        KarpenterNodePool,
        KarpenterNodePoolArgs(
            pool="gpu",
            node_class=NODE_CLASS,
            requirements=[GPU_TYPES],
            limits={"nvidia.com/gpu": "40"},
            termination_grace_period="6h",
            gpu_counts=[1, 4],
            sharing=TimeSlicing(replicas=10),
        ),
    ),
    "RunnerProject with a secret that exists": (
        RunnerProject,
        RunnerProjectArgs(
            config_url="https://github.com/org", namespace="project", credentials=ExistingSecret(name="existing")
        ),
    ),
    "RunnerProject with an App": (
        RunnerProject,
        RunnerProjectArgs(
            config_url=ORG,
            namespace="project",
            credentials=GithubApp(secret_name="app", app_id="1", installation_id="2", private_key="key"),
        ),
    ),
    "RunnerProject with a token": (
        RunnerProject,
        RunnerProjectArgs(
            config_url=ORG,
            namespace="project",
            credentials=GithubToken(secret_name="token", token="token"),
        ),
    ),
    "RunnerScaleSet": (
        RunnerScaleSet,
        RunnerScaleSetArgs(
            label="label",
            project=ProjectReference(
                config_url="https://github.com/org", namespace="project", credentials_secret="secret"
            ),
            controller=ControllerReference(service_account="account", namespace="arc"),
            min_runners=0,
            max_runners=1,
            resources=RunnerResources(cpu="1", memory="1Gi"),
        ),
    ),
}

of_every_class = pytest.mark.parametrize("cls", TOKENS, ids=lambda cls: cls.__name__)
of_every_example = pytest.mark.parametrize(("cls", "args"), EXAMPLES.values(), ids=list(EXAMPLES))


def modules() -> list[types.ModuleType]:
    """Every module of the package, public or not."""
    walked = pkgutil.walk_packages(gpufleet.__path__, "gpufleet.")
    return [importlib.import_module(module.name) for module in walked]


def defined(wanted: Callable[[type], bool]) -> set[type]:
    """Every class that a module of the package defines and that is wanted."""
    return {
        cls
        for module in modules()
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__ and wanted(cls)
    }


def args_of(cls: type) -> type:
    return getattr(area_of(cls), f"{cls.__name__}Args")


def area_of(cls: type) -> types.ModuleType:
    """The package that has a class among its public names."""
    (area,) = (each for each in AREAS if cls.__name__ in each.__all__)
    return area


def options(cls: type) -> pulumi.ResourceOptions:
    """The providers that a component of that class needs."""
    if cls in ON_HOSTS:
        return on_hosts()
    return on_aws() if cls in ON_AWS else on_cluster()


def example(cls: type, args: object, name: str = "under-test", **further: typing.Any) -> Plan:
    """A component of that class beside a resource that is not its own."""

    def build() -> None:
        opts = options(cls)
        before = Namespace("before", opts=opts)
        cls(name, args, pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[before], **further)))

    return recorded(build)


def itself(plan: Plan) -> Resource:
    (component,) = (resource for resource in plan.resources if resource.component and resource.parent is None)
    return component


def children(plan: Plan) -> list[Resource]:
    """What it registers, components that a provider makes among them."""
    others = ("before", "cluster", "account", "hosts")
    return [resource for resource in plan.resources if resource != itself(plan) and resource.name not in others]


# -- the public list --------------------------------------------------------------------------------------------------


def test_the_table_of_tokens_is_complete() -> None:
    assert set(TOKENS) == defined(lambda cls: issubclass(cls, pulumi.ComponentResource))


def test_there_is_an_example_of_every_component() -> None:
    assert {cls for cls, _ in EXAMPLES.values()} == set(TOKENS)


def test_every_component_and_its_arguments_are_public() -> None:
    for cls in TOKENS:
        area = area_of(cls)
        assert getattr(area, cls.__name__) is cls
        assert cls.__module__.startswith(area.__name__)
        assert f"{cls.__name__}Args" in area.__all__


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__)
def test_every_public_name_is_there(area: types.ModuleType) -> None:
    assert area.__all__
    for name in area.__all__:
        assert getattr(area, name).__module__.startswith(area.__name__)


@pytest.mark.process
def test_a_stack_without_aws_does_not_wait_for_its_sdk() -> None:
    program = """
import sys
from gpufleet.amd import AmdGpuDevicePlugin
from gpufleet.arc import RunnerScaleSet
from gpufleet.bare_metal import KubesprayCluster, NvidiaContainerToolkit
from gpufleet.nvidia import NvidiaGpuOperator
print(*(name for name in sys.modules if name.startswith(("pulumi_aws", "gpufleet.aws"))))
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Karpenters"):
        _ = aws.Karpenters


@of_every_class
def test_whatever_arguments_are_made_of_is_public(cls: type) -> None:
    public = {getattr(area, name) for area in AREAS for name in area.__all__}
    # `pulumi.Input` is made of names that only its own module knows.
    names = {"Output": pulumi.Output, "T": object}
    for name, hint in typing.get_type_hints(args_of(cls), localns=names).items():
        ours = {part for part in parts(hint) if isinstance(part, type) and part.__module__.startswith("gpufleet.")}
        assert ours <= public, f"{cls.__name__}Args.{name}"


def parts(hint: object) -> Iterator[object]:
    """A type hint and every type in it."""
    yield hint
    for part in typing.get_args(hint):
        yield from parts(part)


# -- constructors and arguments ---------------------------------------------------------------------------------------


@of_every_class
def test_a_constructor_takes_name_args_and_opts(cls: type) -> None:
    parameters = inspect.signature(cls).parameters
    assert list(parameters) == ["name", "args", "opts"]
    assert parameters["opts"].default is None
    hints = typing.get_type_hints(cls.__init__)
    assert hints["name"] is str
    assert args_of(cls) in parts(hints["args"])
    assert hints["opts"] == pulumi.ResourceOptions | None


@of_every_class
def test_a_component_without_needful_arguments_can_do_without_any(cls: type) -> None:
    needful = [
        field
        for field in dataclasses.fields(args_of(cls))
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    default = inspect.signature(cls).parameters["args"].default
    assert default is (inspect.Parameter.empty if needful else None)


@pytest.mark.parametrize("cls", sorted(defined(dataclasses.is_dataclass), key=str), ids=lambda cls: cls.__name__)
def test_plain_data_is_frozen_keyword_only_and_explained(cls: type) -> None:
    assert cls.__dataclass_params__.frozen
    # A problem is written a hundred times: where, which, what.
    assert cls is Problem or all(field.kw_only for field in dataclasses.fields(cls))
    (tree,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(tree, ast.ClassDef)
    assert ast.get_docstring(tree)
    assert unexplained(tree) == []


@pytest.mark.parametrize("cls", sorted(defined(dataclasses.is_dataclass), key=str), ids=lambda cls: cls.__name__)
def test_no_attribute_of_plain_data_can_be_changed_in_place(cls: type) -> None:
    """For a type checker: `args.values["key"] = …` would change a resource that is registered later, or not at all."""
    names = {"Output": pulumi.Output, "T": object}
    for name, hint in typing.get_type_hints(cls, localns=names).items():
        changeable = {part for part in parts(hint) if (typing.get_origin(part) or part) in (dict, list, set)}
        assert not changeable, f"{cls.__name__}.{name} is a {changeable}; write Mapping or Sequence"


@of_every_class
def test_a_component_and_its_attributes_are_explained(cls: type) -> None:
    (tree,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(tree, ast.ClassDef)
    assert ast.get_docstring(tree)
    assert unexplained(tree) == []
    assert cls.__annotations__["ready"] == "pulumi.Resource"


def unexplained(tree: ast.ClassDef) -> list[str]:
    """Attributes with no string below them."""
    after = [*tree.body[1:], None]
    return [
        ast.unparse(statement.target)
        for statement, following in zip(tree.body, after, strict=True)
        if isinstance(statement, ast.AnnAssign)
        and not (
            isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        )
    ]


# -- what they register -----------------------------------------------------------------------------------------------


@of_every_example
def test_the_token_is_that_of_the_table(cls: type, args: object) -> None:
    assert itself(example(cls, args)).type == TOKENS[cls]


@of_every_example
def test_outputs_are_registered(cls: type, args: object) -> None:
    assert itself(example(cls, args)).outputs is not None


@of_every_example
def test_children_are_its_own_and_named_after_it(cls: type, args: object) -> None:
    """One alias moves a component with all its children only where their names begin with its own."""
    plan = example(cls, args)
    assert children(plan)
    for child in children(plan):
        assert child.parent == itself(plan).urn
        assert child.name == "under-test" or child.name.startswith("under-test-")


@of_every_example
def test_two_of_a_kind_have_nothing_in_common(cls: type, args: object) -> None:
    first, second = ({child.urn for child in children(example(cls, args, name))} for name in ("one", "two"))
    assert first.isdisjoint(second)


@of_every_example
def test_the_callers_options_are_the_components_alone(cls: type, args: object) -> None:
    """A child that had them too would apply them twice, and `ignore_changes` would name inputs that it lacks."""
    plan = example(cls, args, ignore_changes=["nothing"], aliases=[pulumi.Alias(name="old")])
    (before,) = (resource.urn for resource in plan.resources if resource.name == "before")
    component = itself(plan)
    assert component.depends_on == (before,)
    assert component.options == {"ignoreChanges": ["nothing"], "aliases": ["old"]}
    for child in children(plan):
        assert before not in child.depends_on
        # pulumi-command's SDK says of every command what replaces it; the rest a component may say of its own accord.
        own = {
            "additionalSecretOutputs",
            "customTimeouts",
            "deleteBeforeReplace",
            "replaceOnChanges",
            "deletedWith",
            "protect",
        }
        assert child.options.keys() <= own
        assert child.options.get("replaceOnChanges", ["triggers[*]"]) == ["triggers[*]"]


@of_every_example
def test_what_depends_on_ready_waits_for_resources_of_the_component(cls: type, args: object) -> None:
    def build() -> None:
        opts = options(cls)
        component = cls("under-test", args, opts)
        Namespace("after", opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=component.ready)))

    plan = recorded(build)
    (after,) = (resource for resource in plan.resources if resource.name == "after")
    assert after.depends_on
    assert set(after.depends_on) <= {child.urn for child in children(plan)}
