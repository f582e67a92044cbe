"""A TCP proxy of this process: what a network between companies does to connections, on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_BLOCK = 64 * 1024
_BUFFER = 1024 * 1024  # bytes that a router on the way would hold, beyond what is under way


@dataclass
class Weather:
    """What happens to bytes; may change at any time.

    Attributes:
        delay: seconds that each byte is under way, in each direction.
        rate: bytes per second in each direction; 0: no limit.
        frozen: bytes stay where they are, and no connection ends.
        refusing: new connections are reset.
    """

    delay: float = 0.0
    rate: float = 0.0
    frozen: bool = False
    refusing: bool = False


class Proxy:
    """Listens at a free port of loopback, and forwards to ``target``.

    Attributes:
        weather: see there.
        carried: bytes that have arrived, toward the target and back.
    """

    def __init__(self, target: tuple[str, int], weather: Weather | None = None) -> None:
        self.target, self.weather, self.carried = target, weather or Weather(), [0, 0]
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._taken, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Reset all connections."""
        self._do(self._cut())

    def close(self) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- in the proxy's thread -------------------------------------------------------------------------------------

    async def _cut(self) -> None:
        for link in list(self._links):
            for writer in link:
                writer.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.weather.refusing:
                raise ConnectionResetError
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except (OSError, asyncio.CancelledError):  # the latter where the proxy closes meanwhile
            writer.transport.abort()
            return
        link = (writer, far_writer)
        self._links.add(link)
        ways = [
            asyncio.create_task(self._way(reader, far_writer, 0)),
            asyncio.create_task(self._way(far_reader, writer, 1)),
        ]
        try:
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):  # of a cancelled task asyncio's streams ask what it raised
            pass
        finally:
            for way in ways:
                way.cancel()
            self._links.discard(link)
            for each in link:
                each.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int) -> None:
        """Carry one direction: each block leaves when the rate lets it, and arrives ``delay`` later."""
        blocks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        waiting, room = [0], asyncio.Event()

        async def arrive() -> None:
            while True:
                due, block = await blocks.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                while self.weather.frozen:
                    await asyncio.sleep(0.01)
                if not block:
                    await writer.drain()
                    writer.write_eof()
                    return
                writer.write(block)
                await writer.drain()
                self.carried[way] += len(block)
                waiting[0] -= len(block)
                room.set()

        arriving, free = asyncio.create_task(arrive()), 0.0
        try:
            while True:
                block = await reader.read(_BLOCK)
                now = time.monotonic()
                free = max(free, now) + (len(block) / self.weather.rate if self.weather.rate else 0.0)
                waiting[0] += len(block)
                blocks.put_nowait((free + self.weather.delay, block))
                if not block:
                    await arriving
                    return
                room.clear()
                while waiting[0] > _BUFFER + self.weather.rate * self.weather.delay and not arriving.done():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(room.wait(), 0.1)
                    room.clear()
                if arriving.done():
                    await arriving
        finally:
            arriving.cancel()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
