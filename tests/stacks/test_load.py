"""Settings from the engine's configuration: the same as from the file alone, and refused in the same words."""

from __future__ import annotations

import datetime
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.stack_file import read, stack_files
from gpufleet_tools.plan import stack
from tests.conftest import ROOT

CASES = ROOT / "tests" / "settings"
SOUND = sorted([*CASES.glob("*.ok.yaml"), *stack_files(ROOT)])


def engine_text(value: Any) -> str:
    """A value as Pulumi's engine hands it over: text as it is, all else as JSON, a date as the time that Go reads."""

    def timed(date: object) -> str:
        assert isinstance(date, datetime.date)
        return f"{date}T00:00:00Z"

    return value if isinstance(value, str) else json.dumps(value, default=timed)


Engine = Callable[..., None]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Configures the SDK as the engine does for the stack `lab`, with secrets that it has decrypted."""

    def configure(values: dict[str, Any], secrets: dict[str, str]) -> None:
        texts = {f"gpu-runners:{key}": engine_text(value) for key, value in values.items()}
        hidden = {f"gpu-runners:{key}": value for key, value in secrets.items()}
        foreign = {"pulumi:disable-default-providers": '["*"]'}
        pulumi.runtime.set_all_config({**foreign, **texts, **hidden}, [*hidden])

    monkeypatch.setattr(pulumi, "get_stack", lambda: "lab")
    yield configure
    pulumi.runtime.set_all_config({}, [])


def copied(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The stack file as the file of the stack `lab`."""
    return pathlib.Path(shutil.copy(path, folder / "Pulumi.lab.yaml"))


def refused(folder: pathlib.Path) -> list[str]:
    """Why the program ends."""
    with pytest.raises(pulumi.RunError) as refusal:
        load.from_engine(folder)
    # The language host prints a RunError's message alone; a cause would come with its traceback.
    assert refusal.value.__suppress_context__
    return str(refusal.value).splitlines()


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.name)
def test_engine_and_file_give_the_same_settings(path: pathlib.Path, engine: Engine, tmp_path: pathlib.Path) -> None:
    from_file, file = load.from_file(copied(path, tmp_path))
    engine(dict(file.values), dict.fromkeys(from_file.secret_keys(), "decrypted"))
    assert load.from_engine(tmp_path) == from_file


def test_settings_may_come_from_elsewhere_than_a_file(engine: Engine, tmp_path: pathlib.Path) -> None:
    """From an environment of Pulumi ESC, or with `--config-file`."""
    expected, file = load.from_file(CASES / "smallest.ok.yaml")
    engine(dict(file.values), {})
    assert load.from_engine(tmp_path) == expected


def test_every_fault_ends_the_program_with_its_line(engine: Engine, tmp_path: pathlib.Path) -> None:
    case = CASES / "every-fault-at-once.error.yaml"
    text = case.read_text().replace("every-fault-at-once", "lab")
    (tmp_path / "Pulumi.lab.yaml").write_text(text)
    engine(dict(read(tmp_path / "Pulumi.lab.yaml").values), {})
    assert refused(tmp_path) == [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]


def test_faults_without_a_file_have_no_lines(engine: Engine, tmp_path: pathlib.Path) -> None:
    values = dict(read(CASES / "smallest.ok.yaml").values)
    engine(values | {"runners": {"a": 3}, "arc": "", "acknowledged": None, "colour": "red"}, {})
    assert refused(tmp_path) == [
        "Pulumi.lab.yaml: acknowledged: is empty; begin each entry with '- '",
        'Pulumi.lab.yaml: arc: "" is not a mapping of keys to values; its keys are: clientLimits, logLevel, metrics, '
        "namespace, release, updateStrategy, upgradeFrom, version",
        "Pulumi.lab.yaml: colour: unknown key; allowed: acknowledged, arc, charts, cluster, devicePlugin, gpuOperator, "
        "hostPaths, profiles, projects, runners",
        "Pulumi.lab.yaml: runners.a: 3 is not a mapping of keys to values; its keys are: additionalLabels, cpu, "
        "deprecated, docker, gpus, limits, max, memory, min, profile, project",
    ]


def test_a_missing_secret_is_refused(engine: Engine, tmp_path: pathlib.Path) -> None:
    file = read(copied(CASES / "two-projects.ok.yaml", tmp_path))
    engine(dict(file.values), {"ml-token": "decrypted"})
    assert refused(tmp_path) == [
        "Pulumi.lab.yaml:7: cluster.kubeconfig: the secret 'kubeconfig' is not set; set it: "
        "pulumi config set --secret gpu-runners:kubeconfig",
        "Pulumi.lab.yaml:29: projects.vision.credentials: the secret 'vision-privateKey' is not set; set it: "
        "pulumi config set --secret gpu-runners:vision-privateKey",
    ]


def test_a_secret_that_the_engine_has_in_plain_text_is_refused(engine: Engine, tmp_path: pathlib.Path) -> None:
    file = read(copied(CASES / "two-projects.ok.yaml", tmp_path))
    engine({**file.values, "ml-token": "hush"}, {"kubeconfig": "hush", "vision-privateKey": "hush"})
    messages = refused(tmp_path)
    assert messages == [
        "Pulumi.lab.yaml:16: ml-token: is a secret in plain text; revoke it, then set a new one: "
        "pulumi config set --secret gpu-runners:ml-token"
    ]


def test_a_section_that_is_a_secret_is_refused_unread(engine: Engine, tmp_path: pathlib.Path) -> None:
    file = read(copied(CASES / "smallest.ok.yaml", tmp_path))
    engine(dict(file.values) | {"projects": {}}, {"projects": "hush"})
    assert refused(tmp_path) == [
        "Pulumi.lab.yaml:13: projects: is encrypted, but a setting must be plain text; set it without --secret"
    ]


# -- several stacks ---------------------------------------------------------------------------------------------------


def two_stacks(folder: pathlib.Path, other: str) -> None:
    """The stack `lab`, and `other` beside it."""
    copied(CASES / "smallest.ok.yaml", folder)
    (folder / "Pulumi.other.yaml").write_text(other)


SAME_LABEL = (
    "Pulumi.lab.yaml:19: runners.mi300-gpu-2: is also a label of Pulumi.other.yaml, on the same cluster 'lab'; keep one"
)


def test_a_label_of_two_stacks_on_one_cluster_is_refused(engine: Engine, tmp_path: pathlib.Path) -> None:
    text = (CASES / "smallest.ok.yaml").read_text()
    two_stacks(tmp_path, text)
    with pytest.raises(InvalidSettings) as invalid:
        stack.read(tmp_path, "lab")
    assert str(invalid.value) == SAME_LABEL
    engine(dict(read(tmp_path / "Pulumi.lab.yaml").values), {})
    assert refused(tmp_path) == [SAME_LABEL]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("name: lab", "name: another"),
        ("mi300-gpu-2:", "mi300-gpu-2-other:"),
        ("gpu-runners:runners:", "gpu-runners:runners: ["),
        ("kind: bareMetal", "kind: [bareMetal"),
        ("    name: lab\n", ""),
        ("gpu-runners:cluster:", "gpu-runners:elsewhere:"),
    ],
)
def test_other_stacks_are_let_be(ours: str, theirs: str, tmp_path: pathlib.Path) -> None:
    """On another cluster, with other labels, or themselves not to be read."""
    text = (CASES / "smallest.ok.yaml").read_text()
    assert ours in text
    two_stacks(tmp_path, text.replace(ours, theirs))
    assert stack.read(tmp_path, "lab").settings.runners


def test_shared_labels_and_missing_secrets_are_told_together(engine: Engine, tmp_path: pathlib.Path) -> None:
    path = copied(CASES / "two-projects.ok.yaml", tmp_path)
    shutil.copy(path, tmp_path / "Pulumi.other.yaml")
    engine(dict(read(path).values), {"ml-token": "x", "vision-privateKey": "x"})
    assert [line.split(": ")[1] for line in refused(tmp_path)] == [
        "cluster.kubeconfig",
        "runners.ml-gpu-2",
        "runners.vision-gpu-8",
        "runners.vision-lint",
    ]


# -- a project of another name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["charts", "ci-fleet:charts", "gpu-runner:charts"])
def test_a_setting_in_another_namespace_is_refused(key: str, tmp_path: pathlib.Path) -> None:
    """The program would not see it: Pulumi takes a key without a namespace for the project's."""
    (tmp_path / "Pulumi.yaml").write_text("name: ci-fleet\n")
    text = (CASES / "smallest.ok.yaml").read_text()
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(text.replace("config:\n", f"config:\n  {key}: {{mirror: /charts}}\n", 1))
    line = text.splitlines().index("config:") + 2
    with pytest.raises(InvalidSettings) as refusal:
        load.from_file(path)
    whole = key if ":" in key else f"ci-fleet:{key}"
    assert str(refusal.value) == f"Pulumi.lab.yaml:{line}: {whole}: unknown key; did you mean 'gpu-runners:charts'?"


def test_a_project_may_have_a_key_called_like_a_setting_beside_the_setting(tmp_path: pathlib.Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: ci-fleet\n")
    text = (CASES / "smallest.ok.yaml").read_text()
    (tmp_path / "Pulumi.lab.yaml").write_text(text.replace("config:\n", "config:\n  ci-fleet:runners: 3\n", 1))
    settings, file = load.from_file(tmp_path / "Pulumi.lab.yaml")
    assert settings.runners
    assert file.foreign["ci-fleet:runners"] == 3
