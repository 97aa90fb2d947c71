"""The simulated account: what the program registers is there, and what moto lacks is answered as AWS would."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import boto3
import pulumi
import pytest
from pulumi_aws import Provider as Account
from pulumi_aws import ec2

from gpufleet.aws import AmiTerm
from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.nvidia import Mps
from gpufleet_tools.plan.plan import Plan, Release
from gpufleet_tools.sandbox.aws import device_plugin, karpenter, prices, system_nodes
from gpufleet_tools.sandbox.aws.account import account_of
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.control_plane import daemons
from gpufleet_tools.sandbox.control_plane.control_plane import free_ports
from tests.karpenter_module import karpenter_file
from tests.node_pools import DISCOVERY, GPU
from tests.recording import recorded
from tests.tools.sandbox import document_004

Aws = Callable[[str], Any]


@pytest.fixture(scope="session")
def karpenter_build() -> Path:
    """Karpenter, from this user's cache; built when missing, which takes minutes once."""
    return build.find()


def serve(karpenter_build: Path, folder: Path, plan: Plan) -> tuple[subprocess.Popen[bytes], int]:
    file = folder / "account.json"
    file.write_text(json.dumps(asdict(account_of(plan, document_004.CLUSTER))))
    (port,) = free_ports(1)
    daemon = daemons.python(
        "aws", "gpufleet_tools.sandbox.aws.server", str(file), str(karpenter_build), str(port), ready=bool
    )
    command = [daemon.program, *daemon.arguments]
    process = subprocess.Popen(command, env=dict(daemon.environment), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                return process, port
        except OSError:
            assert process.poll() is None
            time.sleep(0.05)
    raise AssertionError("it is not ready")


def clients(port: int) -> Aws:
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name=document_004.REGION)
    return lambda service: session.client(service, endpoint_url=f"http://127.0.0.1:{port}")


@pytest.fixture(scope="module")
def aws(karpenter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """Clients of a server with document 004's account."""
    process, port = serve(karpenter_build, tmp_path_factory.mktemp("aws"), document_004.plan())
    yield clients(port)
    process.kill()
    process.wait()


def discovered() -> list[dict[str, Any]]:
    ((key, value),) = DISCOVERY.items()
    return [{"Name": f"tag:{key}", "Values": [value]}]


def test_subnets_of_nodes_are_found_by_their_tag(aws: Aws) -> None:
    subnets = aws("ec2").describe_subnets(Filters=discovered())["Subnets"]
    assert sorted(subnet["AvailabilityZone"] for subnet in subnets) == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    (vpc,) = {subnet["VpcId"] for subnet in subnets}
    assert aws("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["CidrBlock"] == "10.0.0.0/16"


def test_the_rest_of_the_account_is_there(aws: Aws) -> None:
    (group,) = aws("ec2").describe_security_groups(Filters=discovered())["SecurityGroups"]
    assert group["GroupName"] == "nodes"
    assert aws("iam").get_role(RoleName="KarpenterNodeRole-cluster")
    assert aws("sqs").get_queue_url(QueueName="cluster")["QueueUrl"].endswith("/cluster")
    assert aws("eks").list_clusters()["clusters"] == ["cluster"]


def subnets(of: Aws) -> dict[str, str]:
    found = of("ec2").describe_subnets(Filters=discovered())["Subnets"]
    return {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in found}


@contextlib.contextmanager
def another(karpenter_build: Path, folder: Path, plan: Plan) -> Iterator[Aws]:
    process, port = serve(karpenter_build, folder, plan)
    yield clients(port)
    process.kill()
    process.wait()


def test_a_resource_has_the_same_id_whatever_else_there_is(aws: Aws, karpenter_build: Path, tmp_path: Path) -> None:
    plan = document_004.plan()
    fewer = dataclasses.replace(plan, resources=[each for each in plan.resources if each.name != "nodes-a"])
    with another(karpenter_build, tmp_path, fewer) as changed:
        assert subnets(changed).items() < subnets(aws).items()
        assert len(subnets(changed)) == 2


def test_subnets_of_another_are_found_by_the_tags_that_they_get(karpenter_build: Path, tmp_path: Path) -> None:
    def program() -> None:
        opts = pulumi.ResourceOptions(provider=Account("account", region=document_004.REGION))
        ((key, value),) = DISCOVERY.items()
        for number, zone in enumerate(("eu-west-1a", "eu-west-1c")):
            ec2.Tag(f"cluster-discovery-{zone}", resource_id=f"subnet-0000000{number}", key=key, value=value, opts=opts)

    with another(karpenter_build, tmp_path, recorded(program)) as found:
        assert sorted(subnets(found).values()) == ["eu-west-1a", "eu-west-1c"]


def products(aws: Aws, tenancy: str) -> dict[str, float]:
    asked = [{"Type": "TERM_MATCH", "Field": "tenancy", "Value": tenancy}]
    found = {}
    for product in aws("pricing").get_products(ServiceCode="AmazonEC2", Filters=asked)["PriceList"]:
        read = json.loads(product)
        (term,) = read["terms"]["OnDemand"].values()
        (dimension,) = term["priceDimensions"].values()
        found[read["product"]["attributes"]["instanceType"]] = float(dimension["pricePerUnit"]["USD"])
    return found


def test_prices_are_those_of_karpenters_own_list(aws: Aws) -> None:
    """Two that AWS has not changed for years (https://aws.amazon.com/ec2/instance-types/g4/)."""
    shared, dedicated = products(aws, "Shared"), products(aws, "Dedicated")
    assert shared["g4dn.2xlarge"] == 0.752
    assert shared["g5.2xlarge"] == 1.212
    assert len(shared) > 500
    assert dedicated
    assert all(".metal" in name for name in dedicated)
    assert not any(".metal" in name for name in shared)


def test_spot_costs_what_on_demand_does_in_every_zone(aws: Aws, karpenter_build: Path) -> None:
    history = aws("ec2").describe_spot_price_history()["SpotPriceHistory"]
    known = prices.on_demand(karpenter_build)
    assert all(float(each["SpotPrice"]) == known[each["InstanceType"]] for each in history)
    zones = {each["AvailabilityZone"] for each in history if each["InstanceType"] == "g5.2xlarge"}
    assert zones == {"eu-west-1a", "eu-west-1b", "eu-west-1c"}


@pytest.mark.parametrize(
    ("parameter", "architecture"),
    [
        ("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/x/image_id", "x86_64"),
        ("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/x/image_id", "arm64"),
        ("/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/latest/image_id", "x86_64"),
    ],
)
def test_an_alias_names_an_image_that_is_there(aws: Aws, parameter: str, architecture: str) -> None:
    image = aws("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    (found,) = aws("ec2").describe_images(Filters=[{"Name": "image-id", "Values": [image]}])["Images"]
    assert (found["ImageId"], found["Architecture"], found["State"]) == (image, architecture, "available")


def test_everything_else_is_motos(aws: Aws) -> None:
    with pytest.raises(aws("ssm").exceptions.ParameterNotFound):
        aws("ssm").get_parameter(Name="/mine")
    assert len(aws("ec2").describe_images(Owners=["amazon"])["Images"]) > 10
    assert aws("ec2").describe_capacity_reservations()["CapacityReservations"] == []
    assert aws("ec2").describe_placement_groups()["PlacementGroups"] == []


# -- configuration of Karpenter and the device plugin ------------------------------------------------------------------


def release(**values: Any) -> Release:
    found = karpenter.release_of(document_004.plan(**values))
    assert found
    return found


def test_environment_is_what_the_charts_template_makes_of_the_values() -> None:
    settings = {"batchMaxDuration": "20s", "vmMemoryOverheadPercent": 0.05, "ignoreDRARequests": False}
    variables = karpenter.from_values(release(settings=settings, logLevel="debug"))
    gates = variables.pop("FEATURE_GATES").split(",")
    assert "NodeOverlay=true" in gates
    assert "ReservedCapacity=true" in gates
    assert variables == {
        "KARPENTER_SERVICE": "karpenter",
        "SYSTEM_NAMESPACE": "kube-system",
        "BATCH_MAX_DURATION": "20s",
        "CLUSTER_NAME": "cluster",
        "CLUSTER_ENDPOINT": "https://cluster.example.com",
        "VM_MEMORY_OVERHEAD_PERCENT": "0.05",
        "INTERRUPTION_QUEUE": "cluster",
        "CPU_REQUESTS": "1000",
        "MEMORY_LIMIT": "1073741824",
        "LOG_LEVEL": "debug",
    }


def test_a_gate_that_is_off_there_is_off_here() -> None:
    assert "NodeOverlay=false" in karpenter.from_values(release(overlay=False))["FEATURE_GATES"]


def test_every_setting_of_the_chart_is_known() -> None:
    """The template itself says which setting becomes which variable."""
    template = karpenter_file("charts/karpenter/templates/deployment.yaml").read_text()
    said = re.findall(r"with \.Values\.settings\.(\w+) }}\s+- name: (\w+)", template)
    required = re.findall(r'- name: (\w+)\s+value: "{{ required .*? \(tpl \.Values\.settings\.(\w+) ', template)
    assert dict(said) | {setting: variable for variable, setting in required} == dict(karpenter.SETTINGS)


@pytest.mark.parametrize(("sharing", "replicas"), [(GPU.sharing, 10), (Mps(replicas=4), 4), (None, 1)])
def test_the_plugin_offers_what_its_configuration_says(sharing: Any, replicas: int) -> None:
    pool = dataclasses.replace(GPU, sharing=sharing)
    found = device_plugin.release_of(document_004.plan(gpu=pool))
    assert found
    assert device_plugin.offers_of(found) == {"default": device_plugin.Offer("nvidia.com/gpu", replicas)}


@pytest.mark.parametrize(("sharing", "replicas"), [(GPU.sharing, 10), (None, 1)])
def test_the_plugin_in_an_image_offers_what_user_data_says(sharing: Any, replicas: int) -> None:
    machines = dataclasses.replace(GPU.node_class, ami_terms=[AmiTerm(alias="bottlerocket@v1.53.0")])
    pool = dataclasses.replace(GPU, sharing=sharing, node_class=machines)
    assert device_plugin.built_in(document_004.plan(gpu=pool)) == {
        "nvidia-gpu": device_plugin.Offer("nvidia.com/gpu", replicas)
    }
    assert device_plugin.built_in(document_004.plan()) == {}


def test_a_partitioned_gpu_is_as_many_as_its_profile_has_instances() -> None:
    offer = device_plugin.Offer("nvidia.com/gpu", 1, "1g.10gb")
    types = instance_types()
    assert [offer.of_a_gpu(types[name].gpus) for name in ("p5.48xlarge", "p4d.24xlarge")] == [7, 4]


def test_no_system_nodes_without_a_node_group() -> None:
    assert system_nodes.system_nodes(document_004.plan(), document_004.REGION) == []
