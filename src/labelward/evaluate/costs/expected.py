"""What a training is expected to take, as results keep it."""

from __future__ import annotations

import msgspec

__all__ = ["Between", "Estimate"]


class Between(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run between companies, each on a machine of its own like this one.

    Attributes:
        bandwidth: million bits a second, each way, at every party.
        latency: milliseconds to the other side and back.
        seconds: from the first message to the last; what a party encrypts beforehand, while it waits, is not set off.
        own: seconds that each party works, waiting excluded.
        line: seconds that bytes need on the line. Rows travel while further ones are encrypted and prepared, so that
            the longest of the three counts towards ``seconds``; sums and answers are waited for.
        waiting: seconds of round trips.
        turns: round trips.
    """

    bandwidth: float
    latency: float
    seconds: float
    own: dict[str, float]
    line: float
    waiting: float
    turns: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a training is expected to take.

    Attributes:
        seconds: of a rehearsal: all parties in one process.
        phases: seconds by party and phase, named as in the phases of a run.
        bytes: by sender.
        messages: number of all of them.
        encryptions, additions, decryptions, ciphertexts: of all parties; as in a run's cost.
        memory: bytes at the peak, by party, each in a process of its own.
        kernel: that was measured.
        between: between companies, where bandwidth and latency are known.
    """

    seconds: float
    phases: dict[str, dict[str, float]]
    bytes: dict[str, int]
    messages: int
    encryptions: int
    additions: int
    decryptions: int
    ciphertexts: int
    memory: dict[str, int]
    kernel: str = ""
    between: Between | None = None
