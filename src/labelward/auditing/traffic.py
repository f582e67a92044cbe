"""What crossed the wire, by direction and message type, from the parties' transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import get_type_hints

from labelward.he import CipherBlock
from labelward.messages.codec import schema
from labelward.party.transcript import FILE_NAME, read_entries
from labelward.runs.schema import WireFlow


def wire_flows(views: Iterable[tuple[str, Path]], *, active: str, secure: bool) -> tuple[WireFlow, ...]:
    """Return all flows of a run.

    Args:
        views: each party with the folder of its view; each message is counted once, at its sender.
        active: the party that holds the key.
        secure: whether the engine hides anything.
    """
    flows: list[WireFlow] = []
    for sender, folder in views:
        messages: Counter[tuple[str, str]] = Counter()
        size: Counter[tuple[str, str]] = Counter()
        for entry in read_entries(folder / FILE_NAME):
            if entry.kind == "sent":
                messages[entry.peer, entry.type] += 1
                size[entry.peer, entry.type] += int.from_bytes(entry.payload, "little")
        flows += [
            WireFlow(
                sender=sender,
                receiver=receiver,
                type=kind,
                messages=number,
                bytes=size[receiver, kind],
                readable=_readable(kind, owns_key=receiver == active, secure=secure),
            )
            for (receiver, kind), number in messages.items()
        ]
    return tuple(flows)


def _readable(kind: str, *, owns_key: bool, secure: bool) -> bool | str:
    hints = get_type_hints(schema(kind))
    hidden = [name for name in schema(kind).__struct_fields__ if CipherBlock in getattr(hints[name], "__args__", ())]
    if not hidden or not secure:
        return True
    if owns_key:
        return f"all of it ({', '.join(hidden)} with its key)"
    return f"all but {', '.join(hidden)} (encrypted)"
