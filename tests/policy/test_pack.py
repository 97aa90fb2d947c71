"""The policy pack as the engine runs it: its own environment from its lock, its service, and the engine itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import Hidden, Resource, Unknown
from gpufleet_tools.policy import rules as policy
from tests.conftest import ROOT
from tests.policy.test_rules import BROKEN, HOST_PATHS, KEPT

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a text that is not known yet (sdk/go/common/resource/plugin/rpc.go of pulumi/pulumi)."""

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
"""How the engine marks a secret (sdk/go/common/resource/sig)."""

ENGINE = ("pulumi", "pulumi-language-python", "pulumi-resource-kubernetes")
MISSING = [name for name in ENGINE if shutil.which(name) is None]

pytestmark = [pytest.mark.install, pytest.mark.process]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack with its environment, beside the modules that it imports."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "policy", root / "policy", ignore=shutil.ignore_patterns(".venv", "__pycache__"))
    for name in ("stacks", "tools"):
        (root / name).symlink_to(ROOT / name)
    environment = root / "policy/.venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", environment / "bin/python"]
    subprocess.run(
        [*install, "--require-hashes", "-r", ROOT / "policy/requirements.txt"], check=True, timeout=600, cwd=root
    )
    return root / "policy"


@contextlib.contextmanager
def served(pack: Path, config: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The pack's service, without an engine."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    environment["PULUMI_CONFIG"] = json.dumps(
        {f"gpu-runners:{key}": json.dumps(value) for key, value in (config or {}).items()}
    )
    command = [pack / ".venv/bin/python", "-u", pack / "__main__.py"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=pack, env=environment)
    try:
        assert process.stdout
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def service(pack: Path) -> Iterator[Any]:
    with served(pack, {"hostPaths": HOST_PATHS}) as stub:
        yield stub


def sent(value: Any) -> Any:
    """Inputs as the engine sends them to a pack: secrets are marked (`KeepSecrets` in analyzer_plugin.go)."""
    if isinstance(value, Hidden):
        return {SIGNATURE: SECRET_SIGNATURE, "value": sent(value.value)}
    if isinstance(value, Unknown):
        return UNKNOWN_TEXT
    if isinstance(value, Mapping):
        return {key: sent(item) for key, item in value.items() if key != SIGNATURE}
    return [sent(item) for item in value] if isinstance(value, list | tuple) else value


def judged(service: Any, type_token: str, name: str, properties: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Rule and message of everything that the pack says of a resource."""
    request = analyzer_pb2.AnalyzeRequest(type=type_token, name=name, urn=f"urn:pulumi:a::b::{type_token}::{name}")
    json_format.ParseDict(sent(properties), request.properties)
    said = service.Analyze(request, timeout=30).diagnostics
    return {(each.policyName, each.message.partition("\n")[2]) for each in said}


def expected(type_token: str, name: str, properties: Mapping[str, Any]) -> set[tuple[str, str]]:
    rules = policy.rules(HOST_PATHS)
    return {(rule.name, message) for rule in rules for message in rule.judge(type_token, name, properties)}


def test_the_pack_and_check_have_the_same_rules(service: Any) -> None:
    info = service.GetAnalyzerInfo(analyzer_pb2.google_dot_protobuf_dot_empty__pb2.Empty(), timeout=30)
    offered = {each.name: each.enforcementLevel for each in info.policies}
    assert offered == {
        rule.name: {"error": analyzer_pb2.MANDATORY, "warning": analyzer_pb2.ADVISORY}[rule.severity]
        for rule in policy.RULES
    }
    assert set(offered) == {rule for _, _, rule in BROKEN.values()}


@pytest.mark.parametrize("case", [*BROKEN.values(), *((*case, "") for case in KEPT.values())])
def test_the_pack_says_what_the_rules_say(service: Any, case: tuple[str, dict[str, Any], str]) -> None:
    type_token, properties, _ = case
    assert judged(service, type_token, "a", properties) == expected(type_token, "a", properties)


@pytest.mark.parametrize("name", stack.names(ROOT))
def test_the_pack_judges_the_committed_stacks_alike(service: Any, name: str) -> None:
    resources: tuple[Resource, ...] = stack.read(ROOT, name).plan().resources
    for each in resources:
        said = judged(service, each.type, each.name, each.inputs)
        assert said == expected(each.type, each.name, each.inputs), each.urn


def test_the_pack_bears_what_the_stack_file_acknowledges(pack: Path) -> None:
    type_token, properties, rule = BROKEN["a privileged pod"]
    entry = {"finding": rule, "reason": "known", "until": "2999-12-31"}
    for entries, expected_rules in (([entry], set()), ([{**entry, "until": "2020-01-01"}], {rule})):
        with served(pack, {"acknowledged": entries}) as stub:
            assert {name for name, _ in judged(stub, type_token, "a", properties)} == expected_rules


PROGRAM = """\
import pulumi
import pulumi_kubernetes as kubernetes

# Written to a folder instead of a cluster.
provider = kubernetes.Provider("paper", render_yaml_to_directory="rendered")
kubernetes.core.v1.Pod(
    "shell",
    spec={"containers": [{"name": "shell", "image": "IMAGE", "securityContext": {"privileged": PRIVILEGED}}]},
    opts=pulumi.ResourceOptions(provider=provider),
)
"""


@pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing")
@pytest.mark.parametrize(
    ("image", "privileged", "refused", "says"),
    [
        ("busybox:1.37.0", "True", True, "[mandatory]  privileged-pod  (kubernetes:core/v1:Pod: shell)"),
        ("busybox", "False", False, "[advisory]  mutable-image  (kubernetes:core/v1:Pod: shell)"),
        ("busybox:1.37.0", "False", False, None),
    ],
)
def test_the_engine_runs_the_pack(
    pack: Path, tmp_path: Path, image: str, privileged: str, refused: bool, says: str | None
) -> None:
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: gpu-runners\nruntime: {{name: python, options: {{toolchain: pip, virtualenv: {sys.prefix}}}}}\n"
    )
    (tmp_path / "__main__.py").write_text(PROGRAM.replace("IMAGE", image).replace("PRIVILEGED", privileged))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")} | {
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_CONFIG_PASSPHRASE": "passphrase",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }

    def pulumi(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["pulumi", *arguments, "--non-interactive", "--color", "never"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
        )

    assert pulumi("stack", "init", "lab").returncode == 0
    previewed = pulumi("preview", "--policy-pack", pack)
    text = previewed.stdout + previewed.stderr
    assert (previewed.returncode != 0) == refused, text
    assert "gpu-runners@v0.1.0" in text
    found = [line.strip(" -") for line in text.splitlines() if "  (kubernetes:" in line]
    assert found == ([says] if says else [])
