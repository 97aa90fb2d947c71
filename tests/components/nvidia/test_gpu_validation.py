"""The validation of NVIDIA GPUs, run for real with each shell: output as nvidia-smi and dcgmi print it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from gpufleet import ExpectedGpus, GpuValidation, InvalidArguments
from gpufleet.nvidia import NvidiaGpuOperator, NvidiaGpuOperatorArgs, TimeSlicing
from gpufleet.nvidia.validated_device_plugin import SCRIPT
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, the
from tests.validations import SHELLS, Machine, expanded

process = pytest.mark.process

H100 = GpuValidation(default=ExpectedGpus(count=8))

BUSES = ("07", "0F", "47", "4E", "87", "90", "B7", "BD")

ROWS = "".join(f"00000000:{bus}:00.0, 0\n" for bus in BUSES)
"""`--format=csv,noheader,nounits` of a machine with eight GPUs (nvidia-smi(1))."""

LOST = "Unable to determine the device handle for GPU2: 0000:47:00.0: Unknown Error"

DIAGNOSTIC = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.6.0                                          |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | {result}                                           |
|                           | GPU0: Pass                                     |
|                           | GPU5: {result}                                     |
+---------------------------+------------------------------------------------+
"""
"""Output of `dcgmi diag` (dcgmi/Diag.cpp of NVIDIA/DCGM at v4.6.0)."""


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def machine(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Machine:
    found = Machine(tmp_path, SCRIPT, request.param)
    smi(found, ROWS)
    return found


def smi(machine: Machine, rows: str, code: int = 0, processes: str = "") -> None:
    """Let nvidia-smi print these rows, and these process IDs."""
    machine.write("rows", rows)
    machine.write("processes", processes)
    machine.program(
        "nvidia-smi",
        f'case $* in *compute-apps*) cat "{machine.folder}/processes" ;;'
        f' *) cat "{machine.folder}/rows"; exit {code} ;; esac\n',
    )


def dcgm(machine: Machine, result: str, code: int) -> None:
    """Let dcgmi print a diagnostic whose test of memory has this result."""
    machine.write("diagnostic", DIAGNOSTIC.format(result=result))
    machine.program("nv-hostengine", f'touch "{machine.folder}/engine"\n')
    text = f'cat "{machine.folder}/diagnostic"; echo "$@" >>"{machine.folder}/asked"; exit {code}\n'
    machine.program("dcgmi", f'[ -e "{machine.folder}/engine" ] || exit 9\n{text}')


@process
def test_a_sound_machine_passes(machine: Machine) -> None:
    outcome = machine.validate(H100)
    assert (outcome.code, outcome.faults) == (0, ["8 GPUs passed the validation, level quick"])


@process
@pytest.mark.parametrize(
    ("rows", "code", "faults"),
    [
        (
            ROWS.replace("00000000:87:00.0, 0\n", ""),
            0,
            ["gpus: the driver runs 7 GPUs, declared are 8; search for NVRM in the output of dmesg"],
        ),
        (
            ROWS.replace("B7:00.0, 0", "B7:00.0, 3"),
            0,
            ["ras: GPU 00000000:B7:00.0 has 3 uncorrectable ECC errors; reboot, and replace it if they return"],
        ),
        (
            ROWS.replace("00000000:47:00.0, 0\n", "") + f"{LOST}\n",
            15,
            [
                f"nvidia-smi: ended with 15: {LOST}",
                "gpus: the driver runs 7 GPUs, declared are 8; search for NVRM in the output of dmesg",
            ],
        ),
        (
            "No devices were found\n",
            6,
            [
                "nvidia-smi: ended with 6: No devices were found",
                "gpus: the driver runs 0 GPUs, declared are 8; search for NVRM in the output of dmesg",
            ],
        ),
        (ROWS.replace(", 0", ", [N/A]"), 0, ["8 GPUs passed the validation, level quick"]),
    ],
)
def test_rows_of_nvidia_smi(machine: Machine, rows: str, code: int, faults: list[str]) -> None:
    smi(machine, rows, code)
    assert machine.validate(H100).faults == faults


@process
def test_no_driver(machine: Machine) -> None:
    (machine.folder / "bin/nvidia-smi").unlink()
    (fault,) = machine.validate(H100).faults
    assert fault.startswith("driver: there is no nvidia-smi; install the driver")


@process
def test_the_diagnostics_of_dcgm(machine: Machine) -> None:
    dcgm(machine, "Pass", 0)
    outcome = machine.validate(dataclasses.replace(H100, level="medium"))
    assert outcome.faults == ["8 GPUs passed the validation, level medium"]
    assert (machine.folder / "asked").read_text() == "diag --run medium\n"


@process
def test_a_failed_diagnostic_names_test_and_gpu(machine: Machine) -> None:
    dcgm(machine, "Fail", 226)
    outcome = machine.validate(dataclasses.replace(H100, level="long"))
    assert outcome.code == 1
    assert outcome.faults[:2] == ["dcgm: memory failed", "dcgm: memory failed on GPU5"]
    assert outcome.faults[2].startswith("dcgm: dcgmi ended with 226")


@process
def test_an_image_without_dcgm(machine: Machine) -> None:
    outcome = machine.validate(dataclasses.replace(H100, level="medium"))
    assert outcome.faults[0].startswith("dcgm: the image has no dcgmi; ")


@process
def test_gpus_in_use_are_not_tested(machine: Machine) -> None:
    dcgm(machine, "Fail", 226)
    smi(machine, ROWS, processes="4711\n")
    assert machine.validate(dataclasses.replace(H100, level="medium")).result["level"] == ["quick"]


# -- the device plugin ------------------------------------------------------------------------------------------------


def plan(**args: Any) -> Plan:
    """The operator on hosts with a toolkit."""
    settings = NvidiaGpuOperatorArgs(**{"host_toolkit_pinned": True, **args})
    return recorded(lambda: NvidiaGpuOperator("gpus", settings, on_cluster()))


def test_the_operator_installs_no_second_plugin() -> None:
    assert the(plan(validation=H100), "Release").inputs["values"]["devicePlugin"] == {"enabled": False}
    without = plan()
    assert "devicePlugin" not in the(without, "Release").inputs["values"]
    assert not [each for each in without.owned() if each.type.endswith((":DaemonSet", ":ConfigMap"))]


def test_gpus_are_validated_before_the_plugin_starts() -> None:
    spec = the(plan(validation=H100, tolerations=[{"operator": "Exists"}]), "DaemonSet").inputs["spec"]
    pod = spec["template"]["spec"]
    (validation,), (plugin,) = pod["initContainers"], pod["containers"]
    assert validation["image"] == plugin["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    for container in (validation, plugin):
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in container["env"]
        assert {each["name"] for each in container["volumeMounts"]} <= {each["name"] for each in pod["volumes"]}
    assert {"operator": "Exists"} in pod["tolerations"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    environment = {each["name"]: each.get("value", "") for each in validation["env"]}
    assert [expanded(each, environment) for each in validation["command"]] == validation["command"]


def test_a_test_needs_an_image_with_dcgm() -> None:
    found = plan(validation=dataclasses.replace(H100, level="long"))
    pod = the(found, "DaemonSet").inputs["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["image"].startswith("nvcr.io/nvidia/cloud-native/dcgm:4.6.0")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"host_toolkit_pinned": False}, "validation: requires a toolkit on the hosts"),
        ({"sharing": TimeSlicing(replicas=4)}, "validation: does not support sharing"),
        ({"values": {"devicePlugin": {"enabled": True}}}, "values.devicePlugin: would install a second device plugin"),
    ],
)
def test_what_the_plugin_does_not_support(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        plan(validation=H100, **args)
