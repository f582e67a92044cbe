"""Estimate of a training's costs, as results store it."""

from __future__ import annotations

import msgspec


class DeploymentEstimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs of a run between companies, each with a machine like this one.

    Attributes:
        bandwidth: million bits per second, each way, at every party.
        latency: round-trip time in milliseconds.
        seconds: from the first message to the last; what a party encrypts ahead while it waits is not deducted.
        own: seconds of work by party, waiting excluded.
        line: seconds of transmission. Encrypted rows travel while further rows are encrypted and prepared, so that only
            the slowest of the three counts toward ``seconds``; sums and answers are waited for.
        waiting: seconds of round trips.
        turns: number of round trips.
    """

    bandwidth: float
    latency: float
    seconds: float
    own: dict[str, float]
    line: float
    waiting: float
    turns: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs of a training.

    Attributes:
        seconds: of a simulation, with all parties in one process.
        phases: seconds by party and phase, with the names of a run's phases.
        bytes: sent, by party.
        messages: number of messages of all parties.
        encryptions, additions, decryptions, ciphertexts: of all parties, as in a run's cost.
        memory: peak bytes by party, each in a process of its own.
        kernel: the measured backend of the engine.
        between: costs between companies, if bandwidth and latency are known.
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
    between: DeploymentEstimate | None = None
