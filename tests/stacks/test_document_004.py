"""The stack `dev` is the environment of document 004, key by key, but for one table."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import Plan, revealed
from tests.conftest import ROOT, Gpufleet, MakeProject
from tests.recording import release

GOLDEN = ROOT / "tests" / "golden"
SEEDS = ROOT.parent / "shared" / "seeds"

ABSENT = "absent"

DEVIATIONS: dict[tuple[str, str], tuple[object, object, str]] = {
    ("default", "spec.limits.cpu"): (1000, "1000", "the API server stores text: a number would be a change for ever"),
    ("default", "spec.template.spec.expireAfter"): (ABSENT, "720h", "Karpenter's default, said: it drains nodes"),
    ("default", "spec.template.spec.terminationGracePeriod"): (
        ABSENT,
        "6h",
        "runners are not to be disturbed: without it one keeps an expired node for ever; the longest job",
    ),
    ("default", "kubernetes.io/arch"): (
        ABSENT,
        ("In", "amd64"),
        "cheaper ARM types qualify too, and images of runners are for one architecture",
    ),
    ("default", "karpenter.sh/capacity-type"): (
        ABSENT,
        ("In", "on-demand"),
        "spot is the default of Karpenter",
    ),
    ("nvdia-gpu", "metadata.name"): ("nvdia-gpu", "gpu", "misspelt, and it is a label of every node"),
    ("nvdia-gpu", "spec.disruption.consolidationPolicy"): (
        ABSENT,
        "WhenEmpty",
        "Karpenter's default, WhenEmptyOrUnderutilized, evicts running jobs",
    ),
    ("nvdia-gpu", "spec.disruption.consolidateAfter"): (
        ABSENT,
        "30s",
        "Karpenter's default, 0s, gives a node back between two jobs; as the document's other pool",
    ),
    ("nvdia-gpu", "spec.limits.nvidia.com/gpu"): (
        ABSENT,
        "40",
        "CPUs and memory bound no bill of GPUs: four of them, each ten times, are what 128Gi hold",
    ),
    ("nvdia-gpu", "spec.template.spec.expireAfter"): (ABSENT, "720h", "Karpenter's default, said: it drains nodes"),
    ("nvdia-gpu", "spec.template.spec.terminationGracePeriod"): (ABSENT, "6h", "as for the other pool"),
    ("plugin", "version"): ("0.17.0", "0.20.0", "feature discovery has become part of the chart since"),
    ("plugin", "config.name"): ("", ABSENT, "left out, the chart takes the ConfigMap of its own all the same"),
    ("plugin", "config.map.default.sharing.timeSlicing.failRequestsGreaterThanOne"): (
        ABSENT,
        True,
        "the plugin's default gives a pod that asks for two shares two of one GPU",
    ),
    ("workload", "metadata.namespace"): (ABSENT, "default", "where kubectl puts it, said"),
    ("workload", "spec.template.spec.nodeSelector.karpenter.sh/nodepool"): (
        ABSENT,
        "gpu",
        "a toleration lets a pod in, and sends it nowhere",
    ),
    ("workload", "spec.template.spec.containers.0.image"): (
        "tensorflow/tensorflow:latest-gpu",
        "tensorflow/tensorflow:2.20.0-gpu",
        "another image from one day to the next",
    ),
    ("workload", "spec.template.spec.containers.0.imagePullPolicy"): (
        "Always",
        "IfNotPresent",
        "only a moving tag has to be pulled again",
    ),
    ("workload", "spec.template.spec.containers.0.resources.limits.nvidia.com/gpu"): (
        1,
        "1",
        "the API server stores text: a number would be a change for ever",
    ),
    ("cluster", "region"): (
        "ap-southeast-1",
        "us-east-1",
        "the table of instance types has g5 in no zone of the document's region",
    ),
}
"""By part and path: what the document says, what the stack says, and why."""


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """What is at the ends of a manifest, by its path; requirements by their key, whatever their order."""
    if path.endswith("requirements"):
        return {entry["key"]: (entry["operator"], *entry["values"]) for entry in value}
    if path == "config.map.default":
        value = yaml.safe_load(value)
    if isinstance(value, dict):
        below = value.items()
    elif isinstance(value, list):
        below = {str(position): each for position, each in enumerate(value)}.items()
    else:
        return {path: value}
    return {at: leaf for key, each in below for at, leaf in leaves(each, f"{path}.{key}".lstrip(".")).items()}


@pytest.fixture(scope="module")
def dev() -> Plan:
    return stack.read(ROOT, "dev").plan()


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((GOLDEN / f"document-004.{name}.yaml").read_text()))


def pool(plan: Plan, name: str) -> Any:
    """A NodePool of the plan."""
    (found,) = [each for each in plan.objects() if each["kind"] == "NodePool" and each["metadata"]["name"] == name]
    return revealed(found)


def parts(plan: Plan) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By part of the environment, what the document says and what the stack says."""
    default, gpu = read("pools")
    plugin = release(plan, "nvdp")
    kept = ("config",)
    ours = {key: plugin.values[key] for key in kept}
    (workload,) = [each for each in plan.objects() if each["kind"] == "Deployment"]
    return {
        "default": (leaves(default), leaves(pool(plan, "default"))),
        "nvdia-gpu": (leaves(gpu), leaves(pool(plan, "gpu"))),
        "plugin": (
            leaves(read("device-plugin")[0]) | {"version": "0.17.0", "namespace": "nvidia-device-plugin"},
            leaves(ours) | {"version": plugin.version, "namespace": plugin.namespace},
        ),
        "workload": (leaves(read("workload")[0]), leaves(revealed(workload))),
        "cluster": ({"region": "ap-southeast-1"}, {"region": stack.read(ROOT, "dev").settings.cluster.region}),
    }


def test_the_stack_is_the_document_but_for_the_table(dev: Plan) -> None:
    found = {}
    for part, (theirs, ours) in parts(dev).items():
        for path in theirs.keys() | ours.keys():
            pair = theirs.get(path, ABSENT), ours.get(path, ABSENT)
            if pair[0] != pair[1] or type(pair[0]) is not type(pair[1]):
                found[part, path] = pair
    assert found == {where: (theirs, ours) for where, (theirs, ours, _) in DEVIATIONS.items()}


def test_every_deviation_has_its_reason() -> None:
    assert all(reason for _, _, reason in DEVIATIONS.values())


def test_the_golden_workload_is_the_documents() -> None:
    found = list(SEEDS.glob("004_*.txt"))
    if not found:
        pytest.skip("no document 004 in a folder 'shared' beside the repository")
    text = found[0].read_text()
    (block,) = re.findall(r"```shell\n(kind: Deployment.*?)```", text, re.DOTALL)
    assert yaml.safe_load(block) == read("workload")[0]
    assert "ap-southeast-1" in text


# -- typed in literally -----------------------------------------------------------------------------------------------

LITERAL = ROOT / "tests" / "settings" / "document-004.error.yaml"
"""The document as it stands, with what it leaves unsaid said: Karpenter's defaults. The lines that refuse it are at the
top of the file."""

MENDED = {
    "ap-southeast-1": "us-east-1",
    "al2023@latest": "al2023@v20260512",
    "memory: 128Gi}": "memory: 128Gi, gpus: 4}",
    "        disruption: {": "        terminationGracePeriod: 6h\n        disruption: {",
}
"""What is refused, and the least that makes it possible."""

HARMFUL = {
    "cluster.nodePools.default": {"endless-drain"},
    "cluster.nodePools.default.rootVolume": {"small-disk"},
    "cluster.nodePools.nvdia-gpu.capacity": {"jobs-on-spot"},
    "cluster.nodePools.nvdia-gpu.rootVolume": {"small-disk"},
    "cluster.nodePools.nvdia-gpu.sharing": {"shared-gpu"},
    "cluster.nodePools.nvdia-gpu.sharing.timeSlicing.failRequestsGreaterThanOne": {"several-shares"},
    "cluster.nodePools.nvdia-gpu.disruption.consolidationPolicy": {"disturbed-jobs"},
    "cluster.nodePools.nvdia-gpu.disruption.consolidateAfter": {"hasty-removal"},
    "cluster.smokeWorkload": {"smoke-holds-node"},
    "cluster.smokeWorkload.image": {"mutable-image"},
}
"""What is left then, by setting: possible, and harmful."""


def test_what_is_possible_in_it_and_harmful_is_named(project: MakeProject, gpufleet: Gpufleet) -> None:
    text = LITERAL.read_text()
    for literal, mended in MENDED.items():
        assert literal in text
        text = text.replace(literal, mended)
    outcome = gpufleet("-C", project({"document-004": text}), "check", "document-004")
    found: dict[str, set[str]] = {}
    for line in outcome.out.splitlines()[:-1]:
        place, _, name = line.removesuffix("]").rpartition("[")
        found.setdefault(place.split(": ")[1], set()).add(name)
    assert found == HARMFUL
    assert outcome.code == 1
