"""The program of a worker process: read a task, run it, write the result, until the pipe ends."""

from __future__ import annotations

import os
import sys
from typing import IO

import msgspec

from labelward.he.paillier.gmp import Made
from labelward.he.paillier.rooms import Rooms
from labelward.he.paillier.tasks import State, Task, run

__all__ = ["Reply", "main", "receive", "send"]


class Reply(msgspec.Struct, frozen=True):
    """What a worker answers: the result, or what went wrong."""

    data: bytes = b""
    error: str = ""


def send(pipe: IO[bytes], frame: bytes) -> None:
    """Write a frame: eight bytes of length, then the frame."""
    pipe.write(len(frame).to_bytes(8, "big"))
    pipe.write(frame)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """Read a frame; :class:`EOFError` where the pipe ends."""
    header = pipe.read(8)
    size = int.from_bytes(header, "big")
    frame = pipe.read(size) if len(header) == 8 else b""
    if len(header) < 8 or len(frame) < size:
        raise EOFError("the pipe ended")
    return frame


def main() -> None:
    """Serve standard input; what anything prints goes to the error stream, lest it mix with the results."""
    tasks, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    state, decoder = State(Made(), Rooms().make), msgspec.msgpack.Decoder(Task)
    try:
        while True:
            task = decoder.decode(receive(tasks))
            try:
                reply = Reply(data=run(task, state))
            except Exception as error:
                reply = Reply(error=f"{type(error).__name__}: {error}")
            send(replies, msgspec.msgpack.encode(reply))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the engine is gone; nothing is left to flush or to report
