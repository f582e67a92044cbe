"""A party that sends other messages than its program meant to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wiring
from labelward.messages.base import Message
from labelward.messages.codec import decode, encode
from labelward.transport.base import Transport
from released import rewrapped, unwrapped

Change = Callable[[Any], Message]


class Liar(wiring.Wire):
    """Sends other messages of one type than its program meant to."""

    def __init__(self, inner: Transport, who: str, kind: type[Message], change: Change) -> None:
        super().__init__(inner)
        self.who, self.kind, self.change = who, kind, change

    def send(self, peer: str, frame: bytes) -> None:
        message, step = decode(frame)
        if self.party == self.who and isinstance(message, self.kind):
            frame = encode(rewrapped(self.change(unwrapped(message))), step)
        super().send(peer, frame)
