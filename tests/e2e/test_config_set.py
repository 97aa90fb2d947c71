"""`pulumi config set` rewrites the stack file: nothing of a committed one is lost, and no setting of any changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.stack_file import stack_files
from tests import engine
from tests.conftest import ROOT

MISSING = engine.missing()

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing")

COMMITTED = [*stack_files(ROOT), *stack_files(ROOT / "examples/a10")]
SOUND = sorted((ROOT / "tests/settings").glob("*.ok.yaml"))


def rewritten(stack_file: Path, folder: Path) -> Path:
    """A copy of the stack file in which the engine has set a secret."""
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    copied = folder / "Pulumi.lab.yaml"
    engine.pulumi(folder, "stack", "init", "lab")
    # Nobody has the passphrase of a salt that was made for a test.
    kept = [line for line in stack_file.read_text().splitlines(True) if not line.startswith("encryptionsalt:")]
    copied.write_text("".join(kept))
    engine.pulumi(folder, "config", "set", "--secret", "--stack", "lab", "another:key", stdin="secret")
    return copied


@pytest.mark.parametrize("stack_file", COMMITTED, ids=lambda file: file.stem)
def test_a_committed_stack_file_gains_lines_and_loses_none(stack_file: Path, tmp_path: Path) -> None:
    before, after = stack_file.read_text(), rewritten(stack_file, tmp_path).read_text()
    assert after.startswith(before)
    added = after.removeprefix(before).splitlines()
    assert [line.partition(": ")[0].strip() for line in added] == ["another:key:", "secure", "encryptionsalt"]


@pytest.mark.parametrize("stack_file", SOUND, ids=lambda file: file.stem)
def test_settings_stay_the_same(stack_file: Path, tmp_path: Path) -> None:
    before, _ = load.from_file(stack_file)
    after, _ = load.from_file(rewritten(stack_file, tmp_path))
    assert after == before
