"""What becomes of each resource: identity, aliases, providers and secrets, from programs recorded before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Pod
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs

from gpufleet_tools.diff.evaluation import EvaluatedResource, _resource
from gpufleet_tools.diff.resources import ResourceChange, resource_changes
from tests.recording import on_cluster, recorded

Build = Callable[[], object]


def evaluated(build: Build) -> list[EvaluatedResource]:
    return [_resource(resource, resource.inputs, "key") for resource in recorded(build).resources]


def changes(before: Build, after: Build) -> list[ResourceChange]:
    return resource_changes(evaluated(before), evaluated(after))


def said(before: Build, after: Build) -> list[str]:
    return [f"{each.title} {each.action}" for each in changes(before, after)]


def nothing() -> None:
    """A program that makes nothing."""


def config(name: str, data: str = "a", **options: Any) -> Build:
    """A ConfigMap of one name outside Pulumi, whatever it is called inside."""
    body = {"metadata": {"name": "outside", "namespace": "n"}, "data": {"key": data}}
    return lambda: ConfigMap(name, **body, opts=on_cluster(**options))


class Group(pulumi.ComponentResource):
    """A component with a ConfigMap named after it."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("gpu-runners:index:Group", name, None, opts)
        ConfigMap(f"{name}-config", metadata={"name": "outside"}, opts=pulumi.ResourceOptions(parent=self))


def group(name: str, *aliases: pulumi.Alias) -> Build:
    return lambda: Group(name, on_cluster(aliases=list(aliases)))


# -- identity ---------------------------------------------------------------------------------------------------------


def test_equal_programs_change_nothing() -> None:
    assert changes(config("a"), config("a")) == []


def test_another_name_inside_is_a_move() -> None:
    found = changes(config("a"), config("b"))
    assert [(each.title, each.action, each.moved) for each in found] == [
        ("ConfigMap a", "deleted", True),
        ("ConfigMap b", "created", True),
    ]
    assert found[0].reasons[0].startswith("moved without an alias")


def test_another_name_outside_as_well_is_no_move() -> None:
    other = {"metadata": {"name": "other", "namespace": "n"}}
    found = changes(config("a"), lambda: ConfigMap("b", **other, opts=on_cluster()))
    assert [each.moved for each in found] == [False, False]


def test_an_alias_makes_it_the_same() -> None:
    assert changes(config("a"), config("b", aliases=[pulumi.Alias(name="a")])) == []
    urn = "urn:pulumi:test::gpu-runners::kubernetes:core/v1:ConfigMap::a"
    assert changes(config("a"), config("b", aliases=[urn])) == []


def test_an_alias_of_something_else_does_not() -> None:
    assert said(config("a"), config("b", aliases=[pulumi.Alias(name="c")])) == [
        "ConfigMap a deleted",
        "ConfigMap b created",
    ]


def test_children_inherit_the_alias_of_their_parent() -> None:
    assert changes(group("one"), group("two", pulumi.Alias(name="one"))) == []
    assert said(group("one"), group("two")) == ["ConfigMap one-config deleted", "ConfigMap two-config created"]


def test_out_of_a_component_is_a_move() -> None:
    alone: Build = lambda: ConfigMap("one-config", metadata={"name": "outside"}, opts=on_cluster())  # noqa: E731
    assert [each.moved for each in changes(group("one"), alone)] == [True, True]


def test_a_release_is_told_by_its_namespace_and_name() -> None:
    def release(inside: str, namespace: str) -> Build:
        args = ReleaseArgs(
            name="r", namespace=namespace, chart="c", version="1.0.0", values={"metadata": {"name": "x"}}
        )
        return lambda: Release(inside, args, opts=on_cluster())

    assert [each.moved for each in changes(release("a", "n"), release("b", "n"))] == [True, True]
    assert [each.moved for each in changes(release("a", "n"), release("b", "m"))] == [False, False]
    assert said(release("a", "n"), release("a", "m")) == ["Release a replaced"]


# -- providers --------------------------------------------------------------------------------------------------------


def on(provider: str, **arguments: Any) -> Build:
    def build() -> None:
        cluster = Provider(provider, **arguments)
        Namespace("a", metadata={"name": "a"}, opts=pulumi.ResourceOptions(provider=cluster))

    return build


def test_a_renamed_provider_of_the_same_cluster_replaces_nothing() -> None:
    assert said(on("p", cluster_identifier="x"), on("q", cluster_identifier="x")) == [
        "kubernetes provider p deleted",
        "kubernetes provider q created",
    ]
    assert not any(each.moved for each in changes(on("p"), on("q")))


def test_another_cluster_replaces_all_that_is_on_it() -> None:
    found = changes(on("p", cluster_identifier="x"), on("p", cluster_identifier="y"))
    assert [(each.title, each.action) for each in found] == [
        ("Namespace a", "replaced"),
        ("kubernetes provider p", "replaced"),
    ]
    assert found[0].reasons == [
        "its provider: clusterIdentifier identifies another cluster",
        "everything in the namespace is deleted with it",
    ]


def test_another_context_may() -> None:
    assert said(on("p", context="x"), on("p", context="y")) == ["Namespace a unknown", "kubernetes provider p unknown"]


def test_a_new_kubeconfig_for_a_cluster_with_an_identifier_does_not() -> None:
    one, two = (on("p", kubeconfig=text, cluster_identifier="x") for text in ("one", "two"))
    assert said(one, two) == ["kubernetes provider p updated"]


# -- options ----------------------------------------------------------------------------------------------------------


def test_what_was_protected_is_told() -> None:
    (gone, *_) = changes(config("a", protect=True), nothing)
    assert (gone.title, gone.protected) == ("ConfigMap a", True)
    (replaced,) = changes(config("a", protect=True), config("a", "b"))
    assert (replaced.action, replaced.protected) == ("replaced", True)
    assert not changes(config("a"), config("a", "b", protect=True))[0].protected


def test_what_is_retained_stays() -> None:
    (gone, *_) = changes(config("a", retain_on_delete=True), nothing)
    assert gone.reasons == ["retainOnDelete: removed from Pulumi's state only"]


def test_ignored_changes_are_not_guessed() -> None:
    (found,) = changes(config("a"), config("a", "b", ignore_changes=["data"]))
    assert found.action == "unknown"


def test_a_lookup_that_becomes_the_stacks_own() -> None:
    looked_up: Build = lambda: Namespace.get("a", "a", opts=on_cluster())  # noqa: E731
    owned: Build = lambda: Namespace("a", metadata={"name": "a"}, opts=on_cluster())  # noqa: E731
    assert said(looked_up, owned) == ["Namespace a created"]
    assert said(owned, looked_up) == ["Namespace a deleted"]
    assert said(looked_up, looked_up) == []
    assert "Namespace a deleted" not in said(looked_up, nothing)


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_secrets_are_hidden_and_told_apart() -> None:
    def secret(text: str) -> Build:
        def build() -> None:
            data = {"k": pulumi.Output.secret(text), "l": "x"}
            ConfigMap("a", metadata={"name": "a"}, data=data, opts=on_cluster())

        return build

    (found,) = changes(secret("hunter2"), secret("hunter3"))
    assert "-  k: <secret>" in found.diff
    assert "+  k: <another secret>" in found.diff
    assert "hunter" not in found.model_dump_json()
    assert changes(secret("hunter2"), secret("hunter2")) == []


def test_a_secret_is_hidden_by_its_name() -> None:
    def plain(password: str, token: str) -> Build:
        def build() -> None:
            options = on_cluster()
            ConfigMap("a", metadata={"name": "a"}, data={"DB_PASSWORD": password}, opts=options)
            variables = [{"name": "HF_TOKEN", "value": token}]
            spec = {"containers": [{"name": "a", "image": "a:1", "env": variables}]}
            Pod("a", metadata={"name": "a"}, spec=spec, opts=options)

        return build

    found = changes(plain("battery", "horse"), plain("staple", "correct"))
    lines = [line for each in found for line in each.diff]
    assert {"-  DB_PASSWORD: <secret>", "+  DB_PASSWORD: <another secret>"} < {*lines}
    assert "+      value: <another secret>" in lines
    created = changes(lambda: None, plain("staple", "correct"))
    text = "".join(each.model_dump_json() for each in (*found, *created))
    assert not [word for word in ("battery", "horse", "staple", "correct") if word in text]


def test_what_looks_like_a_secret_in_plain_text_is_hushed() -> None:
    (found,) = changes(config("a"), config("a", "ghp_0123456789abcdef"))
    assert "+  key: <secret>" in found.diff
    assert "ghp_" not in found.model_dump_json()


def test_options_that_change_alone_are_a_change() -> None:
    (found,) = changes(config("a", protect=True), config("a"))
    assert (found.action, found.reasons) == ("updated", ["in Pulumi's state only: option protect true → none"])
