"""An audit: every seed and every variant trained, every passive party's view attacked, one row for each; resumable.

A row counts once it is on the disk; a training counts once its ``run.json`` and all its rows are. What a killed audit
left of an unfinished training is removed and done again, so that starting the same command twice gives the same rows as
once.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from labelward.data import Rehearsal, Source, load_source, prepare
from labelward.defenses.leakage_meter import LeakageMeter
from labelward.errors import DataError, JobError, OutputError, PolicyError
from labelward.evaluate.attacking import attack_and_score, score_without_view
from labelward.evaluate.folder import check_output, claimed, store_data
from labelward.evaluate.kinds import check_job, completed, make_attack, make_engine, make_policies, make_programs
from labelward.evaluate.metering import metered, readings_of
from labelward.evaluate.names import brief, brief_variant
from labelward.evaluate.private import private_folder
from labelward.evaluate.rehearse import VIEW, Finished, Protections, insecurities, key_bits, key_info, rehearse
from labelward.evaluate.results import (
    AttackAccount,
    EngineInfo,
    ResultRow,
    RunDetails,
    Seen,
    append_row,
    read_rows,
    read_run,
    run_folder,
    write_run,
)
from labelward.evaluate.utility import Baselines, baselines, utility
from labelward.evaluate.watch import Watch, silent
from labelward.evaluate.wire import wire_flows
from labelward.he import Engine
from labelward.job import Job, Kind, Variant
from labelward.party.view import View
from labelward.rng import Protection

__all__ = ["audit", "library_versions", "processor"]


def audit(
    job: Job, out: Path, *, force: bool = False, watch: Watch = silent, protections: Protections = Protection
) -> list[ResultRow]:
    """Run what a job asks for, or what is missing of it, and return all rows.

    Args:
        out: a new folder, or that of an audit of the same job, which is gone on with.
        force: clear a folder of an audit of any job first.
        watch: hears how far it is.
        protections: where keys come from; a seeded source is refused.

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: a defense does not fit model or data, or ``protections`` are seeded.
        EncryptionError: the engine does not offer the key's size.
    """
    if protections().seeded:
        raise PolicyError(
            "an audit needs unpredictable keys; a seeded source of protection is for tests of protocols only"
        )
    job = completed(job)
    check_job(job)
    check_output(out, job, "audit", force=force)
    source = load_source(job)
    _check_data(job, prepare(job, job.run.seeds[0], source))
    with claimed(out, job, force=force):
        engine = make_engine(job.encryption)
        try:
            _Audit(job, out, source, engine, watch, protections).run()
        finally:
            engine.close()
        return read_rows(out)


def library_versions() -> dict[str, str]:
    """Return the versions that figures depend on."""
    libraries = ("labelward", "numpy", "scipy", "scikit-learn", "numba", "gmpy2", "pyarrow", "msgspec")
    return {"python": platform.python_version(), **{name: version(name) for name in libraries}}


def processor() -> str:
    """Return the machine's processor in words, with the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:  # another system than Linux
        pass
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}"


def _check_data(job: Job, data: Rehearsal) -> None:
    programs = make_programs(job.model)
    for variant in job.variants():
        programs.check(data, metered(job, data, make_policies(variant), seed=job.run.seeds[0]))
    for party in data.parties:
        if party.name.lower() == "truth":
            raise JobError(f"[parties] {party.name}: the name is taken (the audit keeps the true labels under it)")
        if "id" in party.columns:
            raise DataError(
                f"party {party.name!r}: column 'id' would be taken for the row ids; "
                "name it under id in [data], or rename it"
            )


@dataclass(frozen=True)
class _Seed:
    """What all trainings of a seed share."""

    seed: int
    data: Rehearsal
    beside: Baselines
    without_view: dict[tuple[str, Kind], dict[str, float]] = field(default_factory=dict)

    def blind(self, attack: Kind, view: View) -> dict[str, float]:
        """Return what an attack reaches without the view: the same for every variant, so worked out once."""
        key = (view.party, attack)
        if key not in self.without_view:
            self.without_view[key] = score_without_view(make_attack(attack), view, self.data, seed=self.seed)
        return self.without_view[key]


@dataclass
class _Audit:
    """The loop over seeds and variants."""

    job: Job
    out: Path
    source: Source
    engine: Engine
    watch: Watch
    protections: Protections
    done: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Do what is missing."""
        self.done = {row.key() for row in read_rows(self.out)}
        units = [(seed, variant) for seed in self.job.run.seeds for variant in self.job.variants()]
        missing = [unit for unit in units if not self._finished(*unit)]
        finished, total = len(units) - len(missing), len(units)
        current: _Seed | None = None
        for seed, variant in missing:
            self.watch("runs", finished, total, f"{brief_variant(variant).label}, seed {seed}")
            if current is None or current.seed != seed:
                current = self._prepare(seed)
            self._train(current, variant)
            finished += 1
        self.watch("runs", finished, total, "")

    @cached_property
    def engine_info(self) -> EngineInfo:
        """The encryption, as rows hold it."""
        bits = key_bits(self.engine, self.job.encryption)
        return EngineInfo(
            name=self.engine.name,
            bits=bits,
            insecure=bool(insecurities(self.engine, self.job.encryption)),
            security_level=self.engine.security_level(bits),
        )

    def _finished(self, seed: int, variant: Variant) -> bool:
        keys = {self._row(seed, variant, party, attack).key() for party, attack in self._attackers()}
        return keys <= self.done and read_run(self.out, variant.as_list(), seed) is not None

    def _attackers(self) -> list[tuple[str | None, Kind | None]]:
        """Return who attacks how, once for each row of a training."""
        found: list[tuple[str | None, Kind | None]] = [
            (party.name, attack) for party in self.job.passive for attack in self.job.attacks
        ]
        return found or [(None, None)]

    def _row(self, seed: int, variant: Variant, party: str | None, attack: Kind | None, **figures: Any) -> ResultRow:
        """Return a row; without figures only its key means anything."""
        nothing: dict[str, Any] = {"leakage": None, "utility": {}, "cost": None, "versions": {}}
        return ResultRow(
            dataset=self.source.name,
            model=self.job.model.as_dict(),
            engine=self.engine_info,
            seed=seed,
            defense=tuple(variant.as_list()),
            party=party,
            attack=None if attack is None else attack.as_dict(),
            **{**nothing, **figures},
        )

    def _prepare(self, seed: int) -> _Seed:
        data = prepare(self.job, seed, self.source)
        store_data(self.out, data, seed)
        beside = baselines(make_programs(self.job.model), data, seed=seed, precision=self.job.encryption.precision)
        return _Seed(seed, data, beside)

    def _train(self, at: _Seed, variant: Variant) -> None:
        folder = run_folder(self.out, variant.as_list(), at.seed)
        try:
            shutil.rmtree(folder, ignore_errors=False)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OutputError(f"{folder}: what an earlier attempt left cannot be removed ({error.strerror})") from error
        for parent in (folder.parent.parent, folder.parent):
            private_folder(parent)
        detail = f"{brief_variant(variant).label}, seed {at.seed}"
        ended = rehearse(
            self.job,
            at.data,
            make_policies(variant),
            self.engine,
            folder,
            seed=at.seed,
            progress=lambda what, done, total: self.watch(what, done, total, detail),
            protections=self.protections,
        )
        views = {party.name: View.load(folder / party.name / VIEW) for party in at.data.parties}
        for party, view in views.items():
            if view.ended != "complete":
                raise OutputError(
                    f"{folder / party / VIEW}: the view is {view.ended} after a whole run; is the disk full?"
                )
        rows, accounts = self._attack(at, variant, ended, views)
        write_run(self.out, self._details(at, variant, ended, views, accounts))
        for row in rows:
            if row.key() not in self.done:
                append_row(self.out, row)
                self.done.add(row.key())

    def _attack(
        self, at: _Seed, variant: Variant, ended: Finished, views: dict[str, View]
    ) -> tuple[list[ResultRow], list[AttackAccount]]:
        rows, accounts = [], []
        worth = utility(make_programs(self.job.model), ended.margins, at.data, at.beside)
        versions = library_versions()
        attackers = self._attackers()
        for number, (party, attack) in enumerate(attackers):
            leakage = None
            if party is not None and attack is not None:
                self.watch("attacks", number, len(attackers), f"{brief(attack).label} by {party}")
                found = attack_and_score(make_attack(attack), views[party], at.data, seed=at.seed)
                leakage = {**found.leakage, "without_view": at.blind(attack, views[party])}
                accounts.append(
                    AttackAccount(
                        party=party,
                        attack=attack.as_dict(),
                        auxiliary=found.auxiliary,
                        notes=found.notes,
                        seconds=found.seconds,
                    )
                )
            figures = {"leakage": leakage, "utility": worth, "cost": ended.cost, "versions": versions}
            rows.append(self._row(at.seed, variant, party, attack, **figures))
        return rows, accounts

    def _details(
        self, at: _Seed, variant: Variant, ended: Finished, views: dict[str, View], accounts: list[AttackAccount]
    ) -> RunDetails:
        active = at.data.parties[0].name
        folder = run_folder(self.out, variant.as_list(), at.seed)
        applied = [each for each in views[active].applied() if each["stage"] == "end"]
        return RunDetails(
            seed=at.seed,
            defense=tuple(variant.as_list()),
            wire=wire_flows(
                [(party, folder / party / VIEW) for party in views], active=active, secure=self.engine.secure
            ),
            phases={party: dict(meter.seconds) for party, meter in ended.meters.items()},
            key=key_info(self.engine, self.job.encryption, ended.fingerprint),
            seen=self._seen(at, views),
            applied=tuple(_account(each) for each in applied if each["kind"] != LeakageMeter.kind),
            processor=processor(),
            duration=ended.cost.seconds,
            test_rows=len(at.data.test_labels),
            attacks=tuple(accounts),
            meter={party: read for each in applied for party, read in readings_of(each).items()},
        )

    def _seen(self, at: _Seed, views: dict[str, View]) -> dict[str, Seen]:
        programs, found = make_programs(self.job.model), {}
        for party in at.data.parties:
            view = views[party.name]
            if view.header.role == "active":
                seen = programs.seen_by_active(view)
            else:
                seen = programs.seen_by_passive(view, party, at.data.train_labels)
            found[party.name] = replace(seen, columns=len(party.columns))
        return found


def _account(applied: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's account as one flat object."""
    nested = applied.get("parameters", {})
    return {
        "kind": applied["kind"],
        **nested,
        **{k: v for k, v in applied.items() if k not in ("parameters", "points", "stage", "readings")},
    }
