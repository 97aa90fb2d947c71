"""What the recorder keeps of a program, and what it refuses."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs
from pulumi_kubernetes.helm.v4 import Chart
from pulumi_kubernetes.yaml.v2 import ConfigGroup

from gpufleet_tools.plan.plan import UNKNOWN, Hidden, Plan, revealed, shown
from gpufleet_tools.plan.recorder import RecordingError, record, record_program
from tests.recording import on_cluster, recorded, the


class Group(pulumi.ComponentResource):
    """A component that registers no outputs."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Group", name, None, opts)


def of_file(folder: pathlib.Path, program: str, **arguments: Any) -> Plan:
    """The plan of a program that is a file."""
    (folder / "Pulumi.yaml").write_text("name: project\nruntime: python\nmain: program.py\n")
    (folder / "program.py").write_text(textwrap.dedent(program))
    return record(folder, "stack", **{"values": {}, "secrets": {}} | arguments)


# -- what is refused --------------------------------------------------------------------------------------------------


def no_provider(token: str) -> str:
    return f"{token}::x has no explicit provider: the environment would select its cluster or account"


@pytest.mark.parametrize(
    ("build", "token"),
    [
        (lambda: Namespace("x"), "kubernetes:core/v1:Namespace"),
        (lambda: Namespace.get("x", "some"), "kubernetes:core/v1:Namespace"),
        (lambda: Release("x", ReleaseArgs(chart="x")), "kubernetes:helm.sh/v3:Release"),
        (lambda: Chart("x", chart="x"), "kubernetes:helm.sh/v4:Chart"),
        (lambda: ConfigGroup("x", yaml="{}"), "kubernetes:yaml/v2:ConfigGroup"),
    ],
    ids=["object", "lookup", "release", "chart, made by a provider", "manifests, made by a provider"],
)
def test_a_resource_without_an_explicit_provider_is_refused(build: Callable[[], object], token: str) -> None:
    with pytest.raises(RecordingError, match=no_provider(token)):
        recorded(build)


def test_the_provider_of_another_package_does_not_count() -> None:
    """Handed down as one of several, it is not the one that makes a chart's objects."""

    class Other(pulumi.ProviderResource):
        def __init__(self) -> None:
            super().__init__("other", "other", {})

    with pytest.raises(RecordingError, match=no_provider("kubernetes:helm.sh/v4:Chart")):
        recorded(lambda: Chart("x", chart="x", opts=pulumi.ResourceOptions(providers=[Other()])))


def test_a_provider_reaches_children() -> None:
    def build() -> None:
        group = Group("group", on_cluster())
        Namespace("x", opts=pulumi.ResourceOptions(parent=group))
        Chart("x", chart="x", opts=pulumi.ResourceOptions(parent=group))

    plan = recorded(build)
    assert the(plan, "Namespace").provider == the(plan, "kubernetes").urn
    assert the(plan, "Chart").component


def test_two_resources_with_one_urn_are_refused() -> None:
    def build() -> None:
        opts = on_cluster()
        Namespace("x", opts=opts)
        Namespace("x", opts=opts)

    with pytest.raises(RecordingError, match=r"two resources have the URN .*Namespace::x"):
        recorded(build)


def test_an_output_in_a_name_is_an_error_and_no_name() -> None:
    def build() -> None:
        opts = on_cluster()
        first = Namespace("first", opts=opts)
        Namespace(f"second-{first.id}", opts=opts)

    with pytest.raises(Exception, match=r"Calling __str__ on an Output\[T\] is not supported"):
        recorded(build)


@pytest.mark.parametrize("call", [pulumi.runtime.invoke, pulumi.runtime.call], ids=["invoke", "call"])
def test_a_function_of_a_provider_cannot_be_called(call: Callable[..., object]) -> None:
    with pytest.raises(
        RecordingError, match="the program calls aws:ec2/getVpc:getVpc, which only a provider can answer"
    ):
        recorded(lambda: pulumi.export("vpc", call("aws:ec2/getVpc:getVpc", {})))


async def nothing(args: pulumi.ResourceTransformArgs) -> None:
    """A transform that changes nothing; the recorder cannot know."""


def test_a_transform_of_the_stack_is_refused() -> None:
    with pytest.raises(RecordingError, match="the program registers a transform, which only the engine runs"):
        recorded(lambda: pulumi.runtime.register_resource_transform(nothing))


def test_a_transform_of_a_resource_is_refused() -> None:
    def build() -> None:
        Namespace("x", opts=pulumi.ResourceOptions.merge(on_cluster(), pulumi.ResourceOptions(transforms=[nothing])))

    with pytest.raises(RecordingError, match="Namespace::x has a transform, which only the engine runs"):
        recorded(build)


# -- values -----------------------------------------------------------------------------------------------------------


def inputs(unknown_outputs: bool = True, **data: Any) -> dict[str, Any]:
    """Inputs of a release with these chart values, as they are recorded."""

    def build() -> None:
        made = {key: value() if callable(value) else value for key, value in data.items()}
        Release("x", ReleaseArgs(chart="x", values=made), opts=on_cluster())

    return dict(the(recorded(build, unknown_outputs=unknown_outputs), "Release").inputs["values"])


def test_integers_stay_integers() -> None:
    """The protocol has floating point numbers only; a chart that asks for a whole number drops 2.0."""
    given = inputs(whole=2, big=2**53, below=-1, broken=0.5, flag=True, text="2")
    assert [type(given[key]) for key in ("whole", "big", "below", "broken", "flag", "text")] == [
        int,
        int,
        int,
        float,
        bool,
        str,
    ]
    assert given["big"] == 2**53


def test_empty_and_absent_values_are_told_apart() -> None:
    assert inputs(empty={}, nothing=[], text="") == {"empty": {}, "nothing": [], "text": ""}


def test_one_secret_does_not_hide_a_whole_map() -> None:
    given = inputs(plain="seen", password=lambda: pulumi.Output.secret("hunter2"))
    assert shown(given) == {"plain": "seen", "password": "<secret>"}


def test_of_a_secret_map_only_the_leaves_are_hidden() -> None:
    given = inputs(credentials=lambda: pulumi.Output.secret({"user": "admin", "keys": ["one", {"two": 2}], "none": {}}))
    assert shown(given["credentials"]) == {"user": "<secret>", "keys": ["<secret>", {"two": "<secret>"}], "none": {}}
    assert revealed(given["credentials"]) == {"user": "admin", "keys": ["one", {"two": 2}], "none": {}}


def test_a_secret_can_be_handed_on_and_not_seen() -> None:
    def build() -> None:
        Secret("x", string_data={"password": "hunter2"}, opts=on_cluster())
        pulumi.export("password", pulumi.Output.secret("hunter2"))

    plan = recorded(build)
    assert the(plan, "Secret").inputs["stringData"]["password"].value == "hunter2"
    assert plan.exports["password"].value == "hunter2"
    assert "hunter2" not in f"{plan!r}{plan}{the(plan, 'Secret')}{Hidden('hunter2')}"


def from_another() -> None:
    opts = on_cluster()
    first = Namespace("first", metadata={"name": "one"}, opts=opts)
    ConfigMap("second", data={"from": first.metadata.name, "text": "plain"}, opts=opts)
    pulumi.export("namespace", first.metadata.name)


def from_an_id() -> None:
    """A ConfigMap with an output of a namespace that is no input."""
    opts = on_cluster()
    first = Namespace("first", metadata={"name": "one"}, opts=opts)
    ConfigMap("second", data={"from": first.id, "text": "plain"}, opts=opts)
    pulumi.export("namespace", first.id)


def test_what_only_a_provider_can_tell_is_unknown() -> None:
    plan = recorded(from_an_id)
    assert the(plan, "ConfigMap").inputs["data"] == {"from": UNKNOWN, "text": "plain"}
    assert shown(plan.exports) == {"namespace": "<unknown>"}


def test_a_preview_knows_outputs_that_are_inputs() -> None:
    plan = recorded(from_another)
    assert the(plan, "ConfigMap").inputs["data"] == {"from": "one", "text": "plain"}
    assert plan.exports == {"namespace": "one"}


def test_a_preview_knows_no_outputs_of_a_provider_with_unknown_inputs() -> None:
    """The engine cannot configure it yet, and so asks it nothing."""

    def build() -> None:
        opts = on_cluster()
        unknown = Namespace("unknown", metadata={"name": "one"}, opts=opts).id
        later = pulumi.ResourceOptions(providers=[Provider("later", kubeconfig=unknown)])
        pulumi.export("namespace", Namespace("first", metadata={"name": "one"}, opts=later).metadata.name)

    assert recorded(build).exports["namespace"] is UNKNOWN
    assert recorded(build, unknown_outputs=False).exports["namespace"] == "one"


def test_a_resource_among_inputs_is_its_urn() -> None:
    def build() -> None:
        opts = on_cluster()
        first = Namespace("first", metadata={"name": "one"}, opts=opts)
        ConfigMap("second", data={"from": first}, opts=opts)

    plan = recorded(build)
    assert the(plan, "ConfigMap").inputs["data"] == {"from": the(plan, "Namespace").urn}


def test_inputs_of_a_component_that_a_provider_makes_are_plain_data() -> None:
    """They are sent as outputs with their dependencies."""

    def build() -> None:
        opts = on_cluster()
        first = Namespace("first", metadata={"name": "one"}, opts=opts)
        values = {"unknown": first.id, "known": first.metadata.name, "secret": pulumi.Output.secret("hush")}
        Chart("x", chart="x", values=values, opts=opts)

    values = the(recorded(build), "Chart").inputs["values"]
    assert values == {"unknown": UNKNOWN, "known": "one", "secret": Hidden("hush")}


def test_outputs_that_the_engine_has_to_encrypt_are_options() -> None:
    secret = the(recorded(lambda: Secret("x", data={"a": "Yg=="}, opts=on_cluster())), "Secret")
    assert secret.options["additionalSecretOutputs"] == ["data", "stringData"]


def test_with_known_outputs_they_are_the_inputs() -> None:
    plan = recorded(from_another, unknown_outputs=False)
    assert the(plan, "ConfigMap").inputs["data"] == {"from": "one", "text": "plain"}
    assert plan.exports == {"namespace": "one"}


@pytest.mark.parametrize("unknown_outputs", [True, False])
def test_the_program_can_ask_whether_it_is_a_preview(unknown_outputs: bool) -> None:
    seen: list[bool] = []
    recorded(lambda: seen.append(pulumi.runtime.is_dry_run()), unknown_outputs=unknown_outputs)
    assert seen == [unknown_outputs]


@pytest.mark.parametrize(("unknown_outputs", "ran"), [(True, []), (False, ["first-id"])])
def test_applies_run_only_on_what_is_known(unknown_outputs: bool, ran: list[str]) -> None:
    seen: list[str] = []

    def build() -> None:
        first = Namespace("first", metadata={"name": "one"}, opts=on_cluster())
        first.id.apply(seen.append)

    recorded(build, unknown_outputs=unknown_outputs)
    assert seen == ran


@pytest.mark.parametrize("unknown_outputs", [True, False])
def test_what_a_provider_makes_of_a_component_stays_unknown(unknown_outputs: bool) -> None:
    """Its outputs are not its inputs; as none at all, they would break whatever is made of them."""

    def build() -> None:
        chart = Chart("x", chart="x", opts=on_cluster())
        pulumi.export("count", chart.resources.apply(len))

    assert recorded(build, unknown_outputs=unknown_outputs).exports["count"] is UNKNOWN


@pytest.mark.parametrize(("unknown_outputs", "shows"), [(True, "<unknown>"), (False, "some")])
def test_a_lookup_has_an_id_once_somebody_looks(unknown_outputs: bool, shows: str) -> None:
    plan = recorded(
        lambda: pulumi.export("id", Namespace.get("x", "some", opts=on_cluster()).id), unknown_outputs=unknown_outputs
    )
    assert shown(plan.exports) == {"id": shows}
    assert the(plan, "Namespace").read_id == "some"


# -- registrations ----------------------------------------------------------------------------------------------------


def family() -> None:
    opts = on_cluster()
    outer = Group("outer", opts)
    inner = Group("inner", pulumi.ResourceOptions(parent=outer))
    outer.register_outputs({"answer": 42})
    first = Namespace("first", opts=pulumi.ResourceOptions(parent=inner))
    options = pulumi.ResourceOptions(
        parent=inner,
        depends_on=[first],
        protect=True,
        retain_on_delete=True,
        delete_before_replace=True,
        ignore_changes=["metadata"],
        replace_on_changes=["data"],
        aliases=[pulumi.Alias(name="old")],
        custom_timeouts=pulumi.CustomTimeouts(create="5m"),
        import_="first/second",
    )
    ConfigMap("second", opts=options)


def test_a_urn_has_the_types_of_all_ancestors() -> None:
    plan = recorded(family)
    assert the(plan, "ConfigMap").urn == (
        "urn:pulumi:test::gpu-runners::test:index:Group$test:index:Group$kubernetes:core/v1:ConfigMap::second"
    )
    assert the(plan, "ConfigMap").parent == the(plan, "Group", "inner").urn
    assert the(plan, "Group", "inner").parent == the(plan, "Group", "outer").urn
    assert the(plan, "Group", "outer").parent is None


def test_resources_are_sorted_by_urn() -> None:
    """Requests arrive in no fixed order."""
    plan = recorded(family)
    assert [resource.urn for resource in plan.resources] == sorted(resource.urn for resource in plan.resources)


def test_options_and_dependencies_are_kept() -> None:
    plan = recorded(family)
    second = the(plan, "ConfigMap")
    assert second.depends_on == (the(plan, "Namespace").urn,)
    assert second.options == {
        "protect": True,
        "retainOnDelete": True,
        "deleteBeforeReplace": True,
        "ignoreChanges": ["metadata"],
        "replaceOnChanges": ["data"],
        "aliases": ["old"],
        "customTimeouts": {"create": "5m"},
        "import": "first/second",
    }
    assert the(plan, "Namespace").options == {}


def test_an_input_from_another_resource_is_a_dependency() -> None:
    plan = recorded(from_another)
    assert the(plan, "ConfigMap").depends_on == (the(plan, "Namespace").urn,)


def test_outputs_of_components_are_kept_and_their_absence_too() -> None:
    plan = recorded(family)
    assert the(plan, "Group", "outer").outputs == {"answer": 42}
    assert the(plan, "Group", "inner").outputs is None


def test_components_lookups_and_resources_are_told_apart() -> None:
    def build() -> None:
        opts = on_cluster()
        Group("group", opts)
        Namespace("made", opts=opts)
        Namespace.get("found", "some", opts=opts)

    plan = recorded(build)
    assert [resource.name for resource in plan.resources if resource.component] == ["group"]
    assert {resource.name for resource in plan.owned()} == {"group", "made", "cluster"}
    assert [each["metadata"] for each in plan.expected_objects()] == [{"name": "some"}]


# -- the program and its surroundings ---------------------------------------------------------------------------------


def test_configuration_arrives_as_the_engine_hands_it_over() -> None:
    seen: list[Any] = []

    def program() -> None:
        config = pulumi.Config("project")
        seen.extend([config.require("text"), config.require("map"), config.require_int("number")])
        seen.extend([pulumi.runtime.is_config_secret("project:key"), pulumi.runtime.is_config_secret("project:text")])
        pulumi.export("key", config.require_secret("key"))

    values = {"project:text": "words", "project:map": {"b": {"d": 1, "c": 2}, 3: [1]}, "project:number": 3}
    plan = record_program(program, project="project", stack="stack", values=values, secrets={"project:key": "hunter2"})
    assert seen == ["words", '{"3": [1], "b": {"c": 2, "d": 1}}', 3, True, False]
    assert shown(plan.exports) == {"key": "<secret>"}


def test_the_program_of_a_project_is_run_as_it_is(tmp_path: pathlib.Path) -> None:
    plan = of_file(
        tmp_path,
        """
        import pulumi
        assert __name__ == "__main__"
        pulumi.export("who", [pulumi.get_project(), pulumi.get_stack()])
        """,
    )
    assert plan.exports == {"who": ["project", "stack"]}


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("raise KeyError('boom')", KeyError, "boom"),
        ("import pulumi; raise pulumi.RunError('one line')", pulumi.RunError, "one line"),
        ("import sys; sys.exit(3)", SystemExit, "3"),
    ],
)
def test_what_the_program_raises_is_passed_on(
    tmp_path: pathlib.Path, program: str, error: type[BaseException], message: str
) -> None:
    with pytest.raises(error, match=message):
        of_file(tmp_path, program)


def test_what_an_apply_raises_is_passed_on() -> None:
    def fail(value: object) -> None:
        raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        recorded(lambda: pulumi.Output.from_input(1).apply(fail))


def test_a_failure_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """What follows from it, in tasks that nobody waits for, is not worth a traceback each."""
    with pytest.raises(RecordingError):
        recorded(lambda: [Namespace(f"x{index}") for index in range(5)])
    gc.collect()  # It is when such a task is collected that asyncio complains.
    assert caplog.records == []


def test_it_works_twice_in_a_process() -> None:
    assert recorded(family) == recorded(family)


def test_it_works_after_a_failure() -> None:
    before = recorded(family)
    with pytest.raises(RecordingError):
        recorded(lambda: Namespace("x"))
    with pytest.raises(ZeroDivisionError):
        recorded(lambda: (family(), 1 / 0))
    assert recorded(family) == before


def test_nothing_of_one_recording_is_seen_by_the_next() -> None:
    first = record_program(
        lambda: None, project="one", stack="one", values={"one:key": "value"}, secrets={"one:secret": "hunter2"}
    )
    seen: list[Any] = []
    record_program(
        lambda: seen.extend([pulumi.Config("one").get("key"), pulumi.Config("one").get("secret"), pulumi.get_stack()]),
        project="two",
        stack="two",
    )
    assert first.resources == ()
    assert seen == [None, None, "two"]


def test_the_process_is_left_as_it_was(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_ERROR_OUTPUT_STRING", raising=False)
    path, environment = list(sys.path), dict(os.environ)
    of_file(tmp_path, "import sys; sys.path.insert(0, '/nowhere')", secrets={"project:key": "hunter2"})
    assert sys.path == path
    assert dict(os.environ) == environment
    assert pulumi.Config("project").get("key") is None


def test_a_provider_can_be_the_only_resource() -> None:
    plan = recorded(lambda: Provider("cluster", context="mi300"))
    assert [(resource.name, resource.inputs) for resource in plan.resources] == [("cluster", {"context": "mi300"})]


def test_assets_are_recorded_by_their_content_without_pulumi_s_marks() -> None:
    def build() -> None:
        archive = pulumi.AssetArchive({"a.txt": pulumi.StringAsset("hello"), "b": pulumi.FileArchive("./b")})
        content: Any = {"code": archive, "file": pulumi.FileAsset("./c.txt")}
        ConfigMap("one", data=content, opts=on_cluster())

    inputs = the(recorded(build), "ConfigMap").inputs
    assert "4dabf181" not in str(inputs)
    assert "hello" in str(inputs)
    assert "./c.txt" in str(inputs)
