"""A provider of any package, run as a program by Pulumi's engine: inputs are valid, and outputs are the inputs.

It does nothing but that, so that a preview depends on the engine and the program alone.
"""

from __future__ import annotations

from concurrent import futures
from typing import Any

import grpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, resource_pb2, resource_pb2_grpc


class Echo(provider_pb2_grpc.ResourceProviderServicer):
    """The service. Its methods have the protocol's names."""

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version="0.0.1")

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ConfigureResponse(acceptSecrets=True, acceptResources=True, supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CreateResponse(properties=request.properties)

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return no result, as the engine does while a provider's configuration is unknown."""
        return provider_pb2.InvokeResponse()

    def Construct(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Register a component without children or outputs."""
        with grpc.insecure_channel(request.monitorEndpoint) as channel:
            registration = resource_pb2.RegisterResourceRequest(
                type=request.type, name=request.name, parent=request.parent
            )
            registered = resource_pb2_grpc.ResourceMonitorStub(channel).RegisterResource(registration)
        return provider_pb2.ConstructResponse(urn=registered.urn)


if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # The engine reads the port, and ends this process when it is done.
    print(port, flush=True)
    server.wait_for_termination()
