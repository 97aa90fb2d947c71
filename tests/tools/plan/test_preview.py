"""`gpufleet preview`: a tree, manifests, a document or files, and never a secret."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import jsonschema
import pulumi
import pytest
import yaml
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs
from pulumi_kubernetes.helm.v4 import Chart

from gpufleet.bare_metal.kubespray.driver.steps import hosts
from gpufleet.bare_metal.kubespray.inventory import desired
from gpufleet_stacks.settings.args.machines import cluster_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, BareMetalSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.rules.machines import STAND_IN_KEY
from gpufleet_tools import cli, terminal
from gpufleet_tools.arguments import parser
from gpufleet_tools.check.findings import Report
from gpufleet_tools.plan import preview, stack
from gpufleet_tools.plan.document import PlanDocument, document
from gpufleet_tools.plan.plan import Plan, shown
from gpufleet_tools.plan.stack import STAND_IN
from tests.recording import on_cluster, recorded
from tests.stack_files import lab

ROOT = pathlib.Path(__file__).resolve().parents[3]

NO_FINDINGS = Report((), ())

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process: exit code, standard output, standard error."""

    def run(*arguments: str, root: pathlib.Path = ROOT) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "path", list(sys.path))
        code = cli.run(parser().parse_args(["-C", str(root), *arguments]))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def mi300() -> Plan:
    return stack.read(ROOT, "mi300").plan()


@pytest.fixture
def settings() -> Settings:
    return stack.read(ROOT, "mi300").settings


QUIET = lab("    gpu: {project: lab, gpus: 1, cpu: 16, memory: 200Gi, max: 2}\n")
"""A stack about which there is nothing to say."""


@pytest.fixture
def quiet(project: Callable[[dict[str, str]], pathlib.Path]) -> pathlib.Path:
    """A project whose only stack is `quiet`."""
    return project({"quiet": QUIET})


def rendered(what: str) -> list[str]:
    return what.splitlines()


def built(build: Callable[[pulumi.ResourceOptions], object]) -> Plan:
    return recorded(lambda: build(on_cluster()))


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def files(folder: pathlib.Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


# -- the tree ---------------------------------------------------------------------------------------------------------

BRANCH = re.compile(r"(?P<guides>[│├└─ ]*)(?P<kind>\S+( provider)?) (?P<name>\S+)(?P<rest>.*)")


def branches(lines: list[str]) -> list[tuple[str, str | None, str]]:
    """Every resource of a printed tree, the one that it hangs on, and what is said of it."""
    above: list[tuple[int, str]] = []
    found = []
    for line in lines:
        match = BRANCH.fullmatch(line)
        assert match, line
        depth = len(match["guides"])
        while above and above[-1][0] >= depth:
            above.pop()
        name = f"{match['kind']} {match['name']}"
        found.append((name, above[-1][1] if above else None, match["rest"].strip()))
        above.append((depth, name))
    return found


def tree_of(plan: Plan, settings: Settings) -> tuple[list[str], list[str]]:
    """The lines of the tree without the stack's, and those of the table."""
    lines = rendered(preview.tree(plan, settings))
    assert lines[0] == plan.stack
    end = lines.index("")
    return [line for line in lines[1:end] if line[0] in "├│└"], lines[end + 1 :]


def said(kind: str, name: str) -> str:
    provider = " provider" if kind.startswith("pulumi:providers:") else ""
    return f"{kind.split(':')[-1]}{provider} {name}"


def test_the_tree_has_every_resource_under_its_parent(mi300: Plan, settings: Settings) -> None:
    names = {resource.urn: said(resource.type, resource.name) for resource in mi300.resources}
    expected = {(names[each.urn], names.get(each.parent or "")) for each in mi300.resources}
    found = branches(tree_of(mi300, settings)[0])
    assert len(found) == len(mi300.resources)
    assert {(name, parent) for name, parent, _ in found} == expected


def test_the_tree_says_what_a_resource_waits_for_where_it_is_asked(mi300: Plan, settings: Settings) -> None:
    rest = {name: rest for name, _, rest in branches(tree_of(mi300, settings)[0])}
    assert rest["Release linux-mi300-gpu-2"] == "chart gha-runner-scale-set 0.14.2"
    lines = preview.tree(mi300, settings, dependencies=True).splitlines()
    at = lines.index("│   └── Release linux-mi300-gpu-2 chart gha-runner-scale-set 0.14.2")
    assert lines[at + 1] == "│           depends on Namespace pytorch-namespace, Release arc"
    at = lines.index("│   ├── Namespace arc-namespace")
    assert "depends on" not in lines[at + 1]


@pytest.mark.parametrize("name", stack.names(ROOT))
@pytest.mark.parametrize("dependencies", [False, True])
def test_the_tree_fits_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, dependencies: bool) -> None:
    monkeypatch.setattr(terminal, "width", lambda: 100)
    _, output, _ = run("preview", name, *["--dependencies"] * dependencies)
    assert max(map(len, output.splitlines())) <= 100
    assert ("depends on" in output) is dependencies


def test_a_line_goes_on_beside_the_branches(settings: Settings) -> None:
    plan = built(lambda opts: Namespace("-".join(["long"] * 20), opts=opts))
    lines = preview.tree(plan, settings, columns=40).splitlines()
    assert max(map(len, lines)) <= 40
    first = next(number for number, line in enumerate(lines) if "Namespace" in line)
    assert re.match(r"[│ ]{8,}\S*long", lines[first + 1])


def test_what_is_not_known_is_said_once(mi300: Plan, settings: Settings) -> None:
    lines = rendered(preview.tree(mi300, settings))
    assert lines.count("Release: the chart's objects are known once Helm renders them") == 1


def test_the_tree_says_what_is_looked_up(mi300: Plan, settings: Settings) -> None:
    rest = {name: rest for name, _, rest in branches(tree_of(mi300, settings)[0])}
    assert rest["Namespace pytorch-namespace"] == "(must exist already; read, never changed)"


def test_children_of_a_remote_component_are_not_guessed() -> None:
    plan = built(lambda opts: Chart("chart", chart="x", opts=opts))
    (chart,) = (each for each in document(plan, NO_FINDINGS).resources if each.name == "chart")
    assert chart.opaque == "its children are known once its provider creates them"


def test_names_are_not_taken_for_markup(settings: Settings) -> None:
    plan = built(lambda opts: Namespace("[bold]odd[/]", opts=opts))
    assert "Namespace [bold]odd[/]" in "\n".join(tree_of(plan, settings)[0])


def test_the_table_says_what_each_label_gives(mi300: Plan, settings: Settings) -> None:
    rows = [re.split(r"\s{2,}", line.strip()) for line in tree_of(mi300, settings)[1]]
    assert rows[0] == ["runs-on", "project", "GPUs", "CPU", "memory", "min", "max", "Docker"]
    for label, runner in settings.runners.items():
        docker = "yes" if runner.docker else "no"
        sizes = [str(runner.min), str(runner.max)]
        assert [label, runner.project, str(runner.gpus), runner.cpu, runner.memory, *sizes, docker] in rows


def test_the_tree_is_the_default(run: Run) -> None:
    _, output, _ = run("preview", "mi300")
    assert output.startswith("mi300\n├── ")
    assert output == run("preview", "mi300", "--format", "tree")[1]


# -- machines ---------------------------------------------------------------------------------------------------------

KUBESPRAY = (ROOT / "tests/settings/kubespray.ok.yaml").read_text()


def test_commands_on_machines_are_described(run: Run) -> None:
    _, output, _ = run("preview", "mi300")
    for words in (
        "Command mi300-kubespray (installs kubespray v2.31.0)",
        "Command mi300-cluster (deletion resets the cluster)",
        "Command mi300-converge (runs kubespray: 3 machines, Kubernetes 1.35.4)",
        "Command mi300-node-mi300x-austin-1 (control_plane, etcd, worker; deletion removes it)",
    ):
        assert words in output
    assert "  inventory/group_vars/all/kubespray.yml\n" in output


def test_the_inventory_is_the_one_that_kubespray_gets(run: Run, settings: Settings, tmp_path: pathlib.Path) -> None:
    assert isinstance(settings, BareMetalSettings)
    args = cluster_args(settings.cluster, "key")
    assert args
    run("preview", "mi300", "--out", str(tmp_path / "out"))
    inventory = tmp_path / "out/kubespray/mi300/inventory"
    wanted = desired(args)
    assert yaml.safe_load((inventory / "hosts.yaml").read_text()) == hosts(wanted["nodes"])
    assert {
        path.parent.name: yaml.safe_load(path.read_text()) for path in inventory.glob("group_vars/*/kubespray.yml")
    } == wanted["variables"]


def test_a_payload_is_shown_but_for_what_only_a_run_knows(run: Run) -> None:
    _, output, _ = run("preview", "mi300", "--format", "json")
    stdin = {each["name"]: each["inputs"].get("stdin") for each in json.loads(output)["resources"]}
    payload = json.loads(stdin["mi300-converge"])
    assert payload["secrets"] == "<unknown>"
    assert payload["desired"]["nodes"].keys() == {"mi300x-austin-1", "mi300x-austin-2", "mi300x-santa-clara-1"}
    assert json.loads(stdin["mi300-kubeconfig"])["cluster"] == "<unknown>"
    assert stdin["mi300-credentials"] == "<secret>"


def test_no_secret_of_a_machine_is_shown(
    run: Run, project: Callable[[dict[str, str]], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    root = project({"lab": KUBESPRAY})
    run("preview", "lab", "--out", str(tmp_path / "out"), root=root)
    found = files(tmp_path / "out")
    assert any(name.endswith("/inventory/hosts.yaml") for name in found)
    made = stack.read(root, "lab").settings.cluster
    assert isinstance(made, BareMetalCluster)
    assert made.kubespray
    secret = {
        *made.kubespray.secret_variables,
        *(key for pool in made.node_pools.values() for node in pool.nodes.values() for key in node.secret_variables),
    }
    assert secret
    texts = "".join(text for name, text in found.items() if name.startswith("kubespray/"))
    assert not {name for name in secret if name in texts}
    assert not hidden(str(found), STAND_IN, STAND_IN_KEY)


# -- manifests --------------------------------------------------------------------------------------------------------


def test_every_document_is_an_object_of_the_plan(run: Run, mi300: Plan) -> None:
    _, output, _ = run("preview", "mi300", "--format", "yaml")
    found = {(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in documents(output)}
    assert found == {(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in mi300.objects()}
    assert len(documents(output)) == len(mi300.objects())


def test_manifests_are_the_recorded_ones(mi300: Plan) -> None:
    plain = [each for each in mi300.objects() if each["kind"] != "Secret"]
    found = [each for each in documents(preview.manifests(mi300)) if each["kind"] != "Secret"]
    by_name = lambda each: (each["kind"], each["metadata"]["name"])  # noqa: E731
    assert sorted(found, key=by_name) == sorted(map(shown, plain), key=by_name)


def test_a_secret_can_be_read_by_a_server(mi300: Plan) -> None:
    """`<secret>` is no base64: under `data`, the API server would refuse it."""
    (secret,) = (each for each in documents(preview.manifests(mi300)) if each["kind"] == "Secret")
    assert "data" not in secret
    assert secret["stringData"] == dict.fromkeys(
        ("github_app_id", "github_app_installation_id", "github_app_private_key"), "<secret>"
    )


def test_both_ways_to_fill_a_secret_are_kept() -> None:
    def build(opts: pulumi.ResourceOptions) -> None:
        Secret("x", metadata={"name": "x"}, data={"one": "MQ=="}, string_data={"two": "2"}, opts=opts)

    (secret,) = documents(preview.manifests(built(build)))
    assert secret["stringData"] == {"one": "<secret>", "two": "<secret>"}
    assert "data" not in secret


def test_a_secret_of_something_unknown_is_unknown() -> None:
    def build(opts: pulumi.ResourceOptions) -> None:
        first = Namespace("first", opts=opts)
        Secret("x", metadata={"name": "x"}, data={"from": first.metadata.name}, opts=opts)

    (secret,) = (each for each in documents(preview.manifests(built(build))) if each["kind"] == "Secret")
    assert secret["data"] == "<unknown>"


def test_namespaces_come_first() -> None:
    def build(opts: pulumi.ResourceOptions) -> None:
        ConfigMap("a", metadata={"name": "a", "namespace": "z"}, opts=opts)
        Namespace("z", metadata={"name": "z"}, opts=opts)

    assert [each["kind"] for each in documents(preview.manifests(built(build)))] == ["Namespace", "ConfigMap"]


def commented(text: str) -> list[str]:
    """The comments, each without its marks."""
    plain = "\n".join(line for line in text.splitlines() if line.startswith("#") or not line)
    return [re.sub(r"^# ?", "", block.strip(), flags=re.MULTILINE) for block in plain.split("\n\n") if block.strip()]


def test_charts_are_comments_with_their_values(mi300: Plan) -> None:
    comments = commented(preview.manifests(mi300))
    for each in mi300.releases():
        head = f"Helm release {each.namespace}/{each.name}: chart {each.chart} {each.version}\n"
        (comment,) = (text for text in comments if text.startswith(head))
        opaque, _, values = comment.removeprefix(head).partition("\n")
        assert opaque == "the chart's objects are known once Helm renders them; its values:"
        assert yaml.safe_load(values) == shown(each.values)


def test_what_has_to_be_there_is_a_comment(mi300: Plan) -> None:
    assert "Namespace pytorch must exist already; read, never changed" in commented(preview.manifests(mi300))


def test_a_chart_repository_is_named() -> None:
    args = ReleaseArgs(
        name="r", namespace="n", chart="c", version="1.0.0", repository_opts={"repo": "https://charts.example"}
    )
    text = preview.manifests(built(lambda opts: Release("r", args, opts=opts)))
    assert "# Helm release n/r: chart c 1.0.0 from https://charts.example\n" in text
    assert documents(text) in ([], [None])


def test_integers_are_integers(mi300: Plan) -> None:
    text = preview.manifests(mi300)
    assert re.search(r"^# maxRunners: \d+$", text, re.MULTILINE)
    assert re.search(r"^# +amd.com/gpu: 2$", text, re.MULTILINE)


def test_scripts_can_be_read(mi300: Plan) -> None:
    assert "#       - |\n#         devices=$(ls -la /dev/dri/" in preview.manifests(mi300)


@pytest.mark.parametrize(
    "text", ["1e3", "12e4", "0o17", "y", "N", "yes", "null", "1_000", "0x1f", "1.5", "16", ".5", ""]
)
def test_text_stays_text_to_kubectl(text: str) -> None:
    """Other parsers of YAML read more of it as numbers and truth values than PyYAML does: a label 12e4 is a number."""
    dumped = preview.manifests(built(lambda opts: ConfigMap("x", data={"key": text}, opts=opts)))
    assert f"  key: '{text}'\n" in dumped


def test_no_alias_stands_for_a_repeated_part() -> None:
    labels = {"app": "one"}
    metadata = {"name": "x", "labels": labels, "annotations": labels}
    assert "&id" not in preview.manifests(built(lambda opts: Namespace("x", metadata=metadata, opts=opts)))


def test_nothing_but_manifests_is_on_standard_output(run: Run) -> None:
    """`gpufleet preview … --format yaml | kubectl diff -f -` has to work while there are findings."""
    code, output, errors = run("preview", "mi300", "--format", "yaml")
    assert code == cli.FINDINGS
    assert "[missing-secret]" in errors
    assert "missing-secret" not in output


# -- the document -----------------------------------------------------------------------------------------------------


def test_the_document_is_a_plan_document(run: Run, mi300: Plan) -> None:
    _, output, _ = run("preview", "mi300", "--format", "json")
    found = PlanDocument.model_validate_json(output)
    assert json.loads(found.model_dump_json()) == json.loads(output)
    jsonschema.validate(
        json.loads(output), json.loads((ROOT / "tools/gpufleet_tools/plan/preview.schema.json").read_text())
    )
    assert [each.urn for each in found.resources] == [each.urn for each in mi300.resources]


def test_the_document_has_the_findings(run: Run) -> None:
    _, output, errors = run("preview", "mi300", "--format", "json")
    findings = json.loads(output)["findings"]
    assert {finding["name"] for finding in findings} >= {"missing-secret"}
    for finding in findings:
        where = f"{finding['file']}:{finding['line']}: {finding['path']}: {finding['severity']}: {finding['message']}"
        assert f"{where} [{finding['name']}]\n" in errors


def test_the_document_tells_kinds_apart(mi300: Plan) -> None:
    kinds = {each.name: each.kind for each in document(mi300, NO_FINDINGS).resources if each.type != "Release"}
    assert kinds["mi300"] == "provider"
    assert kinds["pytorch-namespace"] == "lookup"
    assert kinds["pytorch"] == "component"
    assert kinds["arc-namespace"] == "resource"


def test_integers_of_the_document_are_integers(run: Run) -> None:
    _, output, _ = run("preview", "mi300", "--format", "json")
    (values,) = (
        each["inputs"]["values"]
        for each in json.loads(output)["resources"]
        if each["type"].endswith(":Release") and each["name"] == "linux-mi300-gpu-2"
    )
    assert type(values["maxRunners"]) is int
    assert type(values["template"]["spec"]["securityContext"]["supplementalGroups"][0]) is int


# -- files ------------------------------------------------------------------------------------------------------------


def test_files_hold_all_of_it(run: Run, mi300: Plan, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "new" / "folder"
    code, output, _ = run("preview", "mi300", "--out", str(folder))
    written = files(folder)
    assert code == cli.FINDINGS
    assert output == f"{len(written)} files written to {folder}\n"
    assert json.loads(written.pop("plan.json")) == json.loads(run("preview", "mi300", "--format", "json")[1])
    values = {name: text for name, text in written.items() if name.startswith("charts/")}
    assert {name: yaml.safe_load(text) for name, text in values.items()} == {
        f"charts/{each.namespace}.{each.name}.values.yaml": shown(each.values) for each in mi300.releases()
    }
    objects = [yaml.safe_load(text) for name, text in written.items() if name.startswith("objects/")]
    by_name = lambda each: (each["kind"], each["metadata"]["name"])  # noqa: E731
    assert sorted(objects, key=by_name) == sorted(documents(preview.manifests(mi300)), key=by_name)
    on_machines = {name for name in written if name.startswith("kubespray/mi300/inventory/")}
    assert len(written) == len(values) + len(objects) + len(on_machines)


def test_files_are_named_after_what_they_hold(run: Run, tmp_path: pathlib.Path) -> None:
    run("preview", "mi300", "--out", str(tmp_path / "out"))
    assert {
        "objects/namespace.arc-systems.yaml",
        "objects/secret.gpu-test-cluster.pre-defined-rocm-secret.yaml",
    } <= set(files(tmp_path / "out"))


def test_an_empty_folder_is_filled(run: Run, tmp_path: pathlib.Path) -> None:
    assert run("preview", "mi300", "--out", str(tmp_path))[0] == cli.FINDINGS
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_there_is_not_written_over(run: Run, tmp_path: pathlib.Path, kind: str) -> None:
    (tmp_path / "mine").write_text("precious")
    target = tmp_path if kind == "folder" else tmp_path / "mine"
    code, output, errors = run("preview", "mi300", "--out", str(target))
    assert (code, output) == (cli.INVALID, "")
    assert errors == f"{target} is not an empty folder; choose a new one\n"
    assert files(tmp_path) == {"mine": "precious"}


# -- secrets ----------------------------------------------------------------------------------------------------------

FORMATS = ("tree", "yaml", "json")


@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_is_in_any_format(run: Run, quiet: pathlib.Path, form: str) -> None:
    output = "".join(map(str, run("preview", "quiet", "--format", form, root=quiet)))
    assert not hidden(output, STAND_IN, "v1:first")


def test_no_secret_is_in_any_file(run: Run, quiet: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("preview", "quiet", "--out", str(tmp_path / "out"), root=quiet)
    assert not hidden(str(files(tmp_path / "out")), STAND_IN, "v1:first")


def hidden(text: str, *secrets: str) -> list[str]:
    """Those of the secrets that the text gives away, plain or in base64."""
    return [secret for secret in secrets if secret in text or base64.b64encode(secret.encode()).decode() in text]


def test_secrets_are_hidden_wherever_they_are(settings: Settings, tmp_path: pathlib.Path) -> None:
    def build(opts: pulumi.ResourceOptions) -> None:
        secret = pulumi.Output.secret("hunter2")
        Secret("s", metadata={"name": "s"}, string_data={"key": secret}, data={"more": "aHVudGVyMg=="}, opts=opts)
        ConfigMap("c", metadata={"name": "c", "annotations": {"key": secret}}, data={"key": secret}, opts=opts)
        values = {"deep": [{"key": secret, "plain": "seen"}]}
        Release("r", ReleaseArgs(name="r", namespace="n", chart="c", version="1", values=values), opts=opts)
        pulumi.export("key", secret)

    plan = built(build)
    found = document(plan, NO_FINDINGS)
    preview.write(plan, found, tmp_path / "out")
    texts = [
        found.model_dump_json(),
        preview.manifests(plan),
        preview.tree(plan, settings),
        str(files(tmp_path / "out")),
        repr(plan),
    ]
    for text in texts:
        assert not hidden(text, "hunter2")
    assert "# - key: <secret>\n#   plain: seen\n" in texts[1]


# -- exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_to_say_is_0(run: Run, quiet: pathlib.Path, form: str) -> None:
    code, output, errors = run("preview", "quiet", "--format", form, root=quiet)
    assert (code, errors) == (cli.OK, "")
    assert output


@pytest.mark.parametrize("form", FORMATS)
def test_findings_are_1(run: Run, quiet: pathlib.Path, form: str) -> None:
    file = quiet / "Pulumi.quiet.yaml"
    file.write_text(QUIET.replace("  gpu-runners:lab-token: {secure: v1:first}\n", ""))
    code, output, errors = run("preview", "quiet", "--format", form, root=quiet)
    assert code == cli.FINDINGS
    assert output
    command = "pulumi config set --secret gpu-runners:lab-token"
    assert f"error: the secret 'lab-token' is not set; set it: {command} [missing-secret]" in errors


@pytest.mark.parametrize("form", FORMATS)
def test_invalid_settings_are_2(run: Run, quiet: pathlib.Path, form: str) -> None:
    (quiet / "Pulumi.quiet.yaml").write_text(QUIET.replace("max: 2", "max: two"))
    code, output, errors = run("preview", "quiet", "--format", form, root=quiet)
    assert (code, output) == (cli.INVALID, "")
    assert errors.startswith("Pulumi.quiet.yaml:19: runners.gpu.max: ")
    assert "Traceback" not in errors


def test_no_such_stack_is_2(run: Run, quiet: pathlib.Path) -> None:
    code, output, errors = run("preview", "loud", root=quiet)
    assert (code, output) == (cli.INVALID, "")
    assert "Pulumi.loud.yaml: does not exist; stacks here: quiet" in errors


def test_what_the_recorder_refuses_is_2(run: Run, quiet: pathlib.Path) -> None:
    """A program that reaches for whatever cluster the environment names is wrong, and says so in one line."""
    program = "from pulumi_kubernetes.core.v1 import Namespace\nNamespace('stray')\n"
    (quiet / "stacks").unlink()
    (quiet / "stacks").mkdir()
    (quiet / "stacks" / "__main__.py").write_text(program)
    code, output, errors = run("preview", "quiet", root=quiet)
    assert (code, output) == (cli.INVALID, "")
    assert "Namespace::stray has no explicit provider" in errors
    assert errors.count("\n") == 1
