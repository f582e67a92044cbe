"""Small trainings of Pivot, and shares of several parties in one thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from labelward.data import RawTables, VerticalDataset, as_table, load_dataset, loading
from labelward.federation.components import check_job, make_engine, model_family, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import Job, parse_job
from labelward.party.context import no_progress
from labelward.protocols.pivot.arithmetic import SharedArithmetic
from labelward.protocols.pivot.dealt_shares import Words, corrections, drawn
from labelward.rng import PrivateSeed

PARTIES = {"active": 0.34, "telco": 0.33, "shop": 0.33, "dealer": 0}
PLAIN = {"engine": "plain", "insecure": True}
SMALL_KEY = {"engine": "paillier", "bits": 512, "insecure": True}
T = TypeVar("T")


def job_of(
    table: str = "breast_cancer",
    parties: Mapping[str, Any] = PARTIES,
    encryption: Mapping[str, Any] = PLAIN,
    **model: Any,
) -> Job:
    """Return a job in which the party called dealer deals."""
    label = {"label": "label"} if table == "made" else {}
    spec = {"kind": "pivot", "dealer": "dealer", **model}
    section = {"table": "made.csv" if label else table, **label}
    return with_defaults(
        parse_job({"data": section, "parties": dict(parties), "model": spec, "encryption": dict(encryption)})
    )


def data_of(
    job: Job, *, rows: int | None = None, made: Mapping[str, Any] | None = None, seed: int = 1
) -> VerticalDataset:
    """Return the data of a job: the first rows of its table, or columns that a test makes; draws are fixed."""
    if made is not None:
        source = RawTables(name="made", tables=(as_table(dict(made)),))
    else:
        source = loading.load_tables(job)
        if rows is not None:
            source = RawTables(name=source.name, tables=(source.tables[0].slice(0, rows),))
    seeds = {party.name: PrivateSeed(party.name.encode().ljust(32)) for party in job.parties}
    return load_dataset(job, seed, source, private=seeds)


def trained(job: Job, data: VerticalDataset, **options: Any) -> SimulationResult:
    """Return the outcome of a training in this process."""
    check_job(job)
    model_family(job.model).check(data, {})
    engine = make_engine(job.encryption)
    try:
        return simulate_job(job, data, job.variants()[-1], engine, None, seed=1, progress=no_progress, **options)
    finally:
        engine.close()


class Together(SharedArithmetic):
    """One of several parties in threads, with what a dealer would deal.

    Args:
        hall: what has been sent, by receiver, sender and step.
    """

    def __init__(self, place: int, seeds: Sequence[bytes], hall: Hall) -> None:
        self.parties = tuple(map(str, range(len(seeds))))
        self.peers = tuple(party for party in self.parties if party != str(place))
        self.leads, self._own = place == 0, str(place)
        self._seeds, self._seed, self._hall = seeds, seeds[place], hall
        self._number = self._requests = 0

    def _dealt(self, *needed: tuple[str, int]) -> list[Words]:
        number, self._requests = self._requests << 8, self._requests + 1
        parts = [drawn(self._seed, kind, number + at, count) for at, (kind, count) in enumerate(needed)]
        if self.leads:
            for at, (kind, count) in enumerate(needed):
                parts[at] = np.concatenate([parts[at][:-1], corrections(self._seeds, kind, number + at, count)[None]])
        return parts

    def _exchanged(self, shares: Words) -> list[Words]:
        return self._hall.exchange(self._own, self.next_step(), shares)

    def _to_first(self, shares: Words) -> list[Words] | None:
        found = self._hall.exchange(self._own, self.next_step(), shares)
        return found if self.leads else None


class Hall:
    """Where parties in threads lay down their shares and wait for those of the others; ``opened``: all of them."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=60)
        self._lock = threading.Lock()
        self.opened: dict[tuple[int], dict[str, Words]] = {}

    def exchange(self, party: str, step: tuple[int], shares: Words) -> list[Words]:
        with self._lock:
            self.opened.setdefault(step, {})[party] = shares
        self._barrier.wait()
        return [self.opened[step][name] for name in sorted(self.opened[step])]


def together(parties: int, program: Callable[[Together, int], T], hall: Hall | None = None, seed: int = 0) -> list[T]:
    """Run a program of shares at all parties; it takes the party's arithmetic and its place."""
    where = hall or Hall(parties)
    seeds = [np.random.default_rng([seed, place]).bytes(32) for place in range(parties)]
    results: dict[int, Any] = {}

    def run(place: int) -> None:
        results[place] = program(Together(place, seeds, where), place)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[place] for place in range(parties)]


def divided(values: np.ndarray, parties: int, seed: int = 7) -> list[Words]:
    """Return random shares of int64 values."""
    rng = np.random.default_rng(seed)
    whole = values.astype(np.int64).view(np.uint64)
    shares = [rng.integers(0, 1 << 64, size=values.shape, dtype=np.uint64) for _ in range(parties - 1)]
    return [*shares, whole - np.sum(shares, axis=0, dtype=np.uint64)]


def table_of(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as an Arrow table."""
    return as_table(dict(columns))
