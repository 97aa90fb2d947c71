"""Every problem that a component can have with its arguments is placed at a setting that exists."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gpufleet.aws.eks.network_args import NetworkReference
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.bare_metal.kubespray.rules import cluster_problems
from gpufleet.problem import Path, Problem, dotted
from gpufleet_stacks.settings.args.eks import cluster_args, network_args, storage_class_args
from gpufleet_stacks.settings.args.machines import cluster_args as kubespray_args
from gpufleet_stacks.settings.args.machines import operator_args, toolkit_args
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.load import from_file
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.rules.eks_places import CLUSTER, NETWORK, pool_places, storage_class_places
from gpufleet_stacks.settings.rules.machine_places import OPERATOR, kubespray_places, toolkit_places
from gpufleet_stacks.settings.rules.places import Places, UnplacedProblem
from tests.components.aws.karpenter.test_node_pool import REFUSED as REFUSED_POOLS
from tests.components.bare_metal.kubespray.test_rules import REFUSED as REFUSED_CLUSTERS
from tests.conftest import ROOT

COMPONENTS = ROOT / "components/gpufleet"


def settings_of(case: str) -> Any:
    settings, _ = from_file(ROOT / f"tests/settings/{case}.ok.yaml")
    return settings


EKS: EksSettings = settings_of("eks-every-setting")
MACHINES: BareMetalSettings = settings_of("kubespray")
SUBNETS = NetworkReference(vpc_id="vpc-1", private_subnets={"us-east-1a": "subnet-1"}, cidr="10.0.0.0/16")


@dataclasses.dataclass(frozen=True)
class Filled:
    """A component's arguments as a stack file with every setting fills them."""

    args: Any
    places: Places
    settings: Settings
    fixed: frozenset[str]
    """Arguments that come from no setting: defaults of the component, which cannot be wrong."""


NO_SETTINGS_OF_A_NODE_CLASS = ("subnet_terms", "security_group_terms")

FILLED: dict[str, Filled] = {
    "network": Filled(network_args(EKS.cluster, EKS.cluster.network), NETWORK, EKS, frozenset()),  # type: ignore[arg-type]
    "cluster": Filled(
        cluster_args(EKS.cluster, SUBNETS),
        CLUSTER,
        EKS,
        frozenset({"partition", "network", "system_nodes", "credentials", "secrets_key_arn", "efa"}) | {"endpoint"},
    ),
    **{
        f"pool {name}": Filled(
            node_pool_args(name, EKS.cluster),
            pool_places(name, EKS.cluster),
            EKS,
            frozenset({"node_class"}),
        )
        for name in EKS.cluster.node_pools
    },
    **{
        f"storage class {name}": Filled(
            storage_class_args(name, storage_class), storage_class_places(name), EKS, frozenset({"storage_class"})
        )
        for name, storage_class in EKS.cluster.storage_classes.items()
    },
    "kubespray": Filled(
        kubespray_args(MACHINES.cluster, "key"), kubespray_places(MACHINES.cluster), MACHINES, frozenset({"login"})
    ),
    "toolkit": Filled(
        toolkit_args(MACHINES.cluster, "key"), toolkit_places(MACHINES.cluster), MACHINES, frozenset({"login"})
    ),
    "operator": Filled(
        operator_args(MACHINES),
        OPERATOR,
        MACHINES,
        frozenset({"driver_enabled", "sharing", "tolerations", "values"}),
    ),
}

INNER: dict[str, set[Path]] = {
    "cluster": {
        ("network",),
        *(("network", each) for each in ("vpc_id", "discoverable", "needs")),
        *(("system_nodes", each) for each in ("ami_type", "release_version", "disk_gib", "critical_addons_only")),
        *(("system_nodes", each) for each in ("labels",)),
    },
}


def steps(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place in arguments that a problem can name, attributes, keys and indices, with what stands there."""
    if dataclasses.is_dataclass(value):
        inner = [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value) if each.name != "needs"]
    elif isinstance(value, Mapping):
        inner = [*value.items()]
    elif isinstance(value, list | tuple):
        inner = [*enumerate(value)]
    else:
        inner = []
    for step, item in inner:
        yield (*at, step), item
        yield from steps(item, (*at, step))


def shape(value: Any, path: Path) -> Path | None:
    """The path with `*` for keys and indices; None where the arguments have no such place. A key that ought to be
    there may be missing."""
    found: list[str | int] = []
    for step in path:
        if dataclasses.is_dataclass(value):
            if not isinstance(step, str) or not hasattr(value, step):
                return None
            found.append(step)
            value = getattr(value, step)
        elif isinstance(value, Mapping):
            found.append("*")
            value = value.get(step)
        elif isinstance(value, list | tuple) and isinstance(step, int):
            found.append("*")
            value = value[step]
        else:
            return None
    return tuple(found)


# -- the schema of stack files ----------------------------------------------------------------------------------------


@functools.cache
def schema_of(settings: type[Settings]) -> dict[str, Any]:
    """Return the schema of a kind of stack file; pydantic takes a tenth of a second for each."""
    return settings.model_json_schema()


def exists(path: Path, settings: Settings) -> bool:
    """Return whether the schema of stack files has that setting."""
    schema = schema_of(type(settings))
    nodes = [schema]
    for step in path:
        nodes = [deeper for node in nodes for whole in _whole(node, schema) for deeper in _deeper(whole, step)]
    return bool(nodes)


def _whole(node: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in node:
        yield from _whole(schema["$defs"][node["$ref"].removeprefix("#/$defs/")], schema)
    for choice in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
        yield from _whole(choice, schema)
    yield node


def _deeper(node: dict[str, Any], step: str | int) -> Iterator[dict[str, Any]]:
    found = (
        [node.get("items"), node == _ANYTHING]
        if isinstance(step, int)
        else [
            node.get("properties", {}).get(step),
            node.get("additionalProperties"),
            *node.get("patternProperties", {}).values(),
        ]
    )
    for each in found:
        yield from [each] if isinstance(each, dict) else [_ANYTHING] if each is True else []


_ANYTHING: dict[str, Any] = {"additionalProperties": True}
"""Schema of what may be anything, such as variables of kubespray."""


# -- places -----------------------------------------------------------------------------------------------------------


def placed(filled: Filled) -> tuple[dict[Path, Path], set[Path]]:
    """Settings by argument, and arguments that come from none."""
    settings: dict[Path, Path] = {}
    unplaced: set[Path] = set()
    for path, _ in steps(filled.args):
        try:
            settings[path] = filled.places.setting(path)
        except UnplacedProblem:
            unplaced.add(path)
    return settings, unplaced


@pytest.mark.parametrize("name", FILLED)
def test_every_argument_comes_from_a_setting_that_exists(name: str) -> None:
    settings, _ = placed(FILLED[name])
    assert settings
    for argument, setting in settings.items():
        assert exists(setting, FILLED[name].settings), f"{dotted(argument)} is placed at {setting}"


@pytest.mark.parametrize("name", FILLED)
def test_what_comes_from_no_setting_is_known(name: str) -> None:
    """A new argument is placed, or it is listed here with the reason that it cannot be wrong."""
    filled = FILLED[name]
    _, unplaced = placed(filled)
    assert {path[0] for path in unplaced} <= filled.fixed
    # Parts of what a stack file fills in part.
    for path in unplaced:
        if path[0] in ("login", "runner"):
            assert path[-1] in ("dial_seconds", "dial_attempts"), path
        if path[0] == "node_class":
            assert path[1:2] == () or path[1] in NO_SETTINGS_OF_A_NODE_CLASS, path


def test_another_argument_is_no_setting() -> None:
    with pytest.raises(UnplacedProblem, match="price"):
        [*NETWORK.placed([Problem(("price",), "too-dear", "too dear")])]


def shapes_of(names: list[str]) -> set[Path]:
    return {
        found
        for name in names
        for path in placed(FILLED[name])[0]
        if (found := shape(FILLED[name].args, path)) is not None
    }


EXAMPLES: dict[str, tuple[list[str], Callable[[Any], Iterator[Problem]], list[Any], tuple[str, ...]]] = {
    "pools": (
        [name for name in FILLED if name.startswith("pool ")],
        node_pool_problems,
        [args for args, _ in REFUSED_POOLS.values()],
        (),
    ),
    "kubespray": (["kubespray"], cluster_problems, [args for args, _ in REFUSED_CLUSTERS.values()], ()),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_problems_of_arguments_that_are_refused_are_placed(kind: str) -> None:
    """Each names a place in the arguments, and that place comes from a setting."""
    names, rule, examples, fixed = EXAMPLES[kind]
    known = shapes_of(names)
    for args in examples:
        for problem in rule(args):
            found = shape(args, problem.path)
            assert found is not None, f"{problem.code}: {problem.path} is no place in the arguments"
            ours = found[0] in fixed or (found[0] == "node_class" and found[1] in NO_SETTINGS_OF_A_NODE_CLASS)
            assert ours or any(found[:depth] in known for depth in range(len(found), len(found) - 2, -1)), problem


# -- codes ------------------------------------------------------------------------------------------------------------


def codes() -> set[str]:
    """Codes of all problems that components can have."""
    found = set()
    for file in COMPONENTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
                code = node.args[1]
                if isinstance(code, ast.Constant):
                    found.add(str(code.value))
                else:
                    assert isinstance(code, ast.Name), f"{file}:{node.lineno}: write the code as text"
    return found


def test_codes_are_short_and_stable() -> None:
    assert len(codes()) > 100
    assert [code for code in codes() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)] == []


@pytest.mark.parametrize("name", FILLED)
def test_every_message_in_other_words_is_of_a_problem_that_exists(name: str) -> None:
    # The codes of site findings are in a table beside them.
    assert FILLED[name].places.words.keys() <= codes()


ARGUMENT = re.compile(r"\b[a-z]+_[a-z_]+\b")


@pytest.mark.parametrize("kind", EXAMPLES)
def test_no_message_about_a_setting_names_an_argument(kind: str) -> None:
    """`drain_seconds` is called drainSeconds in a stack file."""
    names, rule, examples, _ = EXAMPLES[kind]
    places = FILLED[names[0]].places
    arguments = {step for path, _ in steps(FILLED[names[0]].args) for step in path if isinstance(step, str)}
    for args in examples:
        for problem in rule(args):
            words = places.words.get(problem.code)
            message = words(problem.facts) if words else problem.message
            named = set(ARGUMENT.findall(message)) & arguments - {"control_plane"}
            assert not named, f"{problem.code}: {message}"
