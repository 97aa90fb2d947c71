"""A series of pull requests to a repository made from this one, and what `gpufleet diff` says of each."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpufleet.arc.controller import ARC_VERSION
from gpufleet.arc.scale_set_args import RUNNER_IMAGE
from gpufleet_tools.diff.difference import Difference, difference
from gpufleet_tools.diff.evaluation import Evaluation
from gpufleet_tools.diff.revisions import Compared, Revision
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, Generated
from tests.tools.diff.pull_requests import LAB, Edit, PullRequest, Repository, check, compare
from tests.tools.diff.pull_requests import MI300 as MI300_TEXT

DIGEST = RUNNER_IMAGE.partition("@")[2]
OTHER_DIGEST = "sha256:" + "0" * 64

PYYAML = importlib.metadata.version("pyyaml")
MINOR = ARC_VERSION.rpartition(".")[0]
OLDER = "0.13.1"
PROJECTS = "  gpu-runners:projects:\n"

GOLDEN = ROOT / "tests/golden/diff"

MI300, CONDUCTOR, RUNNERS = (
    "Pulumi.mi300.yaml",
    "stacks/gpufleet_stacks/bare_metal.py",
    "stacks/gpufleet_stacks/runners.py",
)


def deprecated(until: str, use: str = "") -> Edit:
    last = "      docker: true\n"
    return MI300, last, f"{last}      deprecated: {{until: {until}{use}}}\n"


CROWDED = "no guaranteed job for {}: other labels can take all of the pool"
RENAME: Edit = (MI300, "    linux-mi300-gpu-2:\n", "    linux-mi300-2-gpu:\n")
SANTA_CLARA = "          santa-clara-1: {address: 198.51.100.21}\n"
SECRET = "  gpu-runners:test-cluster-privateKey: {secure: v1:first}\n"
PREFIXED: Edit = (RUNNERS, "RunnerScaleSet(label, args, opts)", 'RunnerScaleSet(f"set-{label}", args, opts)')
ALIASED: Edit = (
    RUNNERS,
    "RunnerScaleSet(label, args, opts)",
    'RunnerScaleSet(f"set-{label}", args, pulumi.ResourceOptions.merge('
    "opts, pulumi.ResourceOptions(aliases=[pulumi.Alias(name=label)])))",
)
GONE_LATER = deprecated("2026-11-30")

PULL_REQUESTS: dict[str, PullRequest] = {
    "a-comment": PullRequest(edits=((MI300, "# Two projects", "# Two projects,"),), headline="no changes"),
    "add-a-runner": PullRequest(
        edits=(
            (
                MI300,
                "    mi300-cluster:\n",
                "    linux-mi300-gpu-1: {project: pytorch, profile: pytorch, gpus: 1, cpu: 20, memory: 200Gi, max: 2}\n"
                "    mi300-cluster:\n",
            ),
        ),
        headline="changes for users",
        users=f"1 label changed, 1 label added; {CROWDED.format('linux-mi300-gpu-1')}",
        resources="1 created",
        says=(
            "| `linux-mi300-gpu-1` | mi300 | added, GPUs 1; accelerator AMD MI300X; CPU 20; memory 200Gi; min 0; max 2",
        ),
    ),
    "raise-max-beyond-the-pool": PullRequest(
        edits=((MI300, "      max: 8\n", "      max: 30\n"),),
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in mi300",
        users=f"2 labels changed; {CROWDED.format('linux-mi300-gpu-2')}",
        resources="1 updated",
        says=("all labels at their max request 42 of 24 GPUs", "max 8 → 30", "+  maxRunners: 30"),
    ),
    "raise-max-and-mean-it": PullRequest(
        edits=((MI300, "      max: 8\n", "      max: 30\n"),),
        options=("--allow", "overcommitted"),
        headline="changes for users",
        users=f"2 labels changed; {CROWDED.format('linux-mi300-gpu-2')}",
        resources="1 updated",
        says=("**overcommitted** in mi300 (allowed)",),
    ),
    "rename-a-label": PullRequest(
        edits=(RENAME,),
        code=1,
        headline="refused: label-renamed",
        refused="label-renamed in mi300",
        users="1 label renamed",
        resources="1 deleted, 1 created",
        says=("| `linux-mi300-gpu-2` | mi300 | renamed to linux-mi300-2-gpu |", "use: linux-mi300-2-gpu}"),
    ),
    "rename-a-label-too-early": PullRequest(
        first=(deprecated("2026-12-01"),),
        edits=((MI300, "      deprecated: {until: 2026-12-01}\n", ""), RENAME),
        code=1,
        headline="refused: label-renamed",
        refused="label-renamed in mi300",
        users="1 label renamed",
        resources="1 deleted, 1 created",
        says=("before its announced expiry date, 2026-12-01; keep it until then",),
    ),
    "rename-a-label-in-time": PullRequest(
        first=(GONE_LATER,),
        edits=((MI300, "      deprecated: {until: 2026-11-30}\n", ""), RENAME),
        headline="changes for users",
        users="1 label renamed",
        resources="1 deleted, 1 created",
    ),
    "end-a-label-sooner": PullRequest(
        first=(deprecated("2027-06-30"),),
        edits=((MI300, "until: 2027-06-30}", "until: 2027-02-28}"),),
        code=1,
        headline="refused: deprecation-shortened",
        refused="deprecation-shortened in mi300",
        users="1 label changed",
        says=("was announced to expire on 2027-06-30 and would now expire on 2027-02-28",),
    ),
    "announce-the-end-of-a-label": PullRequest(
        first=((MI300, "https://github.com/example/test-cluster\n", "https://github.com/pytorch\n"),),
        edits=(deprecated("2027-06-30", ", use: mi300-cluster"),),
        headline="changes for users",
        users="1 label changed",
        says=("served until none → 2027-06-30; use instead none → mi300-cluster",),
    ),
    "announce-a-replacement-for-others": PullRequest(
        edits=(deprecated("2027-06-30", ", use: mi300-cluster"),),
        code=1,
        headline="refused: deprecated-to-nowhere",
        refused="deprecated-to-nowhere in mi300",
        users="1 label changed",
        says=("serves jobs of https://github.com/example/test-cluster, not of https://github.com/pytorch",),
    ),
    "serve-other-users": PullRequest(
        edits=((MI300, "configUrl: https://github.com/pytorch\n", "configUrl: https://github.com/example\n"),),
        code=1,
        headline="refused: label-reassigned, config-url-changed",
        refused="label-reassigned in mi300, config-url-changed in mi300",
        users="1 label reassigned",
        resources="1 updated",
        says=(
            "label linux-mi300-gpu-2 changes its users (jobs of ",
            "ARC keeps the ID of the scale set at the old URL",
        ),
    ),
    "rename-the-project": PullRequest(
        edits=(("Pulumi.yaml", "name: gpu-runners\n", "name: fleet\n"),),
        code=1,
        headline="refused: project-renamed",
        refused="project-renamed in lab, project-renamed in mi300",
        resources="{all} deleted, {all} created",
        says=("would create all of them a second time", "pulumi stack rename ORGANIZATION/fleet/STACK"),
    ),
    "skip-a-scale-set-in-the-program": PullRequest(
        edits=(
            (
                "stacks/gpufleet_stacks/runners.py",
                "    for label, runner in settings.runners.items():\n",
                "    for label, runner in settings.runners.items():\n"
                "        if label == 'mi300-cluster':\n            continue\n",
            ),
        ),
        code=1,
        headline="refused: scale-set-removed",
        refused="scale-set-removed in mi300",
        users="1 label changed",
        resources="1 deleted",
        says=("| `mi300-cluster` | mi300 | scale set created → none |",),
    ),
    "take-docker-away": PullRequest(
        edits=((MI300, "      docker: true\n", "      docker: false\n"),),
        headline="changes for users",
        users="1 label changed",
        resources="1 updated",
        says=("Docker yes → no",),
    ),
    "bump-arc-by-a-minor": PullRequest(
        edits=(
            (MI300, "  gpu-runners:projects:\n", "  gpu-runners:arc: {version: 0.99.0}\n  gpu-runners:projects:\n"),
        ),
        code=1,
        headline="refused: arc-minor-version",
        refused="arc-minor-version in mi300",
        resources="3 updated",
        says=(f"ARC {ARC_VERSION} → 0.99.0 with 2 scale sets installed",),
    ),
    "upgrade-arc": PullRequest(
        first=((MI300, "  gpu-runners:projects:\n", f"  gpu-runners:arc: {{version: {OLDER}}}\n{PROJECTS}"),),
        edits=((MI300, f"{{version: {OLDER}}}", f"{{version: {ARC_VERSION}, upgradeFrom: {OLDER}}}"),),
        headline="no change for users",
        resources="3 updated, 6 created",
        says=(
            "- upgrade of ARC, step 1: the API server rejects deletions of scale sets by ARC's controller",
            f"- upgrade of ARC, step 2: ARC's CRDs are updated to {ARC_VERSION}",
            f"- upgrade of ARC, step 3: controller {ARC_VERSION} replaces {OLDER}; listeners and runners continue",
            f"- upgrade of ARC, step 4: 2 scale sets get chart {ARC_VERSION}: listeners restart; running jobs,",
            "- note: arc.upgradeFrom: ",
        ),
    ),
    "upgrade-arc-from-another-version": PullRequest(
        first=((MI300, "  gpu-runners:projects:\n", f"  gpu-runners:arc: {{version: {OLDER}}}\n{PROJECTS}"),),
        edits=((MI300, f"{{version: {OLDER}}}", f"{{version: {ARC_VERSION}, upgradeFrom: {OLDER}0}}"),),
        code=1,
        headline="refused: arc-upgrade",
        refused="arc-upgrade in mi300",
        resources="3 updated, 6 created",
        says=(f"arc.upgradeFrom is {OLDER}0, but the base has ARC {OLDER}; set arc.upgradeFrom to {OLDER}",),
    ),
    "roll-arc-back": PullRequest(
        edits=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                f"  gpu-runners:arc: {{version: {OLDER}, upgradeFrom: {ARC_VERSION}}}\n{PROJECTS}",
            ),
        ),
        headline="no change for users",
        resources="3 updated, 2 created",
        says=("- upgrade of ARC, step 2: ARC's CRDs stay",),
    ),
    "finish-the-upgrade-of-arc": PullRequest(
        first=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                f"  gpu-runners:arc: {{version: {ARC_VERSION}, upgradeFrom: {OLDER}}}\n{PROJECTS}",
            ),
        ),
        edits=((MI300, f", upgradeFrom: {OLDER}", ""),),
        headline="no change for users",
        resources="6 deleted",
        says=(
            f"- upgrade of ARC to {ARC_VERSION} ends: only its admission policy is deleted, CRDs stay",
            "retainOnDelete: removed from Pulumi's state only",
        ),
    ),
    "arc-patch": PullRequest(
        edits=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                f"  gpu-runners:arc: {{version: {MINOR}.99}}\n  gpu-runners:projects:\n",
            ),
        ),
        resources="3 updated",
    ),
    "rotate-a-secret": PullRequest(
        edits=((MI300, "v1:first", "v1:second"),),
        resources="2 updated; secret test-cluster-privateKey is changed",
        says=(
            "- secret test-cluster-privateKey is changed",
            "- listeners of 1 label restart; running jobs continue: mi300-cluster",
            "-  github_app_private_key: <secret>\n+  github_app_private_key: <another secret>",
        ),
    ),
    "rotate-a-secret-whose-key-has-no-namespace": PullRequest(
        first=((MI300, "gpu-runners:test-cluster-privateKey", "test-cluster-privateKey"),),
        edits=((MI300, "v1:first", "v1:second"),),
        resources="2 updated; secret test-cluster-privateKey is changed",
    ),
    "change-what-is-kept-in-a-secret": PullRequest(
        edits=((MI300, 'appId: "1000001"', 'appId: "1000002"'),),
        resources="2 updated",
        says=(
            "-  github_app_id: <secret>\n+  github_app_id: <another secret>",
            "- listeners of 1 label restart; running jobs continue: mi300-cluster",
        ),
    ),
    "forget-a-secret": PullRequest(
        edits=((MI300, SECRET, ""),),
        code=1,
        headline="refused: missing-secret",
        refused="missing-secret in mi300",
        resources="2 updated; secret test-cluster-privateKey is removed",
    ),
    "add-a-node": PullRequest(
        edits=((MI300, SANTA_CLARA, SANTA_CLARA + "          santa-clara-2: {address: 198.51.100.22}\n"),),
        resources="nothing; pool mi300x: 3 nodes with 24 GPUs → 4 nodes with 32 GPUs",
    ),
    "remove-a-node": PullRequest(
        edits=((MI300, SANTA_CLARA, ""),),
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in mi300",
        users="1 label changed",
        resources="nothing; pool mi300x: 3 nodes with 24 GPUs → 2 nodes with 16 GPUs",
        says=("request 20 of 16 GPUs", "guaranteed 8 → 4"),
    ),
    "delete-a-stack": PullRequest(
        gone=("Pulumi.lab.yaml",),
        code=1,
        headline="refused: label-removed",
        refused="label-removed in lab (2)",
        users="2 labels removed",
        resources="{lab} deleted",
        says=("run pulumi destroy from the base first", "everything in the namespace is deleted with it"),
    ),
    "add-a-stack": PullRequest(
        new={"Pulumi.lab2.yaml": re.sub(r"\blab\b", "lab2", LAB)},
        code=1,
        headline="refused: overcommitted",
        refused="overcommitted in lab2",
        users=f"2 labels added; {CROWDED.format('lab2-gpu-1, lab2-gpu-8')}",
        resources="{lab} created",
    ),
    "change-an-image": PullRequest(
        edits=((MI300, "rocm-dev:v1", "rocm-dev:v2"),),
        headline="changes for users",
        users="1 label changed",
        resources="1 updated",
        says=(
            "| `linux-mi300-gpu-2` | mi300 | jobs run in image example.test/rocm-dev:v1 → example.test/rocm-dev:v2 |",
            "+        image: example.test/rocm-dev:v2",
        ),
    ),
    "change-a-profile": PullRequest(
        edits=(
            (
                MI300,
                "      renderGroup: 110\n",
                "      renderGroup: 111\n"
                "      env: {HF_HOME: /models}\n"
                "      volumes: {models: {mountPath: /models, source: {hostPath: {path: /models}}}}\n",
            ),
            (MI300, 'nodeSelector: {pytorch: "yes"}', "runtimeClass: rocm\n      docker: {image: docker:29.0.0-dind}"),
            (MI300, "config:\n", "config:\n  gpu-runners:hostPaths: [/models]\n"),
        ),
        headline="changes for users",
        users="1 label changed",
        resources="1 updated",
        says=(
            "node selector pytorch=yes → none; RuntimeClass none → rocm; render group 110 → 111;"
            " Docker's daemon runs in image docker:28.2.2-dind → docker:29.0.0-dind;"
            " environment variables none → HF_HOME; volumes none → models |",
        ),
    ),
    "mount-the-socket-of-docker": PullRequest(
        edits=(
            (
                MI300,
                "      renderGroup: 110\n",
                "      renderGroup: 110\n"
                "      volumes: {docker: {mountPath: /var/run/docker.sock,"
                " source: {hostPath: {path: /var/run/docker.sock}}}}\n",
            ),
            (MI300, "config:\n", "config:\n  gpu-runners:hostPaths: [/]\n"),
        ),
        code=1,
        headline="refused: host-path",
        refused="host-path in mi300",
        users="1 label changed",
        resources="1 updated",
        says=("/var/run/docker.sock of the node gives pods control over the node through /run/docker.sock",),
    ),
    "give-a-label-another-one-beside-it": PullRequest(
        edits=((MI300, "      max: 8\n", "      max: 8\n      additionalLabels: [fast]\n"),),
        code=1,
        headline="refused: additional-labels",
        refused="additional-labels in mi300",
        users="1 label changed",
        resources="1 updated",
        says=("additionalLabels of mi300-cluster none → fast: ARC sends labels to GitHub only when it creates",),
    ),
    "move-a-project-to-another-namespace": PullRequest(
        edits=((MI300, "namespace: test-cluster\n", "namespace: ci\n"),),
        code=1,
        headline="refused: namespace-changed",
        refused="namespace-changed in mi300",
        users="1 label changed",
        resources="3 replaced",
        says=(
            "namespace test-cluster → ci of mi300-cluster: the new scale set adopts the old one's ID at GitHub",
            "remove mi300-cluster from the stack file (--allow label-removed) and run pulumi up; then",
        ),
    ),
    "move-arc-to-another-namespace": PullRequest(
        edits=((MI300, "  gpu-runners:projects:\n", "  gpu-runners:arc: {namespace: ci}\n  gpu-runners:projects:\n"),),
        code=1,
        headline="refused: arc-replaced",
        refused="arc-replaced in mi300",
        resources="2 replaced, 2 updated",
        says=("ARC's namespace arc-systems → ci: Pulumi installs the new controller while the old one runs",),
    ),
    "move-arc-without-runners": PullRequest(
        first=(
            (MI300, MI300_TEXT[MI300_TEXT.index("    linux-mi300-gpu-2:") :], ""),
            (MI300, "runners:\n", "runners: {}\n"),
        ),
        edits=((MI300, "  gpu-runners:projects:\n", "  gpu-runners:arc: {namespace: ci}\n  gpu-runners:projects:\n"),),
        code=1,
        headline="refused: arc-replaced",
        refused="arc-replaced in mi300",
        resources="2 replaced",
        says=("Helm rejects a ClusterRole that another release owns; change arc.release too",),
    ),
    "move-arc-under-another-name": PullRequest(
        first=(
            (MI300, MI300_TEXT[MI300_TEXT.index("    linux-mi300-gpu-2:") :], ""),
            (MI300, "runners:\n", "runners: {}\n"),
        ),
        edits=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                "  gpu-runners:arc: {namespace: ci, release: arc-2}\n  gpu-runners:projects:\n",
            ),
        ),
        resources="2 replaced",
    ),
    "take-arc-back-by-a-patch": PullRequest(
        first=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                f"  gpu-runners:arc: {{version: {MINOR}.99}}\n  gpu-runners:projects:\n",
            ),
        ),
        edits=((MI300, f"{MINOR}.99", ARC_VERSION),),
        code=1,
        headline="refused: downgrade",
        refused="downgrade in mi300",
        resources="3 updated",
        says=(f"ARC {MINOR}.99 → {ARC_VERSION}: an older version may not support",),
    ),
    "rename-the-cluster": PullRequest(
        edits=((MI300, "    name: mi300\n", "    name: mi301\n"),),
        headline="changes for users",
        users="2 labels changed",
        resources="1 deleted, {mi300} replaced, 1 created",
        says=("its provider: clusterIdentifier identifies another cluster",),
    ),
    "move-without-an-alias": PullRequest(
        edits=(PREFIXED,),
        options=("mi300",),
        code=1,
        headline="refused: moved-without-alias",
        refused="moved-without-alias in mi300 (2)",
        resources="2 deleted, 2 created",
        says=("Release mi300-cluster deleted: moved without an alias",),
    ),
    "move-with-an-alias": PullRequest(edits=(ALIASED,), headline="no changes"),
    "own-what-was-looked-up": PullRequest(
        edits=(
            (MI300, "{kind: existingSecret, secretName: pytorch-secret}", "{kind: token, secretName: pytorch-secret}"),
            (MI300, SECRET, f"{SECRET}  gpu-runners:pytorch-token: {{secure: v1:token}}\n"),
        ),
        resources="1 updated, 2 created; secret pytorch-token is set",
        says=("Namespace pytorch-namespace created: was only read before",),
    ),
    "a-mistake": PullRequest(
        edits=((MI300, "docker: true", "dockr: true"),),
        code=2,
        headline="refused: invalid",
        invalid="Pulumi.mi300.yaml:",
        says=("runners.linux-mi300-gpu-2.dockr: unknown key; did you mean 'docker'?",),
    ),
    "a-mistake-mended": PullRequest(
        first=((MI300, "docker: true", "dockr: true"),),
        edits=((MI300, "dockr: true", "docker: true"),),
        code=2,
        headline="incomplete",
        says=("- **Incomplete:** base (COMMIT): Pulumi.mi300.yaml:",),
    ),
    "a-program-that-fails": PullRequest(
        edits=((CONDUCTOR, "cluster_provider(settings.cluster, needs, created)", "{}['x']"),),
        code=2,
        headline="refused: invalid",
        invalid="Pulumi.lab.yaml: bare_metal.py:",
        says=("Pulumi.mi300.yaml: bare_metal.py:", ": KeyError: 'x'"),
    ),
    "another-schema": PullRequest(
        edits=(
            (
                "stacks/gpufleet_stacks/settings/models/settings.py",
                "    docker: Switch = False\n",
                '    nickname: str | None = None\n    """What people call it."""\n    docker: Switch = False\n',
            ),
            (MI300, "      docker: true\n", "      docker: true\n      nickname: pair\n"),
        ),
        headline="changes for users",
        users="1 label changed",
        resources="nothing",
        says=("nickname none → pair (a setting that this gpufleet does not know, for users)",),
    ),
    "code-of-a-component": PullRequest(
        edits=(("components/gpufleet/arc/runner_releases.json", DIGEST, OTHER_DIGEST),),
        options=("mi300",),
        headline="changes for users",
        users="1 label changed",
        resources="1 updated",
        says=(f"-        image: {RUNNER_IMAGE}\n+        image: {RUNNER_IMAGE.replace(DIGEST, OTHER_DIGEST)}",),
    ),
    "another-runner-version": PullRequest(
        edits=((MI300, "image: example.test/rocm-dev:v1", "image: ghcr.io/actions/actions-runner:2.336.0"),),
        options=("mi300",),
        code=1,
        headline="refused: runner-expires",
        refused="runner-expires in mi300",
        users="1 label changed",
        resources="1 updated",
        says=("runner version unknown → 2.336.0, no jobs from 2026-11-05",),
    ),
    "other-dependencies": PullRequest(
        edits=(("requirements.txt", f"pyyaml=={PYYAML}", "pyyaml==0.0.0"),),
        headline="no changes",
        says=(f"- the dependencies differ (pyyaml {PYYAML} -&gt; 0.0.0): both revisions were evaluated with",),
    ),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("diff") / "repository")


@pytest.fixture(scope="module")
def owned(repository: Repository) -> Mapping[str, int]:
    """How many things each stack makes, groups and the provider of its cluster aside (`mi300`), or with it (`lab`), and
    both with it (`all`)."""
    repository.git("checkout", "--quiet", "--force", "main")
    plans = {name: stack.read(repository.root, name).plan() for name in ("lab", "mi300")}
    kinds = {"lab": ("resource", "provider"), "mi300": ("resource",)}
    counts = {name: sum(each.kind in kinds[name] for each in plan.resources) for name, plan in plans.items()}
    whole = sum(each.kind in kinds["lab"] for plan in plans.values() for each in plan.resources)
    return {**counts, "all": whole}


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(repository: Repository) -> Run:
    """`gpufleet diff` in the repository."""
    return functools.partial(compare, repository)


@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_pull_request(name: str, repository: Repository, owned: Mapping[str, int]) -> None:
    check(name, PULL_REQUESTS[name], repository, owned)


GOLDEN_ONES = (
    "raise-max-beyond-the-pool",
    "rotate-a-secret",
    "remove-a-node",
    "change-a-profile",
    "move-a-project-to-another-namespace",
)


@pytest.mark.generated
@pytest.mark.parametrize("name", GOLDEN_ONES)
def test_the_comment_is_the_golden_one(name: str, repository: Repository, run: Run, generated: Generated) -> None:
    generated(GOLDEN / f"{name}.md", run(repository.opened(name, PULL_REQUESTS[name]), "--format", "markdown")[1])


# -- forms ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renamed(repository: Repository) -> str:
    """A range whose head renames a label."""
    return f"main..{repository.branch('renamed', [RENAME])}"


def test_json_is_the_difference(run: Run, renamed: str) -> None:
    code, out, _ = run(renamed, "--format", "json")
    found = json.loads(out)
    assert code == 1
    assert set(found) == set(Difference.model_json_schema(mode="serialization")["properties"])
    assert [(each["change"], each["label"], each["newLabel"]) for each in found["labels"]] == [
        ("renamed", "linux-mi300-gpu-2", "linux-mi300-2-gpu")
    ]
    assert [stack["stack"] for stack in found["stacks"]] == ["lab", "mi300"]


def test_text_names_what_is_created_and_shows_what_is_updated(run: Run, repository: Repository) -> None:
    repository.branch("image", PULL_REQUESTS["change-an-image"].edits)
    code, out, _ = run("main..image", "mi300")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "changes for users (main (COMMIT) → image (COMMIT))"
    assert "  ~ Release linux-mi300-gpu-2 updated" in lines
    assert "      +        image: example.test/rocm-dev:v2" in lines


def test_out_writes_the_file(run: Run, renamed: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "comment.md"
    code, out, _ = run(renamed, "--format", "markdown", "--out", str(file))
    assert (code, out) == (1, f"refused: label-renamed: written to {file}\n")
    assert file.read_text().startswith("### gpufleet diff: refused: label-renamed\n")


def test_a_revision_that_cannot_be_evaluated_replaces_the_earlier_comment(
    run: Run, repository: Repository, tmp_path: pathlib.Path
) -> None:
    repository.branch(
        "raises", [("tools/gpufleet_tools/diff/evaluation.py", "import hmac\n", "import nothing_like_it\n")]
    )
    file = tmp_path / "comment.md"
    file.write_text("### gpufleet diff: no changes\n")
    code, _, err = run("main..raises", "--format", "markdown", "--out", str(file))
    comment = file.read_text()
    assert (code, comment.splitlines()[0]) == (2, "### gpufleet diff: incomplete")
    assert "nothing_like_it" in comment.splitlines()[2]
    assert "nothing_like_it" in err


def test_an_unknown_name_is_not_allowed(run: Run, renamed: str) -> None:
    code, out, err = run(renamed, "--allow", "label-rename", "--allow", "overcommited", "--allow", "label-renamed")
    assert (code, out) == (2, "")
    assert err == (
        "gpufleet: --allow label-rename: unknown name of a refused change; did you mean 'label-renamed'?\n"
        "gpufleet: --allow overcommited: unknown name of a refused change; did you mean 'overcommitted'?\n"
    )


def test_a_stack_that_nobody_has(run: Run) -> None:
    code, out, _ = run("main..main", "mi400")
    assert code == 2
    assert "neither main (COMMIT) nor main (COMMIT) has a stack 'mi400'; their stacks: lab, mi300" in out


def test_the_fault_of_another_stack_is_a_note(run: Run, repository: Repository) -> None:
    repository.branch("mistake", PULL_REQUESTS["a-mistake"].edits)
    code, out, _ = run("main..mistake", "lab")
    assert code == 0
    assert "note: labels of mi300 are incomplete: the stack is invalid in one of the revisions" in out


def test_a_base_that_does_not_pass_its_own_validation(run: Run, repository: Repository) -> None:
    repository.branch("mistake", PULL_REQUESTS["a-mistake"].edits)
    code, out, _ = run("mistake..main")
    assert code == 2
    assert "error: mistake (COMMIT): Pulumi.mi300.yaml:" in out
    assert "note: mi300: the base is invalid and the head is valid, so the changes are unknown;" in out
    assert run("mistake..main", "lab")[0] == 0
    assert "is at fault" not in run("main..mistake")[1]


def test_what_one_revision_cannot_say_is_no_change() -> None:
    """A base from before outputs were taken from inputs."""

    def side(outputs: str, **inputs: Any) -> Evaluation:
        urn = "urn:pulumi:one::gpu-runners::aws:ec2/subnet:Subnet::a"
        resource = {"urn": urn, "type": "aws:ec2/subnet:Subnet", "name": "a", "kind": "resource", "inputs": inputs}
        resource |= {"parent": None, "provider": None, "opaque": False, "options": {}}
        return Evaluation.model_validate({"outputs": outputs, "stacks": {"one": {"resources": [resource]}}})

    def compared(before: Evaluation, after: Evaluation) -> Difference:
        revisions = (Revision(given=name, commit=None) for name in ("base", "head"))
        day = datetime.date(2026, 12, 1)
        return difference(Compared(*revisions, before=before, after=after, notes=()), [], day)

    old, new = side("unknown", vpcId="<unknown>", cidrBlock="a"), side("inputs", vpcId="vpc-id", cidrBlock="a")
    for found in (compared(old, new), compared(new, old)):
        assert not found.changes
        assert found.notes == [
            "one of the revisions does not report values that depend on outputs: they are not compared"
        ]
    other = side("inputs", vpcId="vpc-id", cidrBlock="b")
    assert [each.diff[-2:] for each in compared(old, other).stacks[0].resources] == [["-cidrBlock: a", "+cidrBlock: b"]]
    assert compared(new, side("inputs", vpcId="another", cidrBlock="a")).changes
