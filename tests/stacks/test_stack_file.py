"""The text of a stack file: lines, what is encrypted, whose keys they are, and what YAML readers disagree on."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.stack_file import DEEPEST, StackFile, read, stack_files

SHARED = """\
config:
  gpu-runners:profiles:
    base: &base
      image: one
      env: {A: x}
    other:
      <<: *base
      env: {A: y}
    again: *base
    both:
      <<: [{image: two}, *base]
  gpu-runners:acknowledged:
    - finding: first
    - finding: second
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path


def reading(folder: pathlib.Path, text: str | bytes) -> StackFile:
    """The stack file `lab` with that text."""
    path = folder / "Pulumi.lab.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def problems(folder: pathlib.Path, text: str) -> list[str]:
    """What is wrong with the text."""
    return [str(problem).removeprefix("Pulumi.lab.yaml:") for problem in reading(folder, text).problems]


def refused(folder: pathlib.Path, text: str | bytes) -> str:
    """Why the text cannot be read."""
    with pytest.raises(InvalidSettings) as invalid:
        reading(folder, text)
    return str(invalid.value).removeprefix("Pulumi.lab.yaml:")


# -- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("profiles",), 2),
        (("profiles", "base"), 3),
        (("profiles", "base", "env", "A"), 5),
        (("profiles", "other", "env", "A"), 8),
        (("profiles", "other", "image"), 4),
        (("profiles", "again"), 9),
        (("profiles", "again", "image"), 4),
        (("profiles", "both", "image"), 11),
        (("profiles", "both", "env"), 5),
        (("acknowledged", 1), 14),
        (("acknowledged", 1, "finding"), 14),
        (("profiles", "base", "no such key"), 3),
        (("profiles", "no such key", "image"), 2),
        (("acknowledged", 7), 12),
        (("no such section", "base"), None),
        ((), None),
    ],
)
def test_the_line_is_that_of_the_deepest_part_there_is(
    folder: pathlib.Path, path: tuple[str | int, ...], line: int | None
) -> None:
    assert reading(folder, SHARED).line(path) == line


def test_merged_values_are_those_of_yaml(folder: pathlib.Path) -> None:
    profiles = reading(folder, SHARED).values["profiles"]
    assert profiles["other"] == {"image": "one", "env": {"A": "y"}}
    assert profiles["again"] == profiles["base"]
    assert profiles["both"] == {"image": "two", "env": {"A": "x"}}


@pytest.mark.parametrize("text", ["1.30", "0.10", "no such date", "'quoted'"])
def test_a_scalar_is_known_as_it_is_written(folder: pathlib.Path, text: str) -> None:
    file = reading(folder, f"config:\n  gpu-runners:arc: {{version: {text}}}\n")
    assert file.written(("arc", "version")) == text.strip("'")
    assert file.written(("arc",)) is None
    assert file.written(("arc", "release")) is None


def test_carriage_returns_and_a_byte_order_mark_change_nothing(folder: pathlib.Path) -> None:
    plain = reading(folder, SHARED)
    marked = reading(folder, b"\xef\xbb\xbf" + SHARED.replace("\n", "\r\n").encode())
    assert marked.values == plain.values
    assert marked.line(("acknowledged", 1)) == plain.line(("acknowledged", 1))


# -- keys -------------------------------------------------------------------------------------------------------------


def test_whose_a_key_is(folder: pathlib.Path) -> None:
    file = reading(
        folder,
        """\
encryptionsalt: v1:abc=
config:
  pulumi:disable-default-providers: ["*"]
  aws:defaultTags: {tags: {owner: {secure: v1:abc}}}
  gpu-runners:arc: {release: a}
  charts: {mirror: /charts}
  gpu-runners:ml-token: {secure: v1:abc}
  vision-token:
    secure: v1:abc
""",
    )
    assert file.stack == "lab"
    assert file.values == {"arc": {"release": "a"}, "charts": {"mirror": "/charts"}}
    assert file.secrets == {"ml-token", "vision-token"}
    assert set(file.foreign) == {"pulumi:disable-default-providers", "aws:defaultTags"}
    assert file.problems == ()
    assert file.line(("charts", "mirror")) == 6


def test_in_a_project_of_another_name_the_settings_keep_their_namespace(folder: pathlib.Path) -> None:
    (folder / "Pulumi.yaml").write_text("name: ci-fleet\nruntime: python\n")
    file = reading(
        folder,
        """\
config:
  gpu-runners:arc: {release: a}
  gpu-runners:ml-token: {secure: v1:abc}
  alertsTo: oncall@example.test
  ci-fleet:pagerKey: {secure: v1:abc}
""",
    )
    assert file.values == {"arc": {"release": "a"}}
    assert file.secrets == {"ml-token"}
    assert file.foreign == {"ci-fleet:alertsTo": "oncall@example.test"}
    assert file.foreign_secrets == {"ci-fleet:pagerKey"}
    assert file.line(("ci-fleet:alertsTo",)) == 4


def test_one_key_written_in_two_ways_stands_twice(folder: pathlib.Path) -> None:
    (folder / "Pulumi.yaml").write_text("name: ci-fleet\nruntime: python\n")
    file = reading(folder, "config:\n  runners: {}\n  gpu-runners:runners: {}\n  ci-fleet:runners: {}\n")
    assert [str(problem) for problem in file.problems] == [
        "Pulumi.lab.yaml:4: ci-fleet:runners: is set twice: here and in line 2; remove one"
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "~\n", "{}\n", "config:\n", "config: {}\n"])
def test_a_file_may_say_nothing(folder: pathlib.Path, text: str) -> None:
    file = reading(folder, text)
    assert (file.values, file.secrets, file.foreign, file.problems) == ({}, frozenset(), {}, ())


@pytest.mark.parametrize(
    ("value", "encrypted"),
    [
        ("{secure: v1:abc}", True),
        ("{secure: 1}", False),
        ("{secure: [v1:abc]}", False),
        ("{secure: v1:abc, more: x}", False),
        ("v1:abc", False),
    ],
)
def test_what_counts_as_encrypted(folder: pathlib.Path, value: str, encrypted: bool) -> None:
    """What Pulumi counts: a map of `secure` alone, with a text."""
    file = reading(folder, f"config:\n  gpu-runners:ml-token: {value}\n")
    assert file.secrets == ({"ml-token"} if encrypted else frozenset())
    assert ("ml-token" in file.values) is not encrypted


# -- problems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("0123456", "42798"),
        ("0x1F", "31"),
        ("0b101", "5"),
        ("1_000", "1000"),
        ("1_000.5", "1000.5"),
        ("190:20", "11420"),
        ("-010", "-8"),
    ],
)
def test_numbers_that_are_not_what_is_written(folder: pathlib.Path, text: str, read_as: str) -> None:
    assert problems(folder, f"config:\n  gpu-runners:arc: {{version: {text}}}\n") == [
        f'2: arc.version: {text} is read as the number {read_as}; write {read_as}, or in quotes: "{text}"'
    ]


@pytest.mark.parametrize("text", ["yes", "No", "on", "OFF"])
def test_words_that_are_switches_to_some(folder: pathlib.Path, text: str) -> None:
    word = "true" if text in ("yes", "on") else "false"
    assert problems(folder, f"config:\n  gpu-runners:arc: {{metrics: {text}}}\n") == [
        f'2: arc.metrics: {text} is {word} to some parsers and text to others; write {word}, or in quotes: "{text}"'
    ]


@pytest.mark.parametrize("text", ["5e7", "1.5E6", "0o17", "0189", "123e4567"])
def test_text_that_is_a_number_to_the_engine(folder: pathlib.Path, text: str) -> None:
    (problem,) = problems(folder, f"config:\n  gpu-runners:arc: {{version: {text}}}\n")
    assert problem.startswith(f"2: arc.version: {text} is text to some parsers and a number to others")


@pytest.mark.parametrize(
    "text",
    [
        *("0", "10", "-3", "1.5", ".5", "1.30", "true", "False", "null", "2027-03-31", "192.0.2.1", "0.14.2"),
        *("1e", "e5", "yes!", "100G", "=", "on-a-node", "'0123'", '"yes"', "'5e7'"),
    ],
)
def test_what_everybody_reads_alike_is_no_mistake(folder: pathlib.Path, text: str) -> None:
    assert problems(folder, f"config:\n  gpu-runners:arc: {{version: {text}}}\n") == []


def test_mistakes_within_an_alias_are_told_where_they_stand(folder: pathlib.Path) -> None:
    text = "config:\n  gpu-runners:profiles:\n    a: &a {image: 0123}\n    b: *a\n"
    assert [problem.split(";")[0] for problem in problems(folder, text)] == [
        "3: profiles.a.image: 0123 is read as the number 83",
        "3: profiles.b.image: 0123 is read as the number 83",
    ]


def test_a_key_twice_names_both_lines_wherever_it_is(folder: pathlib.Path) -> None:
    text = (
        "config:\n  gpu-runners:arc:\n    release: a\n    'release': b\n  aws:region: x\n  aws:region: y\nconfig: {}\n"
    )
    assert problems(folder, text) == [
        "4: arc.release: is set twice: here and in line 3; remove one",
        "6: aws:region: is set twice: here and in line 5; remove one",
        "7: config: is set twice: here and in line 1; remove one",
    ]


def test_a_key_may_stand_in_a_merge_and_beside_it(folder: pathlib.Path) -> None:
    assert problems(folder, SHARED) == []


@pytest.mark.parametrize("key", ["yes", "1", "1.5", "2027-01-01", "~", "null"])
def test_keys_are_text(folder: pathlib.Path, key: str) -> None:
    assert problems(folder, f"config:\n  gpu-runners:runners:\n    {key}: x\n") == [
        f'3: runners.{key}: {key} is not text to YAML; put it in quotes: "{key}"'
    ]


@pytest.mark.parametrize("value", ["{secure: v1:abc}", "{owner: {secure: v1:abc}}", "[{secure: v1:abc}]"])
def test_secrets_stand_under_keys_of_their_own(folder: pathlib.Path, value: str) -> None:
    file = reading(folder, f"config:\n  gpu-runners:arc: {{release: {value}}}\n")
    assert [problem.message for problem in file.problems] == [
        "is an encrypted value inside a setting; a secret requires its own configuration key"
    ]
    assert "v1:abc" not in str(file.values)


def test_a_key_called_secure_among_others_is_none(folder: pathlib.Path) -> None:
    assert problems(folder, "config:\n  gpu-runners:arc: {release: {secure: x, other: y}}\n") == []


@pytest.mark.parametrize("tag", ["!mine", "!!binary", "!!set", "!!python/object/apply:os.system"])
def test_tags_are_refused(folder: pathlib.Path, tag: str) -> None:
    (problem,) = problems(folder, f"config:\n  gpu-runners:arc: {{release: {tag} {{a: b}}}}\n")
    assert problem.startswith("2: arc.release: has the YAML tag ")


# -- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: [\n", "2: is not YAML: did not find expected node content while parsing a flow node"),
        ("config:\n  a: *b\n", "2: is not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", "2: is not YAML: expected a single document in the stream but found another document"),
        (b"config:\n  a: \x07\n", "2: is not YAML: control characters are not allowed"),
        (b"config:\n  a: l\xe4b\n", "2: is not YAML: invalid trailing UTF-8 octet"),
        ("x\n", "1: \"x\" is not a stack file; a stack file is a mapping with the key 'config'"),
        ("config: " + "[" * 100_000, f"1: is nested deeper than {DEEPEST} levels; no setting is that deep"),
        ("- " * 100_000, f"1: is nested deeper than {DEEPEST} levels; no setting is that deep"),
    ],
    ids=range(8),
)
def test_what_is_no_stack_file(folder: pathlib.Path, text: str | bytes, message: str) -> None:
    assert refused(folder, text).startswith(message)


def test_aliases_do_not_grow_without_bounds(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpufleet_stacks.settings.stack_file.MOST_VALUES", 10_000)
    lines = ["config:", "  gpu-runners:a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  gpu-runners:a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "expand to too many values" in refused(folder, "\n".join(lines))


def test_a_folder_is_no_stack_file(folder: pathlib.Path) -> None:
    (folder / "Pulumi.lab.yaml").mkdir()
    with pytest.raises(InvalidSettings, match=r"^Pulumi\.lab\.yaml: cannot be read: Is a directory$"):
        read(folder / "Pulumi.lab.yaml")


def test_values_are_those_of_pyyaml(folder: pathlib.Path) -> None:
    """Read here by nodes, and there by the library's own constructor."""
    import yaml

    from tests.conftest import ROOT

    for path in [*stack_files(ROOT), *(ROOT / "tests" / "settings").glob("*.ok.yaml")]:
        content: dict[str, Any] = yaml.safe_load(path.read_text())["config"]
        own = {key.removeprefix("gpu-runners:"): value for key, value in content.items() if "gpu-runners:" in key}
        file = read(path)
        assert file.values == {key: value for key, value in own.items() if key not in file.secrets}
        assert file.problems == ()
