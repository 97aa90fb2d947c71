"""The validation of AMD GPUs, run for real with each shell: sysfs as amdgpu writes it, output as RVS prints it."""

from __future__ import annotations

import pathlib

import pytest

from gpufleet import ExpectedGpus, GpuValidation
from gpufleet.amd.device_plugin import VALIDATION_SCRIPT
from tests.validations import SHELLS, Machine

pytestmark = pytest.mark.process

ADDRESSES = [f"0000:{bus}:00.0" for bus in ("05", "15", "65", "75", "85", "95", "e5", "f5")]
"""PCI addresses of the GPUs of a machine with eight (docs/ug1main.md of ROCmValidationSuite at v1.7.0)."""

WHOLE = ExpectedGpus(count=8, compute_partition="SPX", memory_partition="NPS1")

BLOCKS = ("umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")
"""Blocks whose counters rocm-smi reads (src/rocm_smi_device.cc of ROCm/rocm_smi_lib)."""

NO_ERRORS = "ue: 0\nce: 3\n"
"""Counters of a block; the driver prints uncorrectable errors first (amdgpu_ras_sysfs_read in
drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c of Linux)."""

SUMMARY = """\
[RESULT] [302144.844774] Action name :compute-fp8-trig
[RESULT] [302144.844775] Module name :gst
{lines}
+=====================================================================+
|                 ROCm Validation Suite (RVS) Summary                 |
+=====================================================================+
|                           System Overview                           |
+---------------------------------------------------------------------+
| Operating System                 | Ubuntu 22.04.5 LTS               |
| RVS version                      | 1.6.75                           |
| ROCm version                     | 7.2.1-81                         |
| amdgpu version                   | 6.16.13                          |
| GPUs                             | 8                                |
+=====================================================================+
| Action Name                      | Module         | Result          |
+=====================================================================+
| hbm_mid                          | BABEL          | \033[32mPASS          \033[0m  |
| compute-fp8-trig                 | GST            | \033[{colour}m{gst}          \033[0m  |
+---------------------------------------------------------------------+
"""
"""Output of RVS (docs/ug1main.md of ROCm/ROCmValidationSuite at v1.7.0; colours: rvs/src/rvsexec_do_yaml.cpp)."""

MET = "[RESULT] [302144.843455] [compute-fp8-trig] [GPU:: 11806] GFLOPS 1073132 Target GFLOPS: 1000000 met: TRUE"
PASSED = SUMMARY.format(lines=MET, colour=32, gst="PASS")
FAILED = SUMMARY.format(lines=MET.replace("TRUE", "FALSE"), colour=31, gst="FAIL")


def validation(level: str = "quick", expected: ExpectedGpus = WHOLE, seconds: int | None = None) -> GpuValidation:
    return GpuValidation(nodes={"gpu-1": expected}, level=level, timeout_seconds=seconds)  # type: ignore[arg-type]


def add_gpu(machine: Machine, index: int, address: str) -> None:
    """Add an MI300X: its folder, its device node, and its device in KFD's topology."""
    gpu = f"sys/module/amdgpu/drivers/pci:amdgpu/{address}"
    machine.write(f"{gpu}/current_compute_partition", "SPX\n")
    machine.write(f"{gpu}/current_memory_partition", "NPS1\n")
    machine.write(f"{gpu}/drm/renderD{128 + index}/dev", f"226:{128 + index}\n")
    machine.write(f"dev/dri/renderD{128 + index}", "")
    for block in BLOCKS:
        machine.write(f"{gpu}/ras/{block}_err_count", NO_ERRORS)
    machine.write(f"sys/class/kfd/kfd/topology/nodes/{2 + index}/properties", "cpu_cores_count 0\nsimd_count 1216\n")
    machine.write(f"sys/bus/pci/devices/{address}/vendor", "0x1002\n")
    machine.write(f"sys/bus/pci/devices/{address}/class", "0x120000\n")
    machine.write(f"sys/bus/pci/devices/{address}/driver", "")


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def machine(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Machine:
    found = Machine(tmp_path, VALIDATION_SCRIPT, request.param)
    for index in (0, 1):
        found.write(f"sys/class/kfd/kfd/topology/nodes/{index}/properties", "cpu_cores_count 96\nsimd_count 0\n")
    for index, address in enumerate(ADDRESSES):
        add_gpu(found, index, address)
    found.write("dev/kfd", "")
    (tmp_path / "sys/class/kfd/kfd/proc").mkdir()
    return found


def gpu(machine: Machine, address: str) -> pathlib.Path:
    return machine.folder / "sys/module/amdgpu/drivers/pci:amdgpu" / address


# -- quick ------------------------------------------------------------------------------------------------------------


def test_a_sound_machine_passes(machine: Machine) -> None:
    outcome = machine.validate(validation())
    assert (outcome.code, outcome.faults) == (0, ["8 GPUs passed the validation, level quick"])
    assert outcome.result.keys() == {"result", "at", "level", "gpus"}
    assert (outcome.result["result"], outcome.result["level"], outcome.result["gpus"]) == (["passed"], ["quick"], ["8"])
    assert outcome.log == ""


def fault(machine: Machine, expected: ExpectedGpus = WHOLE) -> str:
    """The only fault that the validation finds."""
    outcome = machine.validate(validation(expected=expected))
    (line,) = outcome.faults
    assert outcome.code == 1
    assert outcome.result["fault"] == [line]
    assert outcome.result["result"] == ["failed"]
    return line


def test_a_gpu_that_the_driver_does_not_run(machine: Machine) -> None:
    lost = gpu(machine, "0000:65:00.0")
    lost.rename(machine.folder / "lost")
    (machine.folder / "sys/class/kfd/kfd/topology/nodes/4/properties").unlink()
    (machine.folder / "sys/bus/pci/devices/0000:65:00.0/driver").unlink()
    assert fault(machine) == (
        "gpus: the driver runs 7 GPUs, declared are 8, without driver: 0000:65:00.0; search for amdgpu in the output of"
        " dmesg"
    )


def test_a_gpu_that_has_left_the_bus(machine: Machine) -> None:
    gpu(machine, "0000:65:00.0").rename(machine.folder / "lost")
    (machine.folder / "sys/bus/pci/devices/0000:65:00.0").rename(machine.folder / "off")
    assert fault(machine).startswith("gpus: the driver runs 7 GPUs, declared are 8; ")


@pytest.mark.parametrize("block", BLOCKS)
def test_uncorrectable_errors_name_gpu_and_block(machine: Machine, block: str) -> None:
    (gpu(machine, "0000:e5:00.0") / f"ras/{block}_err_count").write_text("ue: 2\nce: 0\nde: 0\n")
    assert fault(machine) == (
        f"ras: GPU 0000:e5:00.0 has 2 uncorrectable errors in {block}; reboot, and replace it if they return"
    )


def test_counters_that_cannot_be_read_are_no_errors(machine: Machine) -> None:
    """As during a reset (amdgpu_ras_sysfs_read)."""
    (gpu(machine, "0000:e5:00.0") / "ras/umc_err_count").write_text("Query currently inaccessible\n")
    assert machine.validate(validation()).code == 0


@pytest.mark.parametrize(("kind", "declared", "found"), [("compute", "SPX", "CPX"), ("memory", "NPS1", "NPS4")])
def test_another_partition(machine: Machine, kind: str, declared: str, found: str) -> None:
    (gpu(machine, "0000:05:00.0") / f"current_{kind}_partition").write_text(f"{found}\n")
    assert fault(machine) == (
        f"partition: GPU 0000:05:00.0 has {kind} partition {found}, declared is {declared}; run: amd-smi set --gpu all"
        f" --{kind}-partition {declared}"
    )


def test_gpus_that_cannot_be_partitioned_pass(machine: Machine) -> None:
    for address in ADDRESSES:
        for kind in ("compute", "memory"):
            (gpu(machine, address) / f"current_{kind}_partition").unlink()
    assert machine.validate(validation()).code == 0


def test_devices_that_are_missing_under_cpx(machine: Machine) -> None:
    """MI300X under CPX that offer 63 devices (ROCm/k8s-device-plugin#157)."""
    for address in ADDRESSES:
        (gpu(machine, address) / "current_compute_partition").write_text("CPX\n")
    for index in range(8, 63):
        machine.write(f"sys/class/kfd/kfd/topology/nodes/{2 + index}/properties", "simd_count 152\n")
    expected = ExpectedGpus(count=8, devices=64, compute_partition="CPX", memory_partition="NPS1")
    assert fault(machine, expected).startswith("devices: ROCm offers 63 devices, expected are 64; ")


def test_a_gpu_that_cannot_be_opened(machine: Machine) -> None:
    (machine.folder / "dev/dri/renderD130").unlink()
    assert fault(machine).startswith("open: GPU 0000:65:00.0 cannot be opened as /dev/dri/renderD130; ")


def test_no_kfd(machine: Machine) -> None:
    (machine.folder / "dev/kfd").unlink()
    assert fault(machine).startswith("kfd: no /dev/kfd, so ROCm finds no GPU; ")


def test_no_driver(machine: Machine) -> None:
    (machine.folder / "sys/module/amdgpu").rename(machine.folder / "gone")
    assert fault(machine) == "driver: the module amdgpu is not loaded; install the driver, or run: modprobe amdgpu"


def test_each_fault_is_a_line(machine: Machine) -> None:
    (gpu(machine, "0000:05:00.0") / "ras/gfx_err_count").write_text("ue: 1\nce: 0\n")
    (gpu(machine, "0000:15:00.0") / "current_memory_partition").write_text("NPS4\n")
    outcome = machine.validate(validation())
    assert [line.partition(":")[0] for line in outcome.faults] == ["ras", "partition"]


def test_a_node_that_is_not_declared(machine: Machine) -> None:
    outcome = machine.validate(validation(), node="gpu-9")
    assert outcome.code == 1
    assert outcome.faults == [
        "declaration: the stack file has no machine gpu-9; declare it, or wait until pulumi up has ended"
    ]


def test_other_nodes_have_the_default(machine: Machine) -> None:
    assert machine.validate(GpuValidation(default=WHOLE), node="gpu-9").code == 0
    other = GpuValidation(nodes={"gpu-1": WHOLE}, default=ExpectedGpus(count=4))
    assert machine.validate(other).code == 0
    assert machine.validate(other, node="gpu-9").faults[0].startswith("gpus: the driver runs 8 GPUs, declared are 4")


def test_a_check_that_hangs(machine: Machine) -> None:
    with machine.hanging(f"sys/module/amdgpu/drivers/pci:amdgpu/{ADDRESSES[3]}/ras/umc_err_count"):
        outcome = machine.validate(validation(seconds=1))
    assert outcome.code == 1
    assert outcome.faults[0].startswith("timeout: the check did not end within 1 s; ")


# -- the test of medium and long --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "of_rvs"), [("medium", 3), ("long", 4)])
def test_the_levels_of_rvs(machine: Machine, level: str, of_rvs: int) -> None:
    machine.program("rvs", f'echo "$@" >>{machine.folder}/asked\ncat <<END\n{PASSED}\nEND\n')
    outcome = machine.validate(validation(level))
    assert outcome.faults == [f"8 GPUs passed the validation, level {level}"]
    assert (machine.folder / "asked").read_text() == f"-r {of_rvs}\n"
    assert "RVS version" in outcome.log


def test_a_failure_that_rvs_only_prints(machine: Machine) -> None:
    """It ends with 0 (rvs/src/rvsexec_do_yaml.cpp at v1.7.0)."""
    machine.program("rvs", f"cat <<END\n{FAILED}\nEND\n")
    outcome = machine.validate(validation("medium"))
    assert outcome.code == 1
    assert outcome.faults == [
        "rvs: compute-fp8-trig (GST) failed",
        "rvs: compute-fp8-trig failed on GPU 11806",
        "test: not repeated before the next boot; after a repair, run on the machine: rm /run/gpufleet/gpu-test",
    ]


def test_rvs_that_cannot_run(machine: Machine) -> None:
    text = "[ERROR ] [ 12.345678] [CLI] No test levels support for the detected GPU or no GPU detected !"
    machine.program("rvs", f"echo '{text}'\nexit 255\n")
    assert machine.validate(validation("medium")).faults[0] == (
        "rvs: ended with 255: No test levels support for the detected GPU or no GPU detected !"
    )


def test_rvs_that_says_nothing(machine: Machine) -> None:
    machine.program("rvs", "exit 0\n")
    assert machine.validate(validation("medium")).faults[0].startswith("rvs: reports no result")


def test_an_image_without_rvs(machine: Machine) -> None:
    assert machine.validate(validation("medium")).faults[0].startswith("rvs: the image has no ROCm Validation Suite; ")


def test_a_test_that_hangs(machine: Machine) -> None:
    machine.program("rvs", "sleep 4\n")
    assert machine.validate(validation("medium", seconds=1)).faults[0].startswith("timeout: the test did not end")


def test_a_test_runs_once_for_each_boot(machine: Machine) -> None:
    machine.program("rvs", f"echo ran >>{machine.folder}/runs\ncat <<END\n{PASSED}\nEND\n")
    for _ in range(2):
        assert machine.validate(validation("medium")).result["level"] == ["medium"]
    assert (machine.folder / "runs").read_text() == "ran\n"
    machine.reboot()
    machine.validate(validation("medium"))
    assert (machine.folder / "runs").read_text() == "ran\nran\n"


def test_a_failed_test_does_not_pass_by_repetition(machine: Machine) -> None:
    machine.program("rvs", f"cat <<END\n{FAILED}\nEND\n")
    first = machine.validate(validation("medium"))
    machine.program("rvs", f"cat <<END\n{PASSED}\nEND\n")
    assert machine.validate(validation("medium")).faults == first.faults
    (machine.folder / "state/gpu-test").unlink()
    assert machine.validate(validation("medium")).code == 0


def test_a_level_raised_while_jobs_may_run_waits_for_the_next_boot(machine: Machine) -> None:
    machine.program("rvs", "exit 9\n")
    machine.validate(validation("quick"))
    outcome = machine.validate(validation("medium"))
    assert (outcome.code, outcome.result["level"]) == (0, ["quick"])


def test_gpus_in_use_are_not_tested(machine: Machine) -> None:
    """As when the validation is introduced while jobs run."""
    machine.program("rvs", "exit 9\n")
    (machine.folder / "sys/class/kfd/kfd/proc/4711").mkdir()
    outcome = machine.validate(validation("medium"))
    assert (outcome.code, outcome.result["level"]) == (0, ["quick"])


def test_the_checks_run_each_time(machine: Machine) -> None:
    assert machine.validate(validation()).code == 0
    (gpu(machine, "0000:05:00.0") / "ras/gfx_err_count").write_text("ue: 1\nce: 0\n")
    assert machine.validate(validation()).code == 1
    (gpu(machine, "0000:05:00.0") / "ras/gfx_err_count").write_text(NO_ERRORS)
    assert machine.validate(validation()).code == 0
