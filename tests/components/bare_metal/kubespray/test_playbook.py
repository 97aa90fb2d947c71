"""How Ansible's output is summarised, and Ansible's environment variables."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.driver.playbook import Outcome, Reader, Surroundings, message

pytestmark = pytest.mark.process

VENV = pathlib.Path(sys.prefix)


def read(output: str, code: int = 0) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    reader = Reader(said.append)
    for line in output.splitlines():
        reader.read(line)
    return reader.outcome(code), said


def playbook(folder: pathlib.Path, tasks: str, hosts: str = "a,b,") -> Outcome:
    """What real Ansible prints of some tasks on two hosts that are this machine."""
    playbook = folder / "play.yml"
    playbook.write_text(f"- name: Try\n  hosts: all\n  gather_facts: false\n  tasks:\n{tasks}")
    place = Surroundings(checkout=folder, venv=VENV, folder=folder)
    (folder / "ansible.cfg").write_text("")
    command = [VENV / "bin" / "ansible-playbook", "-i", hosts, "-c", "local", playbook]
    done = subprocess.run(
        command, env=place.environment(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    return read(done.stdout, done.returncode)[0]


def test_a_task_that_fails_on_one_of_two_hosts(tmp_path: pathlib.Path) -> None:
    outcome = playbook(
        tmp_path,
        "    - {name: 'Install it', fail: {msg: no space}, when: inventory_hostname == 'b'}\n",
    )
    assert not outcome.well
    assert outcome.failed == {"b": "task 'Install it': no space"}


def test_what_is_ignored_or_rescued_has_not_failed(tmp_path: pathlib.Path) -> None:
    outcome = playbook(
        tmp_path,
        "    - {name: First, fail: {msg: never mind}, ignore_errors: true}\n"
        "    - {name: Then, block: [{fail: {msg: rescued}}], rescue: [{debug: {msg: well}}]}\n"
        "    - {name: Last, fail: {msg: the one}, when: inventory_hostname == 'a'}\n",
    )
    assert outcome.failed == {"a": "task 'Last': the one"}


def test_a_loop_says_which_task_it_was(tmp_path: pathlib.Path) -> None:
    outcome = playbook(tmp_path, "    - {name: Each, fail: {msg: 'no {{ item }}'}, loop: [x]}\n", hosts="a,")
    assert outcome.failed["a"].startswith("task 'Each': ")


def test_a_secret_of_a_task_without_log_is_not_told(tmp_path: pathlib.Path) -> None:
    outcome = playbook(tmp_path, "    - {name: Quiet, fail: {msg: hunter2}, no_log: true}\n", hosts="a,")
    assert "hunter2" not in outcome.failed["a"]
    assert outcome.failed["a"].startswith("task 'Quiet'")


def test_a_delegated_task_is_its_own_hosts(tmp_path: pathlib.Path) -> None:
    outcome = playbook(tmp_path, "    - {name: There, fail: {msg: no}, delegate_to: b}\n", hosts="a,b,")
    assert set(outcome.failed) == {"a", "b"}
    outcome = playbook(tmp_path, "    - {name: There, command: 'false', delegate_to: b, run_once: true}\n")
    assert "task 'There'" in outcome.failed["a"]


def test_a_host_that_is_not_reached(tmp_path: pathlib.Path) -> None:
    outcome = playbook(
        tmp_path,
        "    - {name: Reach, ping: {}, vars: {ansible_connection: ssh, ansible_host: 203.0.113.1, ansible_port: 1,"
        " ansible_ssh_extra_args: -o ConnectTimeout=1}, when: inventory_hostname == 'b'}\n",
    )
    assert list(outcome.unreachable) == ["b"]
    assert outcome.unreachable["b"].startswith("task 'Reach': ")
    assert outcome.failed == {}


def test_what_ends_well(tmp_path: pathlib.Path) -> None:
    outcome = playbook(tmp_path, "    - {name: Say, debug: {msg: hello}}\n")
    assert outcome.well


def test_output_that_breaks_off_is_not_well() -> None:
    outcome, _ = read("PLAY [Install] ****\n\nTASK [kubernetes/node : Install kubelet] ****\nok: [a]\n")
    assert not outcome.well


def test_progress_is_a_line_for_each_role() -> None:
    _, said = read(
        "PLAY [Install] ****\n"
        "TASK [etcd : One] ****\nTASK [etcd : Two] ****\nTASK [Three] ****\n"
        "TASK [kubernetes/node : Four] ****\nRUNNING HANDLER [kubernetes/node : Five] ****\n"
    )
    assert said == ["Install: etcd (task 1)", "Install: kubernetes/node (task 4)"]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ('{"changed": false, "msg": "no space"}', "no space"),
        ('{"msg": "non-zero return code", "stderr": "a\\nb"}', "non-zero return code; a b"),
        ("something else", "something else"),
        ('["a list"]', '["a list"]'),
        ("{}", "{}"),
    ],
)
def test_what_a_result_says(result: str, said: str) -> None:
    assert message(result) == said


@given(text=st.text(max_size=2000))
def test_any_output_is_read(text: str) -> None:
    """Output is other people's: whatever it is, it ends no run."""
    outcome, said = read(text)
    assert len(message(text)) <= 400
    assert all("\n" not in line for line in said)
    assert outcome.failed == {}


def test_facts_of_two_clusters_and_the_callers_settings_are_kept_apart(tmp_path: pathlib.Path) -> None:
    one, other = (
        Surroundings(checkout=tmp_path, venv=VENV, folder=tmp_path / name).environment(
            {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_CACHE_PLUGIN_CONNECTION": "/tmp", "HOME": "/home/ci"}
        )
        for name in ("one", "other")
    )
    assert one["ANSIBLE_CACHE_PLUGIN_CONNECTION"] != other["ANSIBLE_CACHE_PLUGIN_CONNECTION"] != "/tmp"
    assert one["ANSIBLE_SSH_CONTROL_PATH_DIR"] != other["ANSIBLE_SSH_CONTROL_PATH_DIR"]
    assert one["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert "StrictHostKeyChecking=yes" in one["ANSIBLE_SSH_ARGS"]
    assert one["HOME"] == "/home/ci"
