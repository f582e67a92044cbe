"""Programs in one process: one thread per party, or a single active party without peers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from labelward.errors import PeerError
from labelward.party.context import Context
from labelward.party.roles import Topology
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.rng import PrivateSeed
from labelward.transport.base import Failure, Transport
from labelward.transport.in_process import connect_in_process

T = TypeVar("T")
Program = Callable[[Context], T]


def standalone_context(party: str, *, seed: int, rows: int, private: PrivateSeed | None = None) -> Context:
    """Return the context of an active party without peers or policies, with a transcript in memory.

    Args:
        seed: seed of the learning draws.
        rows: number of training rows.
        private: the party's private seed; None: a new one.
    """
    transcript = Transcript(Header(FORMAT, "", party, "active", (), (rows, 0), "none", 0, (), {}))
    end = connect_in_process([party])[party]
    return Context(end, topology=Topology.star(party), transcript=transcript, seed=seed, private=private)


def run_parties(programs: Mapping[str, tuple[Callable[[Transport], Context], Program[T]]]) -> dict[str, T]:
    """Run all parties and return the result of each program.

    Args:
        programs: for each party a function from its transport endpoint to its context, and its program.

    Raises:
        LabelwardError: the first error that is not a consequence of another party's failure. A keyboard interrupt ends
            all parties and is re-raised.
    """
    ends = connect_in_process(programs)
    results: dict[str, T] = {}
    errors: dict[str, BaseException] = {}
    ended = {party: threading.Event() for party in programs}
    contexts = {party: make(ends[party]) for party, (make, _) in programs.items()}

    def live(party: str) -> None:
        ctx = contexts[party]
        try:
            results[party] = programs[party][1](ctx)
        except BaseException as error:
            errors[party] = error
            ctx.fail(error)
        try:
            ctx.close()
        except BaseException as error:  # such as a full disk
            errors.setdefault(party, error)
            ctx.fail(error)
        ended[party].set()

    threads = {
        party: threading.Thread(target=live, args=(party,), name=f"party-{party}", daemon=True) for party in programs
    }
    try:
        for thread in threads.values():
            thread.start()
        for event in ended.values():
            while not event.wait(0.2):  # an unlimited wait would not react to Ctrl-C
                pass
    except BaseException as error:
        for end in ends.values():
            end.fail(Failure("peer-failed", type(error).__name__))
        for party, thread in threads.items():
            if thread.ident is not None:  # it was started
                ended[party].wait(10.0)  # not join(): a second Ctrl-C would make it regard a live thread as dead
        raise
    if errors:
        first = [error for error in errors.values() if not isinstance(error, PeerError)]
        raise (first or list(errors.values()))[0]
    return results
