"""Two revisions: which, with whose code, and nothing of them left behind."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from gpufleet.arc.scale_set_args import RUNNER_IMAGE
from gpufleet_tools.diff import difference as diff
from gpufleet_tools.diff import revisions
from gpufleet_tools.diff.revisions import Compared, RevisionError
from gpufleet_tools.fork_server import ForkServer, fork_server
from tests.conftest import PYTHONPATH, ROOT
from tests.tools.diff import pull_requests
from tests.tools.diff.pull_requests import Repository

PYYAML = importlib.metadata.version("pyyaml")
DAY = datetime.date(2026, 12, 1)
DIGEST = RUNNER_IMAGE.partition("@")[2]
OTHER_DIGEST = "sha256:" + "0" * 64
MI300 = "Pulumi.mi300.yaml"
MORE: tuple[str, str, str] = (MI300, "      max: 8\n", "      max: 9\n")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("revisions") / "repository")


@pytest.fixture(autouse=True)
def clean(repository: Repository) -> Iterator[None]:
    """Every test starts from `main` as it was committed."""
    repository.git("checkout", "--quiet", "--force", "main")
    yield
    repository.git("reset", "--quiet", "--hard")


@pytest.fixture(autouse=True)
def scratch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where temporary folders are made; checkouts in it are seen."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def compare(repository: Repository, text: str, *stacks: str) -> Compared:
    return compared(repository.root, text, *stacks)


def compared(root: pathlib.Path, text: str, *stacks: str) -> Compared:
    with fork_server() as server:
        return revisions.compared(root, text, stacks, DAY, server)


def most(compared: Compared) -> list[int]:
    """The `max` of a label before and after."""
    sides = (compared.before, compared.after)
    return [label.max for side in sides for label in side.stacks["mi300"].labels if label.label == "mi300-cluster"]


# -- ranges -----------------------------------------------------------------------------------------------------------


def test_two_dots_compare_two_commits_and_say_what_is_left_out(repository: Repository, scratch: pathlib.Path) -> None:
    repository.branch("more", [MORE])
    repository.write([(MI300, "      max: 9\n", "      max: 7\n")], {})
    found = compare(repository, "main..more", "lab")
    assert most(found) == [8, 9]
    assert str(found.head).startswith("more (")
    assert found.notes == (
        "the working tree has uncommitted changes, which are not included; name only the base to include them",
    )
    assert list(scratch.iterdir()) == []
    assert repository.git("worktree", "list").count("\n") == 1


def test_a_base_alone_is_compared_with_the_working_tree(repository: Repository) -> None:
    repository.write([MORE], {})
    found = compare(repository, "main", "lab")
    assert most(found) == [8, 9]
    assert str(found.head) == "the working tree"
    assert found.notes == ("the working tree has uncommitted changes, which are included",)


def test_three_dots_compare_with_where_the_head_left_the_base(repository: Repository) -> None:
    repository.branch("left", [MORE])
    repository.branch("gone-on", [(MI300, "      max: 8\n", "      max: 5\n")])
    assert most(compare(repository, "gone-on..left", "lab")) == [5, 9]
    assert most(compare(repository, "gone-on...left", "lab")) == [8, 9]


def test_no_head_is_head(repository: Repository) -> None:
    repository.branch("more", [MORE])
    assert most(compare(repository, "main..", "lab")) == [8, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mian..HEAD", "there is no revision 'mian'"),
        ("main..haed", "there is no revision 'haed'"),
        ("main..--output=x", "there is no revision '--output=x'"),
        ("main:Pulumi.yaml..HEAD", "there is no revision 'main:Pulumi.yaml'"),
        ("..main", "'..main' has no base; use BASE..HEAD, or BASE alone to compare with the working tree"),
        ("...", "'...' has no base; use BASE..HEAD, or BASE alone to compare with the working tree"),
        ("", "'' has no base; use BASE..HEAD, or BASE alone to compare with the working tree"),
    ],
)
def test_a_revision_that_is_not_there(repository: Repository, text: str, message: str) -> None:
    with pytest.raises(RevisionError) as refused:
        compare(repository, text)
    assert str(refused.value) == message


def test_what_a_shallow_clone_lacks(repository: Repository, tmp_path: pathlib.Path) -> None:
    repository.branch("deep", [MORE])
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{repository.root}", clone], check=True)
    with pytest.raises(RevisionError, match=r"no revision 'HEAD~1'; this clone is shallow: git fetch --unshallow"):
        compared(clone, "HEAD~1..HEAD")


def test_a_folder_without_git(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RevisionError, match="is not in a git repository"):
        compared(tmp_path, "main..HEAD")


def test_a_revision_without_the_project(repository: Repository, scratch: pathlib.Path) -> None:
    repository.branch("empty", gone=["Pulumi.yaml"])
    with pytest.raises(RevisionError, match=r"empty \(.{8}\) has no Pulumi.yaml in this folder"):
        compare(repository, "empty..main")
    assert list(scratch.iterdir()) == []


def test_a_project_below_the_root_of_its_repository(tmp_path: pathlib.Path, repository: Repository) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(repository.root, whole / "ci/fleet", ignore=shutil.ignore_patterns(".git"))
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        someone = ["-c", "user.name=Test", "-c", "user.email=test@example.test"]
        subprocess.run(["git", *someone, *arguments], cwd=whole, check=True)
    found = compared(whole / "ci/fleet", "HEAD..HEAD", "lab")
    assert most(found) == [8, 8]


# -- code -------------------------------------------------------------------------------------------------------------


def runner_images(found: Compared) -> list[str]:
    """Images that the Helm releases of a stack's plans name, before and after."""
    sides = [str([each.inputs for each in side.stacks["mi300"].resources]) for side in (found.before, found.after)]
    return ["here" if OTHER_DIGEST in side else "not here" for side in sides]


def test_each_revision_runs_its_own_code(repository: Repository) -> None:
    """The installed project, this one, is neither."""
    edit = ("components/gpufleet/arc/runner_releases.json", DIGEST, OTHER_DIGEST)
    repository.branch("other-code", [edit])
    assert runner_images(compare(repository, "main..other-code", "mi300")) == ["not here", "here"]
    assert runner_images(compare(repository, "other-code..main", "mi300")) == ["here", "not here"]


def test_a_package_that_a_revision_lacks_is_not_taken_from_elsewhere(repository: Repository) -> None:
    files = [str(path.relative_to(repository.root)) for path in (repository.root / "components").rglob("*.py")]
    repository.branch("no-components", gone=files)
    with pytest.raises(
        RevisionError, match=r"no-components \(.*\) cannot be evaluated: the revision has no package gpufleet"
    ):
        compare(repository, "main..no-components")


BEFORE_THE_PACKAGES = "3a05d162f522b0077ee49af1a3823114ca86c104"
"""The last commit of this repository whose code was in the folders components, stacks, fleet and sandbox."""


def test_a_revision_of_the_older_layout(tmp_path: pathlib.Path) -> None:
    archive = ["git", "-C", ROOT, "archive", BEFORE_THE_PACKAGES]
    folders = ["components", "stacks", "fleet", "Pulumi.yaml", "Pulumi.mi300.yaml", "requirements.txt"]
    old = subprocess.run([*archive, *folders], capture_output=True, check=False)
    if old.returncode:
        pytest.skip(f"commit {BEFORE_THE_PACKAGES[:7]} is not in this clone")
    root = tmp_path / "moved"
    moved = Repository(root, {})
    moved.git("rm", "-r", "--quiet", ".")
    subprocess.run(["tar", "-x", "-C", root], input=old.stdout, check=True)
    moved.branch("old")
    found = compare(moved, "old..main", "mi300")
    assert "mi300-cluster" in {label.label for label in found.before.stacks["mi300"].labels}
    assert not found.before.stacks["mi300"].problems
    assert found.after.stacks == {}


def test_a_revision_that_writes_another_form(repository: Repository) -> None:
    repository.branch(
        "form", [("tools/gpufleet_tools/diff/evaluation.py", "form: Literal[1] = 1", "form: Literal[2] = 2")]
    )
    with pytest.raises(
        RevisionError, match="has a format that this gpufleet cannot read; use the newer gpufleet of both"
    ):
        compare(repository, "main..form")


def test_a_module_that_is_not_installed_is_named(repository: Repository, scratch: pathlib.Path) -> None:
    repository.branch(
        "needs", [("tools/gpufleet_tools/plan/stack.py", "import pathlib\n", "import pathlib\nimport not_installed\n")]
    )
    with pytest.raises(
        RevisionError,
        match=r"ModuleNotFoundError: No module named 'not_installed' \(tools/gpufleet_tools/plan/stack.py:6\)$",
    ):
        compare(repository, "main..needs")
    assert list(scratch.iterdir()) == []


def test_a_mistake_in_the_code_is_placed(repository: Repository, scratch: pathlib.Path) -> None:
    text = (repository.root / "stacks/gpufleet_stacks/settings/rules/runners.py").read_text()
    repository.branch("mistake", new={"stacks/gpufleet_stacks/settings/rules/runners.py": f"{text}def (\n"})
    line = text.count("\n") + 1
    with pytest.raises(
        RevisionError,
        match=rf"\) cannot be evaluated: SyntaxError: .*\(stacks/gpufleet_stacks/settings/rules/runners.py:{line}\)$",
    ):
        compare(repository, "main..mistake")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("import os; os._exit(0)", r"\) cannot be evaluated: its program ended the process$"),
        ("raise SystemExit(0)", None),
        ("import json; json.loads('{')", None),
    ],
)
def test_code_that_ends_or_raises_is_a_problem_of_its_revision(
    statement: str, message: str | None, repository: Repository
) -> None:
    """Its line is that of the project, also if a library raises."""
    name = "stacks/gpufleet_stacks/bare_metal.py"
    docstring = '    """Create the components of the stack'
    repository.branch("ends", [(name, docstring, f"    {statement}\n{docstring}")])
    if message:
        with pytest.raises(RevisionError, match=message):
            compare(repository, "main..ends", "mi300")
        return
    line = (repository.root / name).read_text().partition(statement)[0].count("\n") + 1
    (problem,) = compare(repository, "main..ends", "mi300").after.stacks["mi300"].problems
    assert problem.startswith(f"Pulumi.mi300.yaml: bare_metal.py:{line}: ")


def test_code_from_long_before(repository: Repository) -> None:
    """It is refused, and the message names no folder that is gone by then."""
    repository.branch("old", gone=["tools/gpufleet_tools/diff/evaluation.py", "tools/gpufleet_tools/plan/stack.py"])
    with pytest.raises(RevisionError) as refused:
        compare(repository, "old..main")
    assert str(refused.value).endswith("cannot be evaluated: it is older than `gpufleet diff`")
    assert "gpufleet-diff-" not in str(refused.value)


def test_a_merge_that_is_under_way_is_said(repository: Repository) -> None:
    repository.branch("one", [MORE])
    repository.branch("two", [(MI300, "      max: 8\n", "      max: 7\n")])
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "one")
    found = compare(repository, "main")
    assert found.notes[1:] == (f"a merge is in progress, with conflicts in {MI300}",)
    assert "is not YAML" in found.after.stacks["mi300"].problems[0]


def test_other_dependencies_are_said(repository: Repository) -> None:
    repository.branch("pins", [("requirements.txt", f"pyyaml=={PYYAML}", "pyyaml==0.0.0")])
    assert compare(repository, "main..pins", "lab").notes == (
        f"the dependencies differ (pyyaml {PYYAML} -> 0.0.0): both revisions were evaluated with the installed ones",
    )


# -- the same code in both -------------------------------------------------------------------------------------------


def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the programs that evaluate."""
    started = []
    evaluate = revisions._evaluate

    def evaluated(server: ForkServer, *programs: revisions._Program) -> None:
        started.extend(pathlib.Path(program.command[0]).name for program in programs)
        evaluate(server, *programs)

    monkeypatch.setattr(revisions, "_evaluate", evaluated)
    return started


@pytest.mark.parametrize(
    ("edits", "new", "started"),
    [
        ([MORE], {}, ["evaluation_of_both.py"]),
        (
            [],
            {"README.md": "Read me.\n", "LICENSE": "None.\n", "Pulumi.lab.deploy.yaml": "{}\n"},
            ["evaluation_of_both.py"],
        ),
        ([], {"Pulumi.more.yaml": "config: {}\n"}, ["evaluation_of_both.py"]),
        (
            [("components/gpufleet/quantity.py", "import re\n", "import re  # Other code.\n")],
            {},
            ["evaluation.py"] * 2,
        ),
        ([], {"requirements.txt": "pyyaml==0.0.0\n"}, ["evaluation.py"] * 2),
        ([], {"components/more.json": "{}\n"}, ["evaluation.py"] * 2),
        ([("Pulumi.yaml", "name: ", "# Another program may follow.\nname: ")], {}, ["evaluation.py"] * 2),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_the_same_code_runs_once(
    edits: list[tuple[str, str, str]],
    new: dict[str, str],
    started: list[str],
    committed: bool,
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if committed:
        repository.branch("some", edits, new=new)
    else:
        repository.write(edits, new)
    found = programs(monkeypatch)
    try:
        compare(repository, "main..some" if committed else "main")
    finally:
        repository.git("checkout", "--quiet", "--force", "main")
        repository.git("clean", "--quiet", "--force", "-d")
    assert found == started


EDITS = (
    [MORE],
    [MORE, ("Pulumi.lab.yaml", "max: ", "max: 1")],
    [(MI300, "v1:first", "v1:second")],
    [(MI300, "    kind: bareMetal\n", "    kind: none\n")],
)


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("stacks", [(), ("mi300",), ("lab",)])
def test_one_process_says_what_two_say(
    edits: list[tuple[str, str, str]],
    stacks: tuple[str, ...],
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.branch("differs", edits)
    once = diff.difference(compare(repository, "main..differs", *stacks), stacks, DAY)
    monkeypatch.setattr(revisions, "_same_code", lambda *_: False)
    started = programs(monkeypatch)
    assert diff.difference(compare(repository, "main..differs", *stacks), stacks, DAY) == once
    assert started == ["evaluation.py"] * 2


def test_a_stack_file_that_git_ignores_is_compared(repository: Repository) -> None:
    """People keep stacks of their own beside those of the repository."""
    text = (repository.root / MI300).read_text()
    assert "      max: 8\n" in text
    own = text.replace("    name: mi300\n", "    name: own\n")
    try:
        (repository.root / ".git/info/exclude").write_text("Pulumi.own.yaml\n")
        (repository.root / "Pulumi.own.yaml").write_text(own)
        found = compare(repository, "main", "own")
    finally:
        (repository.root / "Pulumi.own.yaml").unlink()
    assert "own" not in found.before.stacks
    assert found.after.stacks["own"].resources
    assert not found.after.stacks["own"].problems


READING = """
import pathlib, sys
def seen(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        print(arguments[0], file=sys.stderr)
sys.addaudithook(seen)
sys.argv = sys.argv[1:]
import runpy
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_evaluation_reads_no_unused_file(tmp_path: pathlib.Path) -> None:
    """Of this repository, with stacks of both kinds."""
    command = [
        sys.executable,
        "-P",
        "-c",
        READING,
        "tools/gpufleet_tools/diff/evaluation.py",
        tmp_path / "out",
        "key",
        "2026-12-01",
    ]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True
    )
    opened = {ROOT / line for line in ended.stderr.splitlines()}
    inside = {str(path.relative_to(ROOT)) for path in opened if path.is_relative_to(ROOT)}
    assert {"Pulumi.dev.yaml", "Pulumi.mi300.yaml", "components/gpufleet/aws/ec2/instance_types.json"} <= inside
    assert not {name for name in inside if revisions._UNUSED.fullmatch(name)}


def test_the_command_does_not_import_the_resources_of_a_provider() -> None:
    """It only compares evaluations: that import takes half a second."""
    code = (
        "import sys; from gpufleet_tools.diff import difference, refused_changes, report, revisions; "
        "print([name for name in sys.modules if name.startswith('pulumi_kubernetes')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "[]\n"


# -- secrets and what stays -------------------------------------------------------------------------------------------


SECRETS = {
    "HF_TOKEN": "correct-horse",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYnotakey123",
    "DB_PASSWORD": "01234567",
    "SLACK": "xoxb-123456789012-abcdefabcdef",
    "PYPI": "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAw",
    "NPM": "npm_a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6",
}


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_secret_among_variables_is_refused_and_not_printed(repository: Repository, form: str) -> None:
    text = (repository.root / "Pulumi.mi300.yaml").read_text()
    before = "".join(text[text.index("  gpu-runners:profiles:") :].splitlines(keepends=True)[:2])
    variables = "".join(f"        {name}: {value}\n" for name, value in SECRETS.items())
    head = repository.branch("head", [("Pulumi.mi300.yaml", before, f"{before}      env:\n{variables}")])
    code, out, err = pull_requests.compare(repository, f"main..{head}", "--format", form)
    assert code == 2
    for name, value in SECRETS.items():
        assert f"env.{name}: is a secret in plain text" in out
        assert value not in out + err


def test_no_secret_and_no_digest_that_lasts(repository: Repository) -> None:
    one, two = (compare(repository, "main..main", "mi300") for _ in range(2))
    digests = [each.before.stacks["mi300"].secrets["test-cluster-privateKey"] for each in (one, two)]
    assert digests[0] != digests[1]
    assert one.before == one.after
    assert "v1:first" not in one.before.model_dump_json()
    assert '"1000001"' not in one.before.model_dump_json()


def test_a_diff_that_is_terminated_leaves_nothing(repository: Repository, scratch: pathlib.Path) -> None:
    edit = (
        "stacks/gpufleet_stacks/bare_metal.py",
        '    """Create the components of the stack',
        '    import time; time.sleep(60)\n    """Create the components of the stack',
    )
    repository.branch("slow", [edit])
    code = "from gpufleet_tools.cli import main; main()"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "-C", repository.root, "diff", "main..slow", "lab"],
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": PYTHONPATH},
    )
    until = time.monotonic() + 60
    while not list(scratch.glob("gpufleet-diff-*/base.json")) and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 128 + signal.SIGTERM
    assert list(scratch.iterdir()) == []
