"""The rules that every program has to keep: for each, what breaks it and what does not."""

from __future__ import annotations

import ast
import copy
import datetime
import json
import pathlib
import runpy
import sys
import types
from typing import Any

import pytest

from gpufleet_tools.check import policy_findings
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import RELEASE, UNKNOWN, Hidden, Plan, Resource
from gpufleet_tools.policy import rules as policy
from gpufleet_tools.policy.cloud import (
    CLUSTER,
    CLUSTER_COMPONENT,
    GROUP,
    GROUP_RULE,
    INGRESS_RULE,
    INSTANCE,
    LAUNCH_TEMPLATE,
    NODE_CLASS,
)
from gpufleet_tools.policy.pods import moves
from gpufleet_tools.policy.rules import is_acknowledged
from tests.conftest import PACKAGES, ROOT, Gpufleet, MakeProject

POD, DAEMONS, SECRET = "kubernetes:core/v1:Pod", "kubernetes:apps/v1:DaemonSet", "kubernetes:core/v1:Secret"
BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
ATTACHMENT, IAM = "aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:iam/policy:Policy"
QUEUE, COMMAND = "aws:sqs/queue:Queue", "command:remote:Command"
SETS = "oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set"
DIGEST = "busybox@sha256:" + "0" * 64


def pod(image: str = DIGEST, name: str = "shell", **rest: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": image, **rest}]}}


def host_path(path: str) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "a", "hostPath": {"path": path}}]}}


def daemons(image: str, name: str) -> dict[str, Any]:
    return {"spec": {"template": pod(image, name, securityContext={"privileged": True})}}


def release(chart: str = SETS, **values: Any) -> dict[str, Any]:
    return {"chart": chart, "values": values}


def runner(name: str) -> dict[str, Any]:
    return release(template=pod(name=name, securityContext={"privileged": True}))


def template(volume: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    volumes = [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"} | (volume or {})}]
    safe = {"httpTokens": "required", "httpPutResponseHopLimit": 1}
    return {"blockDeviceMappings": volumes, "metadataOptions": safe | options}


def document(action: Any, resource: Any, effect: str = "Allow") -> dict[str, Any]:
    return {"policy": json.dumps({"Statement": [{"Effect": effect, "Action": action, "Resource": resource}]})}


HOST_PATHS = ("/srv/models", "/etc/kubernetes-models/", "/etc/kubernetes", "/var/run")
"""What the stack file allows in these cases: some of it gives pods their node all the same."""

BROKEN = {
    "a privileged pod": (POD, pod(securityContext={"privileged": True}), "privileged-pod"),
    "all of a node by capability": (
        POD,
        pod(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        "privileged-pod",
    ),
    "processes of the node": (POD, {"spec": {"hostPID": True, "containers": []}}, "privileged-pod"),
    "a runner that is privileged itself": (RELEASE, runner("runner"), "privileged-pod"),
    "a daemon of another chart": (
        RELEASE,
        {**runner("dind"), "chart": "oci://registry.example.com/charts/shell"},
        "privileged-pod",
    ),
    "a plugin that is another's": (DAEMONS, daemons("registry.example.com/x:1.0", "device-plugin"), "privileged-pod"),
    "a validation with another image": (
        DAEMONS,
        daemons("registry.example.com/x:1.0", "gpu-validation"),
        "privileged-pod",
    ),
    "kernel modules by capability": (
        POD,
        pod(securityContext={"capabilities": {"add": ["CAP_SYS_MODULE"]}}),
        "privileged-pod",
    ),
    "other processes by capability": (
        POD,
        pod(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_PTRACE"]}}),
        "privileged-pod",
    ),
    "the network of the node": (POD, {"spec": {"hostNetwork": True, "containers": []}}, "privileged-pod"),
    "all of the node's files": (POD, host_path("/"), "host-path"),
    "Docker's socket": (RELEASE, release(template=host_path("/var/run/docker.sock")), "host-path"),
    "containerd's socket": (POD, host_path("/run/containerd/containerd.sock"), "host-path"),
    "the cluster's own credentials": (POD, host_path("//etc/./kubernetes/"), "host-path"),
    "a folder above all sockets": (POD, host_path("/srv/../var/run"), "host-path"),
    "a folder that the stack file does not allow": (POD, host_path("/srv"), "host-path"),
    "a folder beside an allowed one": (RELEASE, release(template=host_path("/srv/models-of-others")), "host-path"),
    "a folder above an allowed one by its dots": (POD, host_path("/srv/models/../data"), "host-path"),
    "a folder of the device plugin's, of another pod": (
        POD,
        {"spec": pod()["spec"] | host_path("/sys")["spec"]},
        "host-path",
    ),
    "a rolling tag": (POD, pod("example/runner:rolling"), "mutable-image"),
    "no tag": (POD, pod("registry.example.com:5000/shell"), "mutable-image"),
    "a moving tag in a chart": (RELEASE, release(template=pod("example/runner:main")), "mutable-image"),
    "a secret's data": (SECRET, {"data": {"key": "c2VjcmV0"}}, "plain-secret"),
    "a token among values": (RELEASE, release(githubConfigSecret={"github_token": "abc"}), "plain-secret"),
    "a token by its name": (POD, pod(env=[{"name": "HF_TOKEN", "value": "correct-horse"}]), "plain-secret"),
    "a variable in a chart": (RELEASE, release("chart", env={"DB_PASSWORD": "correct-horse"}), "plain-secret"),
    "a token by its look": (POD, pod(env=[{"name": "X", "value": "npm_" + "a1" * 18}]), "plain-secret"),
    "a password among values": (RELEASE, release("chart", auth={"adminPassword": "abc"}), "plain-secret"),
    "what looks like a key": (
        RELEASE,
        release("chart", config="-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"),
        "plain-secret",
    ),
    "two hops": (LAUNCH_TEMPLATE, template(httpPutResponseHopLimit=2), "reachable-metadata"),
    "two hops, as the engine counts": (LAUNCH_TEMPLATE, template(httpPutResponseHopLimit=2.0), "reachable-metadata"),
    "hops left to the account": (INSTANCE, {}, "reachable-metadata"),
    "no token": (LAUNCH_TEMPLATE, template(httpTokens="optional"), "reachable-metadata"),
    "two hops to a node of Karpenter": (
        NODE_CLASS,
        {"spec": {"metadataOptions": {"httpPutResponseHopLimit": 2}}},
        "reachable-metadata",
    ),
    "everybody": (
        CLUSTER_COMPONENT,
        {"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"], "encryptionConfigKeyArn": "arn"},
        "open-endpoint",
    ),
    "everybody by default": (CLUSTER_COMPONENT, {"encryptionConfigKeyArn": "arn"}, "open-endpoint"),
    "half of everybody": (
        CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["128.0.0.0/1"]}, "encryptionConfig": {"resources": ["secrets"]}},
        "open-endpoint",
    ),
    "all ports": (
        GROUP,
        {"ingress": [{"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}]},
        "open-ports",
    ),
    "all ports of TCP": (
        GROUP_RULE,
        {"type": "ingress", "protocol": "tcp", "fromPort": 0, "toPort": 65535, "ipv6CidrBlocks": ["::/0"]},
        "open-ports",
    ),
    "all ports in a rule of its own": (INGRESS_RULE, {"ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0"}, "open-ports"),
    "SSH": (
        INGRESS_RULE,
        {"ipProtocol": "tcp", "fromPort": 20, "toPort": 30.0, "cidrIpv4": "0.0.0.0/1"},
        "open-ports",
    ),
    "a plain volume": (LAUNCH_TEMPLATE, template({"encrypted": "false"}), "unencrypted"),
    "a plain volume of Karpenter's": (
        NODE_CLASS,
        {"spec": {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {}}]}},
        "unencrypted",
    ),
    "a plain disk": ("aws:ebs/volume:Volume", {"size": 10}, "unencrypted"),
    "plain messages": (QUEUE, {"name": "a"}, "unencrypted"),
    "Kubernetes secrets": (CLUSTER_COMPONENT, {"endpointPublicAccess": False}, "unencrypted"),
    "the account": (ATTACHMENT, {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}, "admin-policy"),
    "the account, spelled out": (IAM, document("*", "*"), "admin-policy"),
    "the account, among others": (IAM, document(["s3:GetObject", "iam:*"], ["*"]), "admin-policy"),
    "the cluster": (BINDING, {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}, "admin-policy"),
    "a toolkit that the next upgrade takes": (
        COMMAND,
        {"create": "apt-get install -y nvidia-container-toolkit=1.17.8-1 && apt-mark hold nvidia-container-toolkit"},
        "unheld-toolkit",
    ),
}

KEPT = {
    "a pod like any other": (POD, pod(securityContext={"privileged": False})),
    "a capability without rights": (POD, pod(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}})),
    "an allowed folder": (POD, host_path("/srv/models")),
    "a folder in an allowed one": (RELEASE, release(template=host_path("//srv/models/llama/"))),
    "an allowed folder whose name begins alike": (POD, host_path("/etc/kubernetes-models")),
    "the folders of AMD's plugin": (
        DAEMONS,
        {
            "spec": {
                "containers": [{"name": "device-plugin", "image": "rocm/k8s-device-plugin:1.31.0.9"}],
                "volumes": [
                    {"name": path, "hostPath": {"path": path}}
                    for path in ("/var/lib/kubelet/device-plugins", "/sys", "/dev", "/run/gpufleet")
                ],
            }
        },
    ),
    "a token from a secret": (
        POD,
        pod(env=[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token"}}}]),
    ),
    "variables that only sound like secrets": (
        POD,
        pod(env=[{"name": "TOKENIZERS_PARALLELISM", "value": "false"}, {"name": "MAX_TOKENS", "value": "512"}]),
    ),
    "HTTPS for everybody": (
        GROUP,
        {"ingress": [{"protocol": "tcp", "fromPort": 443, "toPort": 443, "cidrBlocks": ["0.0.0.0/0"]}]},
    ),
    "all ports for a network": (GROUP, {"ingress": [{"protocol": "-1", "cidrBlocks": ["10.0.0.0/8"]}]}),
    "all ports on the way out": (
        GROUP_RULE,
        {"type": "egress", "protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]},
    ),
    "a runner's Docker daemon": (RELEASE, runner("dind")),
    "AMD's plugin": (DAEMONS, daemons("docker.io/rocm/k8s-device-plugin:1.31.0.9", "device-plugin")),
    "a test of GPUs, from a mirror": (DAEMONS, daemons("registry.example.com/test-runner:v1", "gpu-validation")),
    "AMD's labeller, from a mirror": (DAEMONS, daemons("registry.example.com/k8s-device-plugin:2", "node-labeller")),
    "a version": (POD, pod("registry.example.com:5000/shell:1.2")),
    "a secret's name": (RELEASE, release(githubConfigSecret="pre-defined-secret")),
    "a secret that is one": (RELEASE, release(githubConfigSecret={"github_token": Hidden("abc")})),
    "a secret's data that is one": (SECRET, {"data": {"key": Hidden("abc")}}),
    "a switch of that name": (RELEASE, release(automountServiceAccountToken=True, auth={"password": ""})),
    "a safe template": (LAUNCH_TEMPLATE, template()),
    "no metadata at all": (INSTANCE, {"metadataOptions": {"httpEndpoint": "disabled", "httpTokens": "optional"}}),
    "Karpenter's defaults": (NODE_CLASS, {"spec": {}}),
    "named networks": (
        CLUSTER_COMPONENT,
        {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"], "encryptionConfigKeyArn": UNKNOWN},
    ),
    "no public endpoint": (
        CLUSTER,
        {"vpcConfig": {"endpointPublicAccess": False}, "encryptionConfig": {"resources": ["secrets"]}},
    ),
    "a key of its own": (QUEUE, {"kmsMasterKeyId": UNKNOWN}),
    "rights to nothing": (IAM, document("*", "*", "Deny")),
    "all of one bucket": (IAM, document("s3:*", "arn:aws:s3:::a/*")),
    "a policy that is not known yet": (IAM, {"policy": UNKNOWN}),
    "a policy of AWS's that is narrow": (
        ATTACHMENT,
        {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"},
    ),
    "a role of its own": (BINDING, {"roleRef": {"kind": "ClusterRole", "name": "node-labeller"}}),
    "another package": (COMMAND, {"create": "apt-get install -y jq"}),
    "somebody else's resource": ("random:index/randomPassword:RandomPassword", {"length": 8}),
}


def broken(type_token: str, properties: dict[str, Any]) -> set[str]:
    """Names of the rules that a resource breaks."""
    return {rule.name for rule in policy.rules(HOST_PATHS) if list(rule.judge(type_token, "a", properties))}


@pytest.mark.parametrize(("type_token", "properties", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_rule_is_broken(type_token: str, properties: dict[str, Any], rule: str) -> None:
    assert rule in broken(type_token, properties)
    if type_token not in (INSTANCE, CLUSTER, CLUSTER_COMPONENT):
        assert broken(type_token, properties) == {rule}


@pytest.mark.parametrize(("type_token", "properties"), KEPT.values(), ids=KEPT)
def test_every_rule_is_kept(type_token: str, properties: dict[str, Any]) -> None:
    assert broken(type_token, properties) == set()


def test_every_rule_is_broken_by_something() -> None:
    assert {rule for _, _, rule in BROKEN.values()} == policy.NAMES


def offered_by_the_pack(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names of the pack's policies and what their levels do, from the pack's own module with a stand-in for the SDK."""

    class Part(types.SimpleNamespace):
        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)

    packs: list[Any] = []
    deserialize = types.ModuleType("deserialize")
    proxy = types.ModuleType("proxy")
    sdk = types.ModuleType("pulumi_policy")
    vars(deserialize).update(_deserialize_property=None)
    vars(proxy).update(UnknownValueError=KeyError)
    names = ("ReportViolation", "ResourceValidation", "ResourceValidationArgs")
    vars(sdk).update(dict.fromkeys(names, object), deserialize=deserialize)
    vars(sdk).update(EnforcementLevel=types.SimpleNamespace(MANDATORY="error", ADVISORY="warning"))
    vars(sdk).update(ResourceValidationPolicy=Part, PolicyPack=lambda **fields: packs.append(Part(**fields)))
    for name, module in (("", sdk), (".deserialize", deserialize), (".proxy", proxy)):
        monkeypatch.setitem(sys.modules, f"pulumi_policy{name}", module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "policy/__main__.py"), run_name="policy_pack")
    (pack,) = packs
    return {each.name: each.enforcement_level for each in pack.policies}


def test_check_and_the_pack_have_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --policy` finds, in a program with every fault, what the pack is made of."""
    resources = tuple(
        Resource(
            urn=f"urn:{number}",
            type=kind,
            name="a",
            parent=None,
            component=False,
            read_id=None,
            provider=None,
            depends_on=(),
            inputs=inputs,
            options={},
            outputs=None,
        )
        for number, (kind, inputs, _) in enumerate(BROKEN.values())
    )
    found = policy_findings.findings(Plan(stack="lab", resources=resources, exports={}), ())
    assert {each.name: each.severity for each in found} == offered_by_the_pack(monkeypatch)


@pytest.mark.parametrize("case", [*BROKEN.values(), *((*case, "") for case in KEPT.values())])
def test_nothing_that_is_unknown_breaks_or_stops_a_rule(case: tuple[str, dict[str, Any], str]) -> None:
    """A preview knows less than an update: any part of a resource may not be known yet."""
    type_token, properties, _ = case
    for path in paths(properties):
        with_gap = copy.deepcopy(properties)
        parent: Any = with_gap
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = UNKNOWN
        assert broken(type_token, with_gap) <= broken(type_token, properties)


def paths(value: Any) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in [(key,), *((key, *rest) for rest in paths(item))]]


def test_the_engine_has_nothing_but_the_standard_library() -> None:
    """The policy pack imports these modules in an environment without ours."""
    seen, todo = set(), ["gpufleet_tools/policy/rules.py"]
    roots = {package.name: package.parent for package in PACKAGES}

    def file(place: str) -> pathlib.Path:
        return roots.get(place.partition("/")[0], ROOT) / place

    while todo:
        place = todo.pop()
        seen.add(place)
        for node in ast.walk(ast.parse(file(place).read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [f"{modules[0]}.{alias.name}" for alias in node.names] if modules else []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            ours = {f"{module.replace('.', '/')}.py" for module in [*modules, *names]}
            todo += [each for each in ours if file(each).is_file() and each not in seen]
            assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names | roots.keys()
    assert seen == {
        *(f"gpufleet_tools/policy/{name}.py" for name in ("rules", "pods", "cloud")),
        "gpufleet_tools/plan/plan.py",
        "gpufleet_stacks/settings/secrets.py",
    }


# -- as findings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stack.names(ROOT))
def test_the_committed_stacks_keep_every_rule(name: str, gpufleet: Gpufleet) -> None:
    """Or have said so among their settings: nothing is reported twice."""
    plain, judged = (gpufleet("-C", ROOT, "check", name, *more).out for more in ((), ("--policy",)))
    assert plain == judged


DEV = (ROOT / "Pulumi.dev.yaml").read_text()
HOPS = DEV.replace("        limits: {cpu: 1000}\n", "        limits: {cpu: 1000}\n        metadataHopLimit: 2\n")
ACKNOWLEDGED = """
  gpu-runners:acknowledged:
    - {finding: reachable-metadata, path: cluster.nodePools.default, reason: known, until: 2027-03-31}
"""


def test_a_broken_rule_is_a_finding_at_its_setting(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"dev": HOPS})
    line = HOPS[: HOPS.index("      default:")].count("\n") + 1
    said = gpufleet("-C", root, "check", "--policy").out
    assert (
        f"Pulumi.dev.yaml:{line}: cluster.nodePools.default: error: EC2NodeClass default-node-class: instance"
        " metadata is reachable from pods (hop limit 2; use 1) [reachable-metadata]"
    ) in said.splitlines()
    assert "[reachable-metadata]" not in gpufleet("-C", root, "check").out
    assert "[reachable-metadata]" in gpufleet("-C", root, "preview", "dev").err


@pytest.mark.parametrize("more", [(), ("--policy",)])
def test_a_broken_rule_is_acknowledged(project: MakeProject, gpufleet: Gpufleet, more: tuple[str, ...]) -> None:
    said = gpufleet("-C", project({"dev": HOPS + ACKNOWLEDGED}), "check", "--on", "2027-01-31", *more).out
    assert "reachable-metadata" not in said


def test_an_acknowledgement_of_a_rule_that_is_kept_is_told(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"dev": DEV + ACKNOWLEDGED})
    assert "unused-acknowledgement" not in gpufleet("-C", root, "check").out
    assert "unused-acknowledgement" in gpufleet("-C", root, "check", "--policy").out


def test_what_a_setting_says_is_not_said_again(project: MakeProject, gpufleet: Gpufleet) -> None:
    image = DEV.replace("tensorflow/tensorflow:2.20.0-gpu", "tensorflow/tensorflow:latest")
    world = image.replace("publicAccessFrom: [203.0.113.0/24]", "publicAccessFrom: [0.0.0.0/0], openToTheWorld: true")
    said = gpufleet("-C", project({"dev": world}), "check", "--policy").out
    assert said.count("tensorflow/tensorflow:latest") == 1
    assert said.count("0.0.0.0/0") == 1


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("tensorflow/tensorflow", True),
        ("tensorflow/tensorflow:latest", True),
        ("tensorflow/tensorflow:latest-gpu", True),
        ("registry.example.com:5000/a/b:cuda12.4-latest", True),
        ("registry.example.com:5000/a/b", True),
        ("a/b:main", True),
        ("a/b:nightly", True),
        ("a/b:rolling", True),
        ("a/b:rolling-full", True),
        ("a/b:canary", True),
        ("a/b:main-2027.1", False),
        ("a/b:stable-3f2a9c1", False),
        ("a/b:nightly-20270115", False),
        ("a/b:greatest", False),
        ("latest/main:1.0", False),
        ("a/b:2.20.0-gpu", False),
        (f"a/b:latest-gpu@sha256:{'0' * 64}", False),
    ],
)
def test_which_references_move(reference: str, expected: bool) -> None:
    assert moves(reference) is expected


# -- what the pack bears ----------------------------------------------------------------------------------------------

LAST = datetime.date(2027, 3, 31)


@pytest.mark.parametrize(
    ("entry", "resource", "today", "expected"),
    [
        ({}, "anything", LAST, True),
        ({"finding": "unencrypted"}, "anything", LAST, False),
        ({}, "anything", LAST + datetime.timedelta(days=1), False),
        ({"path": "cluster"}, "anything", LAST, True),
        ({"path": "runners.linux-gpu"}, "linux-gpu", LAST, True),
        ({"path": "runners.linux-gpu"}, "linux-cpu", LAST, False),
        ({"path": "cluster.nodePools.gpu"}, "gpu-node-class", LAST, True),
        ({"path": "cluster.nodePools.gpu"}, "gpux-node-class", LAST, False),
    ],
)
def test_what_is_acknowledged(entry: dict[str, Any], resource: str, today: datetime.date, expected: bool) -> None:
    entries = [{"finding": "reachable-metadata", "until": "2027-03-31", **entry}]
    assert is_acknowledged("reachable-metadata", resource, entries, today) is expected
