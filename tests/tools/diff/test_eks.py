"""A series of pull requests to a stack on EKS, and what `gpufleet diff` says of each."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT, Generated
from tests.tools.diff.pull_requests import AWS, PullRequest, Repository, check, compare

FILE = "Pulumi.aws.yaml"
GPU_LIMITS, RUNNER = "limits: {cpu: 80, gpus: 4}", AWS.splitlines(keepends=True)[-1]
NVIDIA = AWS[AWS.index("    nvidia:\n") : AWS.index("    cpu: {pool")]
GPU_POOL = AWS[AWS.index("      gpu:\n") : AWS.index("  gpu-runners:projects:")]

PULL_REQUESTS: dict[str, PullRequest] = {
    "change-the-gpu-pools-families": PullRequest(
        edits=((FILE, "families: [g4dn, g5]", "families: [g5]"),),
        headline="changes for users",
        users="1 label changed; cost per hour at max: aws 4.93 USD → 6.77 USD",
        resources="1 updated; pool gpu: instances g4dn, g5 → g5",
        says=(
            "accelerator NVIDIA T4 or NVIDIA A10G, shared by 10 → NVIDIA A10G, shared by 10;"
            " cost per hour at max 3.01 USD → 4.85 USD; instance families g4dn, g5 → g5 |",
            "- cost per hour at max 4.93 USD → 6.77 USD (us-east-1 on-demand list price of ",
            "; spot is usually lower)",
        ),
    ),
    "change-time-slicing-replicas": PullRequest(
        edits=((FILE, "replicas: 10", "replicas: 5"),),
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in aws",
        users="1 label changed; cost per hour at max: aws 4.93 USD → 4.93 USD with 20 jobs waiting",
        resources="3 updated; pool gpu: jobs on a GPU 10 → 5",
        says=(
            "shared by 10 → NVIDIA T4 or NVIDIA A10G, shared by 5; guaranteed 40 → 20; burst 40 → 20",
            "- NodeOverlay gpu-1-gpus updated",
            "- Release nvidia-device-plugin updated",
            "-              replicas: 10\n+              replicas: 5",
        ),
    ),
    "change-time-slicing-replicas-and-the-maximum": PullRequest(
        edits=((FILE, "replicas: 10", "replicas: 5"), (FILE, "max: 40}", "max: 20}")),
        headline="changes for users",
        users="1 label changed",
        resources="4 updated; pool gpu: jobs on a GPU 10 → 5",
    ),
    "change-time-slicing-replicas-and-mean-it": PullRequest(
        edits=((FILE, "replicas: 10", "replicas: 5"), (FILE, GPU_LIMITS, f"{GPU_LIMITS}\n        overcommit: allowed")),
        headline="changes for users",
        users="1 label changed; cost per hour at max: aws 4.93 USD → 4.93 USD with 20 jobs waiting",
        resources="3 updated; pool gpu: jobs on a GPU 10 → 5",
    ),
    "whole-gpus": PullRequest(
        edits=(
            (FILE, "        sharing: {timeSlicing: {replicas: 10}}\n", ""),
            (FILE, "max: 40}", "max: 4}"),
        ),
        headline="changes for users",
        users="1 label changed",
        resources="1 deleted, 4 updated; pool gpu: jobs on a GPU 10 → 1",
        says=("shared by 10 → NVIDIA T4 or NVIDIA A10G; max 40 → 4; guaranteed 40 → 4; burst 40 → 4",),
    ),
    "open-the-eks-endpoint": PullRequest(
        edits=((FILE, "[203.0.113.0/24]", "[0.0.0.0/0], openToTheWorld: true"),),
        code=1,
        headline="refused: open-endpoint",
        refused="open-endpoint in aws",
        resources="1 updated",
        says=(
            "cluster.endpoint.publicAccessFrom[0]: 0.0.0.0/0 admits nearly every address",
            "-- 203.0.113.0/24\n+- 0.0.0.0/0",
        ),
    ),
    "open-the-eks-endpoint-without-saying-so": PullRequest(
        edits=((FILE, "[203.0.113.0/24]", "[0.0.0.0/0]"),),
        code=2,
        headline="refused: invalid",
        invalid="Pulumi.aws.yaml:10: cluster.endpoint",
        says=("0.0.0.0/0' is wider than /8",),
    ),
    "open-the-eks-endpoint-and-mean-it": PullRequest(
        edits=((FILE, "[203.0.113.0/24]", "[0.0.0.0/0], openToTheWorld: true"),),
        options=("--allow", "open-endpoint"),
        resources="1 updated",
        says=("**open-endpoint** in aws (allowed)",),
    ),
    "bump-kubernetes-by-a-minor": PullRequest(
        edits=((FILE, '"1.34"', '"1.35"'), (FILE, "v1.34.6-eksbuild.11", "v1.35.3-eksbuild.21")),
        headline="changes for users",
        users="2 labels changed",
        resources="2 that may be replaced, 1 updated",
        says=("Cluster gpu updated: Kubernetes 1.34 → 1.35: EKS upgrades one minor version at a time and cannot",),
    ),
    "add-a-pool": PullRequest(
        edits=(
            (
                FILE,
                "      gpu:\n",
                "      big:\n"
                "        instances: {families: [m6i], cpus: [64], hypervisor: nitro}\n"
                "        amis: [{alias: al2023@v20260512}]\n"
                "        limits: {cpu: 128}\n"
                "        terminationGracePeriod: 6h\n"
                "      gpu:\n",
            ),
        ),
        resources="2 created; pool big: new, instances m6i; limits 128 cores",
    ),
    "add-a-stack": PullRequest(
        new={"Pulumi.second.yaml": AWS.replace("name: gpu\n", "name: second\n").replace("    linux-", "    second-")},
        headline="changes for users",
        users="2 labels added; cost per hour at max: second 4.93 USD",
        resources="93 created",
    ),
    "remove-a-pool-that-a-runner-uses": PullRequest(
        edits=((FILE, GPU_POOL, ""),),
        code=2,
        headline="refused: invalid",
        invalid="Pulumi.aws.yaml:30: profiles.nvidia.pool",
    ),
    "remove-a-pool-with-its-runner": PullRequest(
        edits=((FILE, GPU_POOL, ""), (FILE, RUNNER, ""), (FILE, NVIDIA, "")),
        code=1,
        headline="refused: label-removed",
        refused="label-removed in aws",
        users="1 label removed; cost per hour at max: aws 4.93 USD → 1.92 USD",
        resources="6 deleted, 1 updated; pool gpu: removed, instances g4dn, g5; limits 80 cores, 4 GPUs;"
        " jobs on a GPU 10",
        says=("| `linux-nvidia-gpu` | aws | removed |",),
    ),
    "lower-limits-below-the-maxima": PullRequest(
        edits=((FILE, GPU_LIMITS, "limits: {cpu: 80, gpus: 3}"),),
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in aws",
        users="1 label changed; cost per hour at max: aws 4.93 USD → 4.18 USD with 10 jobs waiting",
        resources="1 updated; pool gpu: limits 80 cores, 4 GPUs → 80 cores, 3 GPUs",
        says=("guaranteed 40 → 30; burst 40 → 30",),
    ),
    "raise-max-beyond-the-limits": PullRequest(
        edits=((FILE, "max: 40}", "max: 41}"),),
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in aws",
        users="1 label changed; cost per hour at max: aws 4.93 USD → 4.93 USD with 1 job waiting",
        resources="1 updated",
        says=("max 40 → 41", "do not fit within its limits (80 cores, 4 GPUs) on any instance type"),
    ),
    "change-the-vpcs-addresses": PullRequest(
        edits=((FILE, "{kind: own, zones", "{kind: own, cidr: 10.1.0.0/16, zones"),),
        code=1,
        headline="refused: protected",
        refused="protected in aws",
        resources="5 replaced, 1 that may be replaced",
        says=(
            "- Vpc gpu-network replaced: cidrBlock is create-only",
            "- Subnet gpu-network-private-us-east-1a replaced: cidrBlock is create-only",
            "- stack aws: resources that use the ID of a replaced AWS resource are replaced or updated too",
        ),
    ),
    "change-a-zone": PullRequest(
        edits=((FILE, "zones: [us-east-1a, us-east-1b]", "zones: [us-east-1a, us-east-1d]"),),
        code=1,
        headline="refused: control-plane-zones",
        refused="control-plane-zones in aws",
        resources="6 deleted, 1 replaced, 1 that may be replaced, 1 updated, 6 created",
        says=(
            "zones of the control plane us-east-1a, us-east-1b → us-east-1a, us-east-1d: EKS keeps the zones",
            "set controlPlaneZones: [us-east-1a, us-east-1b] there",
            "Subnet gpu-network-private-us-east-1b deleted",
        ),
    ),
    "add-a-zone": PullRequest(
        edits=((FILE, "zones: [us-east-1a, us-east-1b]", "zones: [us-east-1a, us-east-1b, us-east-1d]"),),
        code=1,
        headline="refused: control-plane-zones",
        refused="control-plane-zones in aws",
        resources="1 replaced, 1 that may be replaced, 1 updated, 6 created",
    ),
    "remove-a-zone-of-jobs": PullRequest(
        first=(
            (
                FILE,
                "zones: [us-east-1a, us-east-1b]",
                "zones: [us-east-1a, us-east-1b, us-east-1d], controlPlaneZones: [us-east-1a, us-east-1b]",
            ),
        ),
        edits=((FILE, ", us-east-1d], controlPlaneZones: [us-east-1a, us-east-1b]", "]"),),
        code=1,
        headline="refused: zone-removed",
        refused="zone-removed in aws",
        resources="6 deleted, 1 that may be replaced",
        says=("zone us-east-1d of the network is removed", "--allow zone-removed"),
    ),
    "add-a-zone-for-jobs": PullRequest(
        edits=(
            (
                FILE,
                "zones: [us-east-1a, us-east-1b]",
                "zones: [us-east-1a, us-east-1b, us-east-1d], controlPlaneZones: [us-east-1a, us-east-1b]",
            ),
        ),
        resources="1 that may be replaced, 6 created",
        says=("Subnet gpu-network-private-us-east-1d created",),
    ),
    "open-the-endpoint-to-more-networks": PullRequest(
        edits=((FILE, "[203.0.113.0/24]", "[203.0.113.0/25, 203.0.113.128/25, 198.51.100.0/24, 10.0.0.0/8]"),),
        code=1,
        headline="refused: endpoint-opened",
        refused="endpoint-opened in aws",
        resources="1 updated",
        says=("10.0.0.0/8 and 198.51.100.0/24 may newly reach the public endpoint of the API server, until now",),
    ),
    "close-the-endpoint-to-some-networks": PullRequest(
        edits=((FILE, "[203.0.113.0/24]", "[203.0.113.128/25]"),),
        resources="1 updated",
    ),
    "move-to-another-account": PullRequest(
        edits=((FILE, '"111122223333"', '"444455556666"'),),
        code=1,
        headline="refused: cluster-moved",
        refused="cluster-moved in aws",
        resources="cluster of aws moves, account 111122223333 → 444455556666",
        says=("or create a second stack, deprecate the labels of this one",),
    ),
    "switch-off-protection": PullRequest(
        edits=((FILE, "    network: {kind: own", "    deletionProtection: false\n    network: {kind: own"),),
        code=1,
        headline="refused: protection-removed",
        refused="protection-removed in aws",
        resources="2 updated; not protected from deletion: gpu: deletionProtection: false",
        says=("Cluster gpu and Vpc gpu-network would no longer be protected",),
    ),
    "take-the-device-plugin-back": PullRequest(
        edits=(
            (
                FILE,
                "  gpu-runners:projects:\n",
                "  gpu-runners:nvidiaPlugin: {version: 0.17.0}\n  gpu-runners:projects:\n",
            ),
        ),
        code=1,
        headline="refused: downgrade",
        refused="downgrade in aws",
        resources="1 updated",
        says=("NVIDIA's device plugin 0.20.0 → 0.17.0",),
    ),
    "buy-spot-and-end-jobs-sooner": PullRequest(
        edits=(
            (
                FILE,
                "        taints: [{key",
                "        capacity: [spot]\n        zones: [us-east-1b]\n        taints: [{key",
            ),
            (
                FILE,
                "limits: {cpu: 80, gpus: 4}\n        terminationGracePeriod: 6h",
                "limits: {cpu: 80, gpus: 4}\n        terminationGracePeriod: 10m",
            ),
        ),
        code=1,
        headline="refused: spot-capacity, shorter-grace-period",
        refused="spot-capacity in aws, shorter-grace-period in aws",
        users="1 label changed",
        resources=(
            "1 updated; pool gpu: capacity on-demand → spot; terminationGracePeriod 6h → 10m; zones any → us-east-1b"
        ),
        says=("capacity on-demand → spot; terminationGracePeriod 6h → 10m; zones any → us-east-1b |",),
    ),
    "rename-the-eks-cluster": PullRequest(
        edits=((FILE, "    name: gpu\n", "    name: gpus\n"),),
        code=1,
        headline="refused: cluster-moved",
        refused="cluster-moved in aws",
        users="2 labels changed",
        resources="cluster of aws moves, name gpu → gpus",
        says=("it would create an empty one, and delete this one with all jobs",),
    ),
    "change-the-nvidia-plugin": PullRequest(
        edits=(
            (
                FILE,
                "  gpu-runners:projects:\n",
                "  gpu-runners:nvidiaPlugin: {featureDiscovery: true}\n  gpu-runners:projects:\n",
            ),
        ),
        resources="1 updated",
    ),
}
"""Those of a label, a secret and a node are the same on every cluster: tests/fleet/test_diff.py has them."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("diff-eks") / "repository", {"aws": AWS})


@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_pull_request(name: str, repository: Repository) -> None:
    check(name, PULL_REQUESTS[name], repository, {})


GOLDEN = (
    "change-time-slicing-replicas",
    "open-the-eks-endpoint",
    "move-to-another-account",
    "buy-spot-and-end-jobs-sooner",
    "switch-off-protection",
)


@pytest.mark.generated
@pytest.mark.parametrize("name", GOLDEN)
def test_the_comment_is_the_golden_one(name: str, repository: Repository, generated: Generated) -> None:
    said = compare(repository, repository.opened(name, PULL_REQUESTS[name]), "--format", "markdown")[1]
    generated(ROOT / f"tests/golden/diff/{name}.md", said)
