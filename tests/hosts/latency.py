"""Latency in front of SSH servers, without the kernel's netem: a relay on the loopback that holds whatever passes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import queue
import threading
from collections.abc import Iterator, Sequence

from gpufleet.bare_metal.ssh import SshHost


@contextlib.contextmanager
def far_away(hosts: Sequence[SshHost], round_trip: float) -> Iterator[list[SshHost]]:
    """The same hosts as from afar: what is sent, to them or by them, is there half a round trip (in seconds) later.

    The relay answers a connection at once, as no such host would, and makes up for it: nothing that is sent before
    the handshake of TCP would be over passes any sooner.
    """
    ready: queue.Queue[tuple[list[SshHost], asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        afar, done, open_ones = [], asyncio.Event(), set[asyncio.Future[None]]()
        async with contextlib.AsyncExitStack() as servers:
            for number, host in enumerate(hosts):
                # All of 127.0.0.0/8 is this machine; a survey wants an address for each host.
                address = f"127.{64 + (number >> 8)}.{number & 255}.1"
                relay = _Relay(host, round_trip, open_ones)
                server = await servers.enter_async_context(await asyncio.start_server(relay.connected, address))
                port: int = server.sockets[0].getsockname()[1]
                afar.append(dataclasses.replace(host, address=address, port=port))
            ready.put((afar, asyncio.get_running_loop(), done))
            await done.wait()
            # They are over a moment after their client.
            await asyncio.wait_for(asyncio.gather(*open_ones), 10)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    afar, loop, done = ready.get(timeout=60)
    try:
        yield afar
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


@dataclasses.dataclass(frozen=True)
class _Relay:
    """What is in front of one host."""

    host: SshHost
    round_trip: float
    open_ones: set[asyncio.Future[None]]

    def connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._relay(client, to_client))
        self.open_ones.add(connection)
        connection.add_done_callback(self.open_ones.discard)

    async def _relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """The client knows of the connection a round trip after its first packet, the server half of one later."""
        loop = asyncio.get_running_loop()
        known = loop.time() + self.round_trip
        await asyncio.sleep(self.round_trip)
        first = await client.read(65536)
        await asyncio.sleep(known + self.round_trip / 2 - loop.time())
        server, to_server = await asyncio.open_connection(self.host.address, self.host.port)
        try:
            to_server.write(first)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(client, to_server))
                both.create_task(self._pass(server, to_client))
        finally:
            to_server.close()
            to_client.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Each piece waits by itself: what comes shortly after another arrives shortly after it."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(65536):
                loop.call_later(self.round_trip / 2, sink.write, piece)
        await asyncio.sleep(self.round_trip / 2)
        sink.close()
