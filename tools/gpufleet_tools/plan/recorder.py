"""Recorder: runs a stack's unmodified program against a resource monitor that records its registrations.

The monitor takes the place of Pulumi's engine. It has no state, no providers and no network.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import pulumi
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime import mocks, settings
from pulumi.runtime.proto import provider_pb2, resource_pb2
from pulumi.runtime.stack import run_in_stack, wait_for_rpcs

from gpufleet.chart import HELM_TEMPLATE
from gpufleet_tools.plan.plan import UNKNOWN, Hidden, Plan, Resource

# Signatures of special values in Pulumi's protocol (sdk/proto and sdk/go/common/resource in pulumi/pulumi).
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"
_REFERENCE = "5cf8f73096256a8f31e491e813e4eb8e"
_OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_CONTENTS = frozenset({"c44067f5952c0a294b673a41bacd8c17", "0def7320c3a5731c473e5ecbe6d01bc7"})  # assets, archives
_UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

_STACK = "pulumi:pulumi:Stack"
_PROVIDER = "pulumi:providers:"
_GET_RESOURCE = "pulumi:pulumi:getResource"


class RecordingError(Exception):
    """The program does something that stacks must not do, or that only the engine can answer."""


def record(
    root: pathlib.Path,
    stack: str,
    values: Mapping[str, Any],
    *,
    secrets: Mapping[str, str],
    unknown_outputs: bool = True,
) -> Plan:
    """Return the plan of the program of the Pulumi project in `root`.

    `values` are the stack's configuration values by full key, `secrets` those that the engine would decrypt.

    Raises RecordingError for a project without a name or a program, and the exceptions of `record_program`.
    """
    root = root.resolve()
    project = _project(root / "Pulumi.yaml")
    main = root / project.get("main", "")
    if not (main.is_file() or (main / "__main__.py").is_file()):
        raise RecordingError(
            f"Pulumi.yaml: main: the program {main if main != root else main / '__main__.py'} does not exist"
        )

    def program() -> None:
        # If `main` is a folder, it precedes others in the module search path, as in the language host.
        runpy.run_path(str(main), run_name="__main__")

    # The engine runs a program in its folder, and in a separate process.
    with contextlib.chdir(main if main.is_dir() else main.parent), _own_modules(root):
        return record_program(
            program,
            project=project["name"],
            stack=stack,
            root=root,
            values=values,
            secrets=secrets,
            unknown_outputs=unknown_outputs,
        )


_KEPT = ("gpufleet", "gpufleet_stacks", "gpufleet_tools")
"""Packages of this repository; importing them registers no resources."""


@contextlib.contextmanager
def _own_modules(root: pathlib.Path) -> Iterator[None]:
    """Remove the project's modules from `sys.modules` afterwards, so that the next run imports them again: importing a
    module may register resources, and another revision may have a different module of the same name."""
    before = {*sys.modules}
    try:
        yield
    finally:
        for name in {*sys.modules} - before:
            if name.partition(".")[0] not in _KEPT and _is_of_project(sys.modules[name], root):
                del sys.modules[name]


def _is_of_project(module: Any, root: pathlib.Path) -> bool:
    """Return whether a module belongs to the project, and not to a virtual environment in its folder."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    path = next((pathlib.Path(place) for place in places if place), None)
    return path is not None and path.is_relative_to(root) and not path.is_relative_to(sys.prefix)


def _project(file: pathlib.Path) -> dict[str, Any]:
    try:
        project = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise RecordingError(f"Pulumi.yaml is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(project, dict) or not isinstance(project.get("name"), str):
        raise RecordingError("Pulumi.yaml: name: is missing; a Pulumi project requires it")
    return project


def record_program(
    program: Callable[[], None],
    *,
    project: str,
    stack: str,
    root: pathlib.Path | None = None,
    values: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    unknown_outputs: bool = True,
) -> Plan:
    """Return the plan of a program that is a function.

    With `unknown_outputs`, the plan is the preview of a new stack: the outputs of a resource are its inputs, and its ID
    and all other outputs are unknown. All outputs are unknown if the resource's provider has unknown inputs. Without
    `unknown_outputs`, every resource has an ID, and every provider is configured. A remote component never has outputs.

    Raises RecordingError for a resource without an explicit provider, two resources with one URN, a transform, or a
    call of a provider's function that does not render a chart; and any exception of the program, including
    pulumi.RunError.
    """
    monitor = _Monitor(project, stack, root, unknown_outputs)
    config = {key: _text(value) for key, value in (values or {}).items()} | dict(secrets or {})

    async def recording() -> None:
        # The first exception is raised; asyncio would also print those that follow from it.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        # The SDK sends each request from a thread of the pool. One thread serializes them.
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(max_workers=1))
        settings.reset_options()
        pulumi.runtime.set_all_config(config, secret_keys=list(secrets or {}))
        settings.configure(monitor.settings())

        async def settled() -> None:
            program()
            await _outputs()

        await run_in_stack(settled)

    # The SDK keeps settings and configuration in context variables, which end with the loop's context.
    with _process_state():
        asyncio.run(recording())
    return monitor.plan()


async def _outputs() -> None:
    """Wait for all resources and outputs, and raise the first exception of one.

    The SDK does that too. But whenever one output is ready, it looks at all others again. That takes a third of the CPU
    time of a plan (dev: 0.78 instead of 0.50 s), and more of a large fleet's.
    """
    await wait_for_rpcs(await_all_outstanding_tasks=False)
    while outputs := [*settings.SETTINGS.outputs]:
        done, _ = await asyncio.wait(outputs, return_when=asyncio.FIRST_EXCEPTION)
        for output in done:
            output.result()


def _no_stack(f: Any = None, limit: int | None = None) -> traceback.StackSummary:
    """Return a stack with one empty frame, for which the SDK reports no source position."""
    return traceback.StackSummary.from_list([("", 0, "", "")])


@contextlib.contextmanager
def _process_state() -> Iterator[None]:
    """Prepare the process for a program, and restore its state afterwards."""
    path, name = list(sys.path), "PULUMI_ERROR_OUTPUT_STRING"
    before = os.environ.get(name)
    # Formatting an Output into a string, such as a name, raises an error.
    os.environ[name] = "true"
    # The SDK extracts the stack for each resource, and the recorder drops it. That takes 52 of the 164 ms CPU time of a
    # plan of mi300 (medians of 10 alternating plans), 0.05 of the 1.5 import times that a preview may take.
    extract_stack, traceback.extract_stack = traceback.extract_stack, _no_stack
    try:
        yield
    finally:
        traceback.extract_stack = extract_stack
        sys.path[:] = path
        del os.environ[name]
        os.environ.update({name: before} if before is not None else {})


def _text(value: Any) -> str:
    """Return a configuration value as the engine passes it to a program: text unchanged, everything else as JSON with
    sorted keys, as Go writes maps (`Marshal` in encoding/json)."""
    if isinstance(value, str):
        return value
    # Written twice, since keys of several types cannot be sorted.
    return json.dumps(json.loads(json.dumps(value, default=str)), sort_keys=True)


class _Monitor(mocks.MockMonitor):
    """Resource monitor that keeps whole requests; the SDK's mock monitor passes on only type, name and inputs."""

    def __init__(self, project: str, stack: str, root: pathlib.Path | None, unknown_outputs: bool) -> None:
        super().__init__(_NoMocks())
        self._project, self._stack, self._root = project, stack, root
        self._unknown_outputs = unknown_outputs
        self._requests: dict[str, Any] = {}
        self._outputs: dict[str, Mapping[str, Any]] = {}
        self._configured: set[str] = set()
        self._responses: dict[str, Any] = {}
        self._stack_urn = ""

    def settings(self) -> mocks.MockSettings:
        """Return the SDK's settings that connect a program to this monitor."""
        features = self.GetDeploymentInfo(empty_pb2.Empty()).supportedFeatures
        return mocks.MockSettings(  # type: ignore[no-untyped-call]
            monitor=self,
            monitor_features=set(features),
            engine=mocks.MockEngine(None),
            project=self._project,
            stack=self._stack,
            dry_run=self._unknown_outputs,
            organization="organization",
            root_directory=str(self._root),
            callbacks=None,
        )

    def GetDeploymentInfo(self, request: Any) -> Any:  # noqa: N802  (the service's own name)
        info = super().GetDeploymentInfo(request)  # type: ignore[no-untyped-call]
        # As in the engine, inputs of a remote component are sent with their dependencies.
        info.supportedFeatures.append(resource_pb2.RESOURCE_MONITOR_FEATURE_OUTPUT_VALUES)
        return info

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        urn = self._keep(request)
        known = not self._unknown_outputs and not request.remote and request.type != _STACK
        self._responses[urn] = resource_pb2.RegisterResourceResponse(
            urn=urn,
            id=f"{request.name}-id" if known and request.custom else "",
            object=request.object if known or self._echoes(urn, request) else struct_pb2.Struct(),
            # Only the provider knows the outputs of a remote component. For the result FAIL, the SDK treats all outputs
            # as unknown and continues.
            result=resource_pb2.Result.FAIL if request.remote else resource_pb2.Result.SUCCESS,
        )
        return self._responses[urn]

    def _echoes(self, urn: str, request: Any) -> bool:
        """Return whether a preview returns the inputs of a resource as its outputs (`Create` of provider_plugin.go, in
        sdk/go/common/resource/plugin of pulumi/pulumi at v3.272.0). The engine does not call a provider with unknown
        inputs."""
        if not request.type.startswith(_PROVIDER):
            return request.custom and request.provider.rpartition("::")[0] in self._configured
        if _UNKNOWN_TEXT.encode() not in request.object.SerializeToString():
            self._configured.add(urn)
        return True

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        urn = self._keep(request)
        known = not self._unknown_outputs
        return resource_pb2.ReadResourceResponse(
            urn=urn, id=request.id if known else "", properties=request.properties if known else struct_pb2.Struct()
        )

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        self._outputs[request.urn] = _decoded_map(request.outputs)
        return empty_pb2.Empty()

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        if request.tok == _GET_RESOURCE:
            # The engine's only built-in function; the SDK calls it for a resource among outputs.
            response = self._responses[request.args["urn"]]
            found = struct_pb2.Struct()
            found.update({"urn": response.urn, "id": response.id or _UNKNOWN_TEXT, "state": response.object})
            return provider_pb2.InvokeResponse(**{"return": found})
        if request.tok == HELM_TEMPLATE:
            # A chart's objects are unknown until Helm renders them.
            return resource_pb2.ResourceInvokeResponse(unknown=True)
        raise RecordingError(f"the program calls {request.tok}, which only a provider can answer")

    def Call(self, request: Any) -> NoReturn:  # noqa: N802
        raise RecordingError(f"the program calls {request.tok}, which only a provider can answer")

    def ExistsResource(self, request: Any) -> NoReturn:  # noqa: N802
        raise RecordingError(f"the program checks whether {request.type} {request.id} exists, which only a cloud knows")

    def RegisterStackTransform(self, request: Any) -> NoReturn:  # noqa: N802
        raise RecordingError("the program registers a transform, which only the engine runs: the plan would be wrong")

    def _keep(self, request: Any) -> str:
        urn: str = self.make_urn(request.parent, request.type, request.name)
        if getattr(request, "transforms", None):
            raise RecordingError(f"{urn} has a transform, which only the engine runs: the plan would be wrong")
        if _lacks_provider(request):
            raise RecordingError(f"{urn} has no explicit provider: the environment would select its cluster or account")
        if urn in self._requests:
            raise RecordingError(f"two resources have the URN {urn}")
        self._requests[urn] = request
        if request.type == _STACK:
            self._stack_urn = urn
        return urn

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Return the URN as the engine does, with the types of all ancestors; the SDK's mock has only the parent's."""
        types = type_
        if parent and parent.split("::")[2] != _STACK:
            types = f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{self._stack}::{self._project}::{types}::{name}"

    def plan(self) -> Plan:
        """Return the plan of all registrations."""
        resources = [
            _resource(urn, request, self._stack_urn, self._outputs.get(urn))
            for urn, request in self._requests.items()
            if urn != self._stack_urn
        ]
        return Plan(
            stack=self._stack,
            resources=tuple(sorted(resources, key=lambda resource: resource.urn)),
            exports=self._outputs.get(self._stack_urn, {}),
        )


class _NoMocks(mocks.Mocks):
    """Mocks that the SDK's mock monitor requires; _Monitor handles every request before they are called."""

    def call(self, args: mocks.MockCallArgs) -> NoReturn:
        raise NotImplementedError

    def new_resource(self, args: mocks.MockResourceArgs) -> NoReturn:
        raise NotImplementedError


def _lacks_provider(request: Any) -> bool:
    """Return whether the engine would choose the provider of a resource or of a remote component."""
    if request.type.startswith("pulumi:") or request.provider:
        return False
    if isinstance(request, resource_pb2.ReadResourceRequest) or request.custom:
        return True
    return request.remote and request.type.partition(":")[0] not in request.providers


def _resource(urn: str, request: Any, stack_urn: str, outputs: Mapping[str, Any] | None) -> Resource:
    read = isinstance(request, resource_pb2.ReadResourceRequest)
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        parent=request.parent if request.parent != stack_urn else None,
        component=not read and not request.custom,
        read_id=request.id if read else None,
        provider=request.provider.rpartition("::")[0] or None,
        depends_on=tuple(sorted(request.dependencies)),
        inputs=_decoded_map(request.properties if read else request.object),
        options={} if read else _options(request),
        outputs=outputs,
    )


def _options(request: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for field, name in (
        ("protect", "protect"),
        ("retainOnDelete", "retainOnDelete"),
        ("deleteBeforeReplace", "deleteBeforeReplace"),
        ("deletedWith", "deletedWith"),
        ("importId", "import"),
    ):
        if getattr(request, field):
            options[name] = getattr(request, field)
    for field in ("additionalSecretOutputs", "ignoreChanges", "replaceOnChanges"):
        if getattr(request, field):
            options[field] = sorted(getattr(request, field))
    # Aliases with only a type come from the SDK, for objects whose API version has changed.
    aliases = [alias.urn or alias.spec.name for alias in request.aliases if alias.urn or alias.spec.name]
    if aliases:
        options["aliases"] = aliases
    fields = ("create", "update", "delete")
    timeouts = {name: getattr(request.customTimeouts, name) for name in fields if getattr(request.customTimeouts, name)}
    return options | ({"customTimeouts": timeouts} if timeouts else {})


def _decoded_map(struct: struct_pb2.Struct) -> dict[str, Any]:
    return {key: _decoded(value) for key, value in sorted(struct.fields.items())}


def _decoded(value: struct_pb2.Value) -> Any:
    """Return a value of a request as plain data: whole numbers as integers, resources as their URNs, with Hidden and
    UNKNOWN among the leaves."""
    match value.WhichOneof("kind"):
        case "string_value":
            return UNKNOWN if value.string_value == _UNKNOWN_TEXT else value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "bool_value":
            return value.bool_value
        case "struct_value":
            fields = value.struct_value.fields
            if _SIGNATURE in fields:
                return _special(fields[_SIGNATURE].string_value, fields)
            return _decoded_map(value.struct_value)
        case "list_value":
            return [_decoded(item) for item in value.list_value.values]
    return None


def _special(signature: str, fields: Mapping[str, struct_pb2.Value]) -> Any:
    """Return the content of a struct with a signature."""
    if signature == _SECRET:
        return _hidden(_decoded(fields["value"]))
    if signature == _OUTPUT:
        # An output without a value is unknown.
        content = _decoded(fields["value"]) if "value" in fields else UNKNOWN
        return _hidden(content) if "secret" in fields and fields["secret"].bool_value else content
    if signature == _REFERENCE:
        return fields["urn"].string_value
    if signature in _CONTENTS:
        return {part: _decoded(value) for part, value in sorted(fields.items()) if part != _SIGNATURE}
    raise RecordingError("a value is of a kind that only Pulumi's engine knows; the recorder does not support it")


def _hidden(value: Any) -> Any:
    """Hide every leaf of a secret instead of the whole map or list."""
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return value if isinstance(value, Hidden) or value is UNKNOWN else Hidden(value)
