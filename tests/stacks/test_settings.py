"""Stack files: what is read from a sound one, and what is said of each mistake in another.

`tests/settings/*.error.yaml` begin with the lines that `gpufleet check` prints for them, as comments;
`tests/settings/*.ok.yaml` are sound.
"""

from __future__ import annotations

import copy
import datetime
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools import cli
from gpufleet_tools.arguments import parser
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, MakeProject, Outcome, examples

CASES = ROOT / "tests" / "settings"
ERRORS = sorted(CASES.glob("*.error.yaml"))
SOUND = sorted(CASES.glob("*.ok.yaml"))


def case(path: pathlib.Path) -> str:
    """Name of a case."""
    return path.name.split(".")[0]


Check = Callable[[str, str], Outcome]


@pytest.fixture
def check(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], Outcome]:
    """Runs `gpufleet check` on a stack of that name and text, in this process."""

    def run(name: str, text: str) -> Outcome:
        root = project({name: text})
        # The command puts the project's folder in front.
        monkeypatch.setattr(sys, "path", [*sys.path])
        code = cli.run(parser().parse_args(["-C", str(root), "check", name]))
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


def read(text: str, folder: pathlib.Path) -> Settings:
    """Settings of a stack file with that text."""
    path = folder / "Pulumi.lab.yaml"
    path.write_text(text)
    return load.from_file(path)[0]


def problems(text: str, folder: pathlib.Path) -> list[str]:
    """What is wrong with it, without the file's name."""
    with pytest.raises(InvalidSettings) as invalid:
        read(text, folder)
    return [str(problem).removeprefix("Pulumi.lab.yaml:").strip() for problem in invalid.value.problems]


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ERRORS, ids=case)
def test_the_message_is_the_one_in_the_file(path: pathlib.Path, check: Check) -> None:
    text = path.read_text()
    expected = [line.removeprefix("# ") for line in itertools.takewhile(lambda line: line[0] == "#", text.splitlines())]
    outcome = check(case(path), text)
    assert outcome.err.splitlines() == expected
    assert outcome.code == cli.INVALID
    assert outcome.out == ""


def test_every_error_file_says_what_it_expects() -> None:
    assert len(ERRORS) >= 30
    assert all(path.read_text().startswith(f"# Pulumi.{case(path)}.yaml") for path in ERRORS)


def test_faults_of_a_field_hide_none_across_fields(tmp_path: pathlib.Path) -> None:
    """A broken project and a broken profile are omitted, and references to them are not reported as missing."""
    text = (CASES / "partitioned.ok.yaml").read_text()
    text = text.replace("https://github.com/example", "example").replace("pool: whole", "pool: whole\n      imagee: 1")
    text = text.replace("max: 64", "max: 3").replace("memory: 34Gi", "memory: 35Gi")
    assert problems(text, tmp_path) == [
        '29: projects.ml.configUrl: "example" is not a GitHub URL: write https://github.com/ORG or '
        "https://github.com/ORG/REPO",
        "35: profiles.whole.imagee: unknown key; did you mean 'image'?",
        "46: runners.mi300-cpx.memory: 35Gi exceeds the share of 1 GPU: 64 such runners fill a node; "
        "request at most 34.3Gi",
        "46: runners.mi300-cpx.min: 4 exceeds max (3); lower min, or raise max",
    ]


def test_a_secret_of_a_broken_project_is_not_called_stray(tmp_path: pathlib.Path) -> None:
    text = (CASES / "two-projects.ok.yaml").read_text().replace("      configUrl: https://github.com/example\n", "")
    assert problems(text.replace("kind: secret", "kind: secrets"), tmp_path) == [
        "7: cluster.kubeconfig.kind: \"secrets\" is not valid; did you mean 'secret'? allowed: context, kubespray, "
        "secret",
        "21: projects.ml.configUrl: is missing; add it: URL of the organisation or repository",
    ]


def test_a_runner_is_not_held_to_a_pool_that_it_may_not_mean(tmp_path: pathlib.Path) -> None:
    """It names no pool, and of two pools one is broken: the other is not its own for that."""
    text = (CASES / "partitioned.ok.yaml").read_text().replace("      pool: eighths\n", "")
    found = problems(text.replace("count: 8}", 'count: "8"}'), tmp_path)
    assert found == ['9: cluster.nodePools.whole.accelerator.count: "8" is text; write 8, without quotes']


@pytest.mark.parametrize("secret", ["hush-hush", "ghp_" + "hushhush" * 5, "-----BEGIN PRIVATE KEY-----\nhushhush"])
@pytest.mark.parametrize(
    "place",
    [
        ("gpu-runners:projects", "ml", "credentials"),
        ("gpu-runners:projects", "ml", "credentials", "token"),
        ("gpu-runners:projects", "ml", "credentials", "secretName"),
        ("gpu-runners:cluster", "kubeconfig"),
        ("gpu-runners:ml-token",),
        ("gpu-runners:nobodys-token",),
        ("ml-privateKey",),
    ],
    ids="/".join,
)
def test_no_secret_is_repeated(place: tuple[str, ...], secret: str, tmp_path: pathlib.Path) -> None:
    """Wherever somebody has put it by mistake, and whatever is wrong with that place."""
    content = yaml.safe_load((CASES / "two-projects.ok.yaml").read_text())
    entry = content["config"]
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]] = secret if place[-1] != "secretName" else {"secure": secret}
    printed = "\n".join(problems(yaml.safe_dump(content), tmp_path))
    assert printed
    assert "hush" not in printed


def test_encrypted_values_are_in_no_representation() -> None:
    read, file = load.from_file(CASES / "two-projects.ok.yaml")
    assert file.secrets == {"kubeconfig", "ml-token", "vision-privateKey"}
    assert "bm90IHJlYWw" not in f"{read!r} {read} {file!r} {file}"


def test_plain_secrets_are_in_no_representation(tmp_path: pathlib.Path) -> None:
    from gpufleet_stacks.settings import stack_file

    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text("config:\n  gpu-runners:ml-token: hush-hush\n  github:token: hush-hush\n")
    assert "hush" not in repr(stack_file.read(path))


# -- anything at all --------------------------------------------------------------------------------------------------

ODD = [
    *(None, True, 0, -1, 3, 2.5, 1e30, float("nan"), float("inf"), 10**40, b"bytes"),
    *("", "x", "a b", "é\u202e", "\n", "2", "true", "1.30", "0123", "8Gi", "x" * 300, "ghp_" + "hushhush" * 5),
    *([], [1], [[]], {}, {"a": 1}, {1: 2}, {None: 1}, {"kind": "token"}, {"kind": None}, {"kind": ["x"]}),
    *({"secure": "hush"}, {"secure": 1}, {"x": {"y": {"z": [1]}}}, datetime.date(2027, 1, 1)),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything within a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield (*path, key)
        yield from places(item, (*path, key))


def spoilt(whole: Any, changes: list[tuple[tuple[Any, ...], str, Any]]) -> Any:
    """A stack file's content with a value set to something odd, a key renamed to it or dropped, at each place."""
    content = copy.deepcopy(whole)
    for path, how, odd in changes:
        try:
            entry = content
            for key in path[:-1]:
                entry = entry[key]
            old = entry.pop(path[-1]) if how != "set" else None
            if how == "set":
                entry[path[-1]] = copy.deepcopy(odd)
            elif how == "rename":
                entry[odd if isinstance(odd, str | int) else "odd"] = old
        except (KeyError, IndexError, TypeError, AttributeError):
            # An earlier change has taken the place away.
            continue
    return content


WHOLE = yaml.safe_load((CASES / "partitioned.ok.yaml").read_text())


@settings(max_examples=examples(120), derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(places(WHOLE))), st.sampled_from(["set", "drop", "rename"]), st.sampled_from(ODD)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_wrong_is_said_in_one_line_each(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[Any, ...], str, Any]]
) -> None:
    content = spoilt(WHOLE, changes)
    file = tmp_path_factory.mktemp("odd") / "Pulumi.odd.yaml"
    file.write_text(yaml.safe_dump(content, allow_unicode=True))
    try:
        load.from_file(file)
    except InvalidSettings as invalid:
        for problem in invalid.problems:
            assert str(problem).isprintable()
            assert "hush" not in str(problem)
            assert not any(place in str(problem) for place in ("'stand-in'", "stand-in:")), "a stand-in has no problems"


# -- sound files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOUND, ids=case)
def test_a_sound_file_is_valid(path: pathlib.Path, check: Check) -> None:
    outcome = check(case(path), path.read_text())
    assert outcome.err == ""
    assert outcome.code in (cli.OK, cli.FINDINGS)


@pytest.mark.parametrize("name", stack.names(ROOT))
def test_the_committed_stacks_are_valid(name: str) -> None:
    assert stack.read(ROOT, name).settings.runners


def sound(name: str) -> Settings:
    """Settings of a sound case."""
    return load.from_file(CASES / f"{name}.ok.yaml")[0]


def test_two_projects_ask_for_their_own_secrets() -> None:
    of_two = sound("two-projects")
    assert of_two.secret_keys() == {
        "kubeconfig": "cluster.kubeconfig",
        "ml-token": "projects.ml.credentials",
        "vision-privateKey": "projects.vision.credentials",
    }
    assert {label: runner.project for label, runner in of_two.runners.items()} == {
        "ml-gpu-2": "ml",
        "vision-gpu-8": "vision",
        "vision-lint": "vision",
    }


def test_ids_are_text_even_where_yaml_reads_a_number() -> None:
    credentials = sound("two-projects").projects["vision"].credentials
    assert credentials.kind == "githubApp"
    assert (credentials.app_id, credentials.installation_id) == ("1000001", "50000001")


def test_existing_secrets_are_not_asked_for() -> None:
    assert sound("smallest").secret_keys() == {}


def test_defaults_of_the_smallest_file() -> None:
    smallest = sound("smallest")
    runner = smallest.runners["mi300-gpu-2"]
    assert (runner.min, runner.max, runner.docker, runner.profile) == (0, 4, False, None)
    assert (runner.cpu, runner.memory) == ("16", "200Gi")
    assert smallest.profile(runner).image_pull_policy == "IfNotPresent"
    assert smallest.pool(runner) is smallest.cluster.node_pools["mi300x"]
    assert smallest.gpu_resource("mi300x") == "amd.com/gpu"
    assert (smallest.arc.namespace, smallest.device_plugin.namespace) == ("arc-systems", "kube-system")


def test_partitions_are_counted_and_named() -> None:
    partitioned = sound("partitioned")
    pools = partitioned.cluster.node_pools
    assert {name: pool.accelerator.devices for name, pool in pools.items()} == {"whole": 8, "eighths": 64}
    assert partitioned.gpu_resource("whole") == "amd.com/spx_nps1"
    assert partitioned.gpu_resource("eighths") == "amd.com/cpx_nps4"
    cpx = partitioned.runners["mi300-cpx"]
    assert partitioned.pool(cpx) is pools["eighths"]
    assert cpx.cpu == "2.5"
    assert pools["eighths"].node_labels(pools["eighths"].nodes["gpu-3"]) == {
        "accelerator": "amd-mi300x",
        "example.com/rack": "5",
    }


def test_merge_keys_are_followed() -> None:
    every = sound("every-setting")
    one, two = every.runners["mi300-gpu-1"], every.runners["mi300-gpu-2"]
    assert (one.gpus, two.gpus) == (1, 2)
    assert (one.docker, one.max) == (two.docker, two.max) == (True, 4)
    assert every.profiles["pulled-once"].volumes == every.profiles["large"].volumes
    volume = every.profiles["large"].volumes["models"]
    assert volume.source == {"hostPath": {"path": "/srv/models", "type": "Directory"}}
    assert volume.read_only


def test_every_setting_with_a_default_is_set_otherwise_in_one_file() -> None:
    """So that no default is all that a setting can be."""
    every, small = sound("every-setting"), sound("smallest")
    for section in ("arc", "device_plugin"):
        given, usual = getattr(every, section), getattr(small, section)
        same = [name for name in type(usual).model_fields if getattr(given, name) == getattr(usual, name)]
        assert same in ([], ["version"])
    assert every.acknowledged[0].until == every.acknowledged[1].until == datetime.date(2027, 3, 31)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        sound("smallest").arc.namespace = "elsewhere"  # type: ignore[misc]


# -- tolerations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "amd"}, True),
        ({"key": "gpu", "value": "amd", "effect": "NoSchedule"}, True),
        ({"key": "gpu"}, False),
        ({"key": "gpu", "value": "nvidia"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_toleration_tolerates_as_kubernetes_has_it(toleration: dict[str, str], tolerated: bool) -> None:
    taint = (
        sound("partitioned")
        .cluster.node_pools["whole"]
        .taints[0]
        .model_copy(update={"key": "gpu", "value": "amd", "effect": "NoSchedule"})
    )
    assert Toleration.model_validate(toleration).tolerates(taint) is tolerated
