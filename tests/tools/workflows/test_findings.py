"""What is said of workflows: every form of `runs-on`, held against a catalogue, with the place of each label."""

from __future__ import annotations

import datetime
import pathlib
import textwrap
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.plan import stack
from gpufleet_tools.workflows import workflow_file
from gpufleet_tools.workflows.findings import Served, Unreadable, WorkflowFinding, lint
from gpufleet_tools.workflows.workflow_file import UnreadableWorkflow
from tests.conftest import ROOT, MakeProject

# It serves mi300-gpu-1, and mi300-gpu-2 until 2027-06-30, in the runner group `gpus`, for github.com/example/models.
CATALOGUE_STACK = (ROOT / "tests/settings/every-setting.ok.yaml").read_text()
TODAY = datetime.date(2026, 11, 21)


@pytest.fixture
def catalogue(project: MakeProject) -> labels.Catalogue:
    root = project({"lab": CATALOGUE_STACK})
    return labels.catalogue([stack.read(root, "lab")])


@pytest.fixture
def served(catalogue: labels.Catalogue) -> Served:
    return Served(catalogue)


def said(text: str, served: Served, folder: pathlib.Path, today: datetime.date = TODAY) -> list[str]:
    """Line, column and rule of each finding."""
    found = findings(text, served, folder, today)
    return [f"{one.line}:{one.column} {one.rule}" for one in found]


def findings(text: str, served: Served, folder: pathlib.Path, today: datetime.date = TODAY) -> list[WorkflowFinding]:
    path = folder / "w.yml"
    path.write_text(textwrap.dedent(text))
    found = list(lint(path, served, today))
    assert all(isinstance(one, WorkflowFinding) for one in found), found
    return [one for one in found if isinstance(one, WorkflowFinding)]


def job(runs_on: str, rest: str = "") -> str:
    return f"on: push\njobs:\n  a:\n    runs-on: {runs_on}\n{textwrap.indent(textwrap.dedent(rest), '    ')}"


@pytest.mark.parametrize(
    ("runs_on", "expected"),
    [
        ("mi300-gpu-1", []),
        ("MI300-GPU-1", []),
        ("'mi300-gpu-1'", []),
        ("[mi300-gpu-1]", []),
        ("{group: gpus, labels: mi300-gpu-1}", []),
        ("{group: GPUS, labels: [mi300-gpu-1]}", []),
        ("{group: gpus}", []),
        ("ubuntu-latest", []),
        ("Ubuntu-24.04", []),
        ("macos-15", []),
        ("mi300-gpu-2", ["4:14 deprecated-label"]),
        ("mi300-gpu-8", ["4:14 dead-label"]),
        ("ubuntu-18.04", ["4:14 dead-label"]),
        ("[mi300-gpu-8]", ["4:15 dead-label"]),
        ("{labels: [mi300-gpu-8]}", ["4:24 dead-label"]),
        ("[self-hosted, mi300-gpu-1]", ["4:28 labels-together"]),
        ("[self-hosted, linux, their-gpu]", ["4:35 dead-label"]),
        ("self-hosted", ["4:14 other-runners"]),
        ("[self-hosted, Linux, X64]", ["4:15 other-runners"]),
        ("{group: cpus, labels: mi300-gpu-1}", ["4:22 runner-group"]),
        ("{group: gpu}", ["4:22 runner-group"]),
        ("{group: somebody-elses-large-runners}", []),
        ("${{ vars.RUNNER }}", ["4:14 unresolved-label"]),
        ("${{ vars.RUNNER || 'mi300-gpu-8' }}", ["4:14 dead-label", "4:14 unresolved-label"]),
        ("mi300-gpu-${{ 8 }}", ["4:14 dead-label"]),
        ('${{ fromJSON(\'["self-hosted","mi300-gpu-1"]\') }}', ["4:14 labels-together"]),
        ('${{ fromJSON(\'{"group":"cpus","labels":"mi300-gpu-1"}\') }}', ["4:14 runner-group"]),
        ("${{ github.ref == 'x' && 'mi300-gpu-1' || 'mi300-gpu-8' }}", ["4:14 dead-label"]),
        ("${{ 'a }}", ["4:14 unresolved-label"]),
        ("[]", []),
        ("null", []),
    ],
)
def test_forms_of_runs_on(runs_on: str, expected: list[str], served: Served, tmp_path: pathlib.Path) -> None:
    assert said(job(runs_on), served, tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            job("${{ matrix.gpu }}", "strategy: {matrix: {gpu: [mi300-gpu-1, mi300-gpu-8]}}"),
            ["5:44 dead-label"],
        ),
        (
            job(
                "${{ matrix.gpu }}",
                """
                strategy:
                  matrix:
                    gpu: [mi300-gpu-1, mi300-gpu-8]
                    exclude: [{gpu: mi300-gpu-8}]
                    include:
                      - {gpu: mi300-gpu-9, py: 3.12}
                """,
            ),
            ["11:19 dead-label"],
        ),
        (
            job("mi300-gpu-${{ matrix.n }}", "strategy: {matrix: {n: [1, 8]}}"),
            ["4:14 dead-label"],
        ),
        (
            job("${{ matrix.on.label }}", "strategy: {matrix: {on: [{label: mi300-gpu-8}]}}"),
            ["5:38 dead-label"],
        ),
        (
            job("${{ matrix.gpu }}", "strategy: {matrix: '${{ fromJSON(needs.a.outputs.m) }}'}"),
            ["4:14 unresolved-label"],
        ),
        (
            job("${{ matrix.gpu }}", "strategy: {matrix: {gpu: '${{ fromJSON(''[\"mi300-gpu-8\"]'') }}'}}"),
            ["4:14 dead-label"],
        ),
        (
            job("[self-hosted, '${{ matrix.gpu }}']", "strategy: {matrix: {gpu: [mi300-gpu-1]}}"),
            ["5:31 labels-together"],
        ),
    ],
    ids=["vector", "include and exclude", "part of a label", "object", "unknown", "static JSON", "in a list"],
)
def test_labels_of_a_matrix(text: str, expected: list[str], served: Served, tmp_path: pathlib.Path) -> None:
    assert said(text, served, tmp_path) == expected


def test_every_option_of_an_input_is_judged_and_so_is_its_default(served: Served, tmp_path: pathlib.Path) -> None:
    text = """\
    on:
      workflow_dispatch:
        inputs:
          where: {type: choice, options: [mi300-gpu-1, mi300-gpu-8]}
      workflow_call:
        inputs:
          label: {type: string, default: mi300-gpu-9}
    jobs:
      a: {runs-on: "${{ inputs.where }}"}
      b: {runs-on: "${{ inputs.label }}"}
    """
    assert said(text, served, tmp_path) == ["4:52 dead-label", "7:38 dead-label", "10:16 unresolved-label"]


def test_an_alias_is_followed_and_said_once(served: Served, tmp_path: pathlib.Path) -> None:
    text = """\
    on: push
    jobs:
      a: {runs-on: &where [mi300-gpu-8]}
      b: {runs-on: *where}
      c: &job {runs-on: mi300-gpu-9}
      d: *job
    """
    assert said(text, served, tmp_path) == ["3:24 dead-label", "5:21 dead-label"]


def test_a_merge_is_not_github_s(served: Served, tmp_path: pathlib.Path) -> None:
    text = """\
    on: push
    jobs:
      a: &a {runs-on: mi300-gpu-1}
      b: {<<: *a, steps: []}
    """
    (finding,) = findings(text, served, tmp_path)
    assert (finding.rule, "'<<'" in finding.message) == ("unresolved-label", True)


def test_a_workflow_of_another_repository_is_noted(served: Served, tmp_path: pathlib.Path) -> None:
    text = """\
    on: push
    jobs:
      a: {uses: ./.github/workflows/b.yml}
      b: {uses: example/shared/.github/workflows/c.yml@v1}
    """
    assert said(text, served, tmp_path) == ["4:13 called-workflow"]


def test_workflows_of_other_repositories_are_one_note_of_a_file(served: Served, tmp_path: pathlib.Path) -> None:
    text = """\
    on: push
    jobs:
      a: {uses: example/shared/.github/workflows/c.yml@v1}
      b: {uses: example/shared/.github/workflows/d.yml@v1}
      c: {uses: example/shared/.github/workflows/c.yml@v1}
    """
    (finding,) = findings(text, served, tmp_path)
    assert (finding.line, finding.column) == (3, 13)
    assert finding.message == (
        "3 jobs call workflows of other repositories, which are not checked here:"
        ' "example/shared/.github/workflows/c.yml@v1" and "example/shared/.github/workflows/d.yml@v1"'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (job("[self-hosted, their-gpu, their-zone, big]"), ["4:28 dead-label"]),
        (job("${{ matrix.r }}", "strategy: {matrix: {r: [their-gpu, their-cpu, mi300-gpu-1]}}"), ["5:29 dead-label"]),
        # What is misspelt is mended where it is written.
        (
            job("${{ matrix.r }}", "strategy: {matrix: {r: [mi300-gpu-7, mi300-gpu-8, theirs, others]}}"),
            ["5:29 dead-label", "5:42 dead-label", "5:55 dead-label"],
        ),
        (job("theirs") + "  b:\n    runs-on: theirs\n", ["4:14 dead-label", "6:14 dead-label"]),
    ],
    ids=["a list", "a matrix", "some misspelt", "two jobs"],
)
def test_foreign_labels_of_a_job_are_one_finding(
    text: str, expected: list[str], served: Served, tmp_path: pathlib.Path
) -> None:
    assert said(text, served, tmp_path) == expected


def test_foreign_labels_are_named(served: Served, tmp_path: pathlib.Path) -> None:
    (finding,) = findings(job("[self-hosted, their-gpu, their-zone, big]"), served, tmp_path)
    assert finding.message == (
        'labels "their-gpu", "their-zone" and "big" are served by nobody known here: the job queues for 24 hours and'
        " then fails;"
        " labels in service: mi300-gpu-1"
    )


# -- containers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def containers(catalogue: labels.Catalogue) -> Served:
    """Labels `none`, `docker`, `pods` and `any-pods`, by the containers that their jobs can run."""
    (entry, _) = catalogue.labels
    kinds = {
        "none": (None, False),
        "docker": ("sidecar", False),
        "pods": ("kubernetes", True),
        "any-pods": ("kubernetes-novolume", False),
    }
    return Served(
        labels.Catalogue(
            labels=[
                entry.model_copy(update={"label": label, "docker": docker, "requires_container": required})
                for label, (docker, required) in kinds.items()
            ]
        )
    )


@pytest.mark.parametrize("label", ["none", "docker", "pods", "any-pods"])
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("steps: [{run: ls}]", {"pods": "error container-required"}),
        ("container: ubuntu:24.04", {"none": "error no-docker"}),
        ("container: {image: 'ubuntu:24.04'}", {"none": "error no-docker"}),
        ("container: ''", {"pods": "error container-required"}),
        ("container: null", {"pods": "error container-required"}),
        ("container: {image: ''}", {"pods": "error container-required"}),
        ("container: ${{ vars.IMAGE }}", {}),
        ("container: {image: '${{ inputs.image }}'}", {}),
        ('container: ${{ fromJSON(\'{"image":"a"}\') }}', {}),
        ("container: ${{ 'a' }}", {"none": "error no-docker"}),
        ("container: ${{ 'a }}", {}),
        ("container: [a]", {}),
        (
            "services: {db: {image: postgres}}",
            {"none": "error no-docker", "pods": "error container-required"},
        ),
        ("services: {db: {image: ''}}", {"pods": "error container-required"}),
        (
            "steps: [{uses: 'docker://alpine:3.22'}]",
            {"none": "error no-docker", "pods": "error container-required"},
        ),
        ("steps: [{uses: 'docker://alpine:3.22', if: failure()}]", {"pods": "error container-required"}),
        (
            'container: a\nsteps: [{run: "set -e\\n  sudo docker  build ."}]',
            {
                "none": "error no-docker",
                "pods": "warning no-docker",
                "any-pods": "warning no-docker",
            },
        ),
        (
            "container: ${{ vars.C }}\nsteps: [{run: docker build .}]",
            dict.fromkeys(("none", "pods", "any-pods"), "warning no-docker"),
        ),
        ("container: ${{ vars.C }}\nsteps: [{run: docker build ., if: inputs.build}]", {}),
        ("container: ${{ vars.C }}\nsteps: [{run: 'echo docker build'}]", {}),
        ("container: ${{ vars.C }}\nsteps: [{run: 'docker --version'}]", {}),
        ("container: ${{ vars.C }}\nenv: {DOCKER_HOST: 'tcp://build'}\nsteps: [{run: docker build .}]", {}),
        (
            "container: ${{ vars.C }}\nsteps: [{run: docker build .}, {uses: docker/a@v3, with: {driver: remote}}]",
            {},
        ),
    ],
)
def test_containers_of_a_job(
    rest: str, expected: dict[str, str], label: str, containers: Served, tmp_path: pathlib.Path
) -> None:
    found = findings(job(label, rest), containers, tmp_path)
    assert [f"{one.severity} {one.rule}" for one in found] == ([expected[label]] if label in expected else [])
    assert {(one.line, one.column) for one in found} <= {(4, 14)}


def test_a_container_of_a_matrix_counts_where_it_is_used(containers: Served, tmp_path: pathlib.Path) -> None:
    text = job(
        "${{ matrix.on }}",
        """
        container: ${{ matrix.image }}
        strategy:
          matrix:
            include:
              - {on: none, image: ''}
              - {on: docker, image: alpine}
              - {on: none, image: alpine}
              - {on: pods, image: ''}
        """,
    )
    assert said(text, containers, tmp_path) == ["12:18 no-docker", "13:18 container-required"]


def test_a_called_workflow_with_a_container_is_found_where_its_label_is_given(
    containers: Served, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    (folder / "called.yaml").write_text(
        "on: {workflow_call: {inputs: {on: {type: string}}}}\n"
        'jobs: {a: {runs-on: "${{ inputs.on }}", container: alpine}}\n'
    )
    caller = "on: push\njobs:\n  a:\n    uses: ./.github/workflows/called.yaml\n    with: {{on: {label}}}\n"
    assert said(caller.format(label="none"), containers, folder) == ["5:16 no-docker"]
    assert said(caller.format(label="docker"), containers, folder) == []


@pytest.mark.parametrize(
    ("runs_on", "expected"),
    [
        ("gpu", []),
        ("[mi300, gpu]", []),
        ("[GPU, mi300-a]", []),
        ("mi300-b", []),
        ("[mi300-b, gpu]", ["4:15 labels-together", "4:24 labels-together"]),
        ("[mi300-a, self-hosted]", ["4:15 labels-together"]),
        ("[gpu, '${{ vars.SIZE }}']", ["4:20 unresolved-label"]),
        ("[mi300-b, '${{ vars.SIZE }}']", ["4:15 labels-together", "4:24 unresolved-label"]),
        ("gpus", ["4:14 dead-label"]),
    ],
)
def test_additional_labels(
    runs_on: str, expected: list[str], catalogue: labels.Catalogue, tmp_path: pathlib.Path
) -> None:
    entry = catalogue.labels[0]
    served = Served(
        labels.Catalogue(
            labels=[
                entry.model_copy(update={"label": "mi300-a", "additional_labels": ["mi300", "gpu"]}),
                entry.model_copy(update={"label": "mi300-b", "additional_labels": []}),
            ]
        )
    )
    assert said(job(runs_on), served, tmp_path) == expected


def test_the_message_names_labels_with_docker(containers: Served, tmp_path: pathlib.Path) -> None:
    (finding,) = findings(job("none", "container: alpine"), containers, tmp_path)
    assert finding.message == (
        "job 'a' declares container, and label 'none' has no Docker: it fails before its first step;"
        " labels with Docker: docker"
    )


CALLED = """\
on: {workflow_call: {inputs: {runner: {type: string}, shape: {type: string}}}}
jobs:
  a: {runs-on: "${{ inputs.runner }}"}
  b: {runs-on: "mi300-${{ inputs.shape }}"}
"""


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("with: {runner: mi300-gpu-1}", []),
        ("with: {runner: mi300-gpu-8}", ["5:20 dead-label"]),
        ("with: {runner: mi300-gpu-2}", ["5:20 deprecated-label"]),
        (
            "with: {runner: '${{ matrix.r }}'}\n    strategy: {matrix: {r: [mi300-gpu-1, mi300-gpu-8]}}",
            ["6:42 dead-label"],
        ),
        ("with: {runner: '${{ vars.RUNNER }}'}", []),
        ("with: {runner: '${{ x'}", []),
        ("with: {other: mi300-gpu-8}", []),
        ("secrets: inherit", []),
    ],
)
def test_what_a_called_workflow_is_given_is_judged_where_it_is_written(
    job: str, expected: list[str], served: Served, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    (folder / "called.yaml").write_text(CALLED)
    caller = f"on: push\njobs:\n  a:\n    uses: ./.github/workflows/called.yaml\n    {job}\n"
    assert said(caller, served, folder) == expected


@pytest.mark.parametrize("called", ["./.github/workflows/none.yml", "./../../x.yml", "./.github/workflows/w.yml"])
def test_a_called_workflow_that_cannot_be_read_is_another_file_s_matter(
    called: str, served: Served, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    assert said(f"on: push\njobs:\n  a:\n    uses: {called}\n    with: {{runner: x}}\n", served, folder) == []


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("mi300-gpu1", "did you mean 'mi300-gpu-1'?"),
        ("ubuntu-20.04", "did you mean 'ubuntu-2"),
        ("something-else", "labels in service: mi300-gpu-1"),
    ],
)
def test_a_dead_label_comes_with_what_was_meant(label: str, words: str, served: Served, tmp_path: pathlib.Path) -> None:
    (finding,) = findings(job(label), served, tmp_path)
    assert finding.severity == "error"
    assert words in finding.message


def test_a_deprecated_label_says_until_when_and_what_instead(served: Served, tmp_path: pathlib.Path) -> None:
    (before,) = findings(job("mi300-gpu-2"), served, tmp_path)
    (after,) = findings(job("mi300-gpu-2"), served, tmp_path, datetime.date(2027, 7, 1))
    assert before.message == "label 'mi300-gpu-2' is served until 2027-06-30; use 'mi300-gpu-1'"
    assert after.message == "label 'mi300-gpu-2' was to be removed after 2027-06-30; use 'mi300-gpu-1'"


@pytest.mark.parametrize(
    ("repository", "expected"),
    [("example/models", []), ("Example/Models", []), ("example/other", ["4:14 dead-label"]), (None, [])],
)
def test_a_label_of_another_repository_is_dead(
    repository: str | None, expected: list[str], catalogue: labels.Catalogue, tmp_path: pathlib.Path
) -> None:
    served = Served(catalogue, repository=repository)
    assert said(job("mi300-gpu-1"), served, tmp_path) == expected


def test_labels_that_others_serve_are_known(catalogue: labels.Catalogue, tmp_path: pathlib.Path) -> None:
    served = Served(catalogue, also=["theirs-*"])
    assert said(job("theirs-gpu"), served, tmp_path) == []
    assert said(job("ours-gpu"), served, tmp_path) == ["4:14 dead-label"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a workflow"),
        (b"- a", "is not a workflow"),
        (b"name: x", "is not a workflow"),
        (b"jobs: [a]", "is not a workflow"),
        (b"jobs: [\n", "is not YAML"),
        (b"\tjobs: {}", "is not YAML"),
        (b"jobs: {}\n---\njobs: {}", "is not YAML"),
        (b"jobs: *nobody", "is not YAML"),
        (b"jobs: {a: \xff}", "is not YAML"),
        (b"\x00", "is not YAML"),
        (b"jobs: {a: {runs-on: &a [*a]}}", "circular"),
        (b"[" * 200_000, "nested deeper"),
        (b"- " * 200_000, "nested deeper"),
        (b"? " * 200_000, "nested deeper"),
        (b"jobs: {}\n" + b"#" * workflow_file.LARGEST, "no workflow is that large"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value[:12]),
)
def test_what_is_no_workflow_is_one_line(data: bytes, message: str, served: Served, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "w.yml"
    path.write_bytes(data)
    (found,) = lint(path, served, TODAY)
    assert isinstance(found, Unreadable)
    assert message in found.message
    assert "\n" not in str(found)


def test_aliases_of_aliases_end(served: Served, tmp_path: pathlib.Path) -> None:
    lines = ["on: push", "jobs:", "  a:", "    runs-on: ${{ matrix.x }}", "    strategy:", "      matrix:"]
    lines.append("        l0: &l0 [a, a, a, a, a, a, a, a, a, a]")
    lines += [f"        l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = tmp_path / "w.yml"
    path.write_text("\n".join(lines))
    (found,) = lint(path, served, TODAY)
    assert isinstance(found, Unreadable)
    assert "aliases" in found.message


# -- finding files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def checkouts(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two checkouts, one below the other, with files that are no workflows."""
    for name in (
        "one/.github/workflows/a.yml",
        "one/.github/workflows/b.yaml",
        "one/.github/workflows/README.md",
        "one/.github/actionlint.yaml",
        "one/chart/values.yaml",
        "one/vendor/two/.github/workflows/c.yml",
        "one/.git/.github/workflows/no.yml",
        "plain/d.yml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("jobs: {}")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ["a.yml", "b.yaml", "c.yml"]),
        ("one", ["a.yml", "b.yaml", "c.yml"]),
        ("one/.github/workflows", ["a.yml", "b.yaml"]),
        ("one/.github/workflows/a.yml", ["a.yml"]),
        ("plain", ["d.yml"]),
    ],
)
def test_workflows_are_found(path: str, expected: list[str], checkouts: pathlib.Path) -> None:
    assert [file.name for file in workflow_file.find([checkouts / path])] == expected


@pytest.mark.parametrize("path", ["none", "one/.github/workflows/none.yml", "empty"])
def test_a_path_without_workflows_is_refused(path: str, checkouts: pathlib.Path) -> None:
    (checkouts / "empty").mkdir()
    with pytest.raises(UnreadableWorkflow, match=str(checkouts / path)):
        list(workflow_file.find([checkouts / path]))


# -- whatever stands in a workflow ------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    ["mi300-gpu-1", "mi300-gpu-8", "${{ matrix.a }}", "${{ inputs.a }}", "${{ x", "", "self-hosted"]
)
NODES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "group", "labels", "include", "exclude", "options", "inputs"]), inner)
    ),
    max_leaves=8,
)


@given(runs_on=NODES, matrix=NODES, on=NODES, strategy=NODES)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_workflow_is_judged(runs_on: Any, matrix: Any, on: Any, strategy: Any, tmp_path: pathlib.Path) -> None:
    """Of whatever form its parts are: findings in lines that are there, or one line that says why not."""
    inputs = {"workflow_call": {"inputs": {"a": on}}, "workflow_dispatch": on}
    jobs = {
        "a": {"runs-on": runs_on, "strategy": {"matrix": matrix}},
        "b": {"runs-on": runs_on, "strategy": strategy},
        "c": runs_on,
    }
    path = tmp_path / "w.yml"
    path.write_text(yaml.safe_dump({"on": inputs, "jobs": jobs}))
    lines = path.read_text().splitlines()
    for one in lint(path, Served(labels.Catalogue(labels=[])), TODAY):
        assert isinstance(one, WorkflowFinding)
        assert 1 <= one.line <= len(lines)
        assert 1 <= one.column <= len(lines[one.line - 1]) + 1
        assert "\n" not in str(one)


def test_a_job_that_names_one_of_several_groups(tmp_path: pathlib.Path) -> None:
    folder = ROOT / "examples/two-regions"
    both = Served(labels.catalogue((stack.read(folder, name) for name in stack.names(folder)), capacity=False))
    assert said(job("linux-a10g-1"), both, tmp_path) == []
    assert said(job("{group: gpu-us, labels: linux-a10g-1}"), both, tmp_path) == ["4:22 one-of-several-groups"]
    assert said(job("{group: gpu-ap, labels: linux-a10g-1}"), both, tmp_path) == ["4:22 runner-group"]
