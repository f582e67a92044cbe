"""An audit: every seed and every variant trained, the views of all parties attacked, one row for each; resumable.

A row counts once it is on the disk; a training counts once its ``run.json`` and all its rows are. What a killed audit
left of an unfinished training is removed and done again, so that starting the same command twice gives the same rows as
once.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from labelward.attacks import ATTACKS
from labelward.attacks.base import UPPER_BOUND, Attack, AttackerData, Guess, LabelGuess
from labelward.attacks.instance_spaces import observed_leaves
from labelward.auditing.measure import (
    AttackedTraining,
    AttackedView,
    StoredTraining,
    attack_training,
    attackers_of,
    directed_parties,
    own_data,
    run_training,
)
from labelward.auditing.traffic import wire_flows
from labelward.data import RawTables, VerticalDataset, load_dataset, load_tables, warn_of_label_proxies
from labelward.defenses import DEFENSES
from labelward.defenses.leakage_meter import LeakageMeter
from labelward.errors import DataError, InputError, JobError, LabelwardError, OutputError, unknown_name
from labelward.federation.components import (
    attacking_parties,
    check_job,
    job_engine,
    make_attack,
    model_family,
    with_defaults,
    with_standing,
)
from labelward.federation.leakage_monitor import measure_view, monitored_chains, readings_of
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import (
    VIEW,
    SimulationResult,
    insecure_reasons,
    key_info,
)
from labelward.federation.train import costs_of_engines
from labelward.he import Engine
from labelward.job import ComponentSpec, Job, Variant, as_job
from labelward.leakage.attributes import check_attribute, known_attribute
from labelward.leakage.embeddings import Explainer
from labelward.leakage.known_rows import sample_known_rows
from labelward.leakage.privacy_figures import PrivacyScorer, ViewGuess
from labelward.leakage.run_attack import (
    check_own_metrics,
    check_rows_of_classes,
    score_baselines,
    score_without_view,
    told_column,
)
from labelward.metrics.utility import Baselines, baselines, utility
from labelward.parameters import StrPath, as_path, as_paths, check_instance
from labelward.party.joined_view import SEPARATOR
from labelward.party.transcript import FILE_NAME
from labelward.party.view import View
from labelward.planning.cost_model import CostModel, cost_model, estimate_or_none, forecast
from labelward.policy.base import Policy
from labelward.protocols.family import ModelFamily
from labelward.runs.directory import (
    check_output,
    check_source,
    locked_output,
    source_digests,
    store_data,
    store_source,
    stored_job,
)
from labelward.runs.diverged_runs import DivergedRun, read_diverged, write_diverged
from labelward.runs.estimate import Estimate
from labelward.runs.malicious_runs import MaliciousRun, malicious_behavior, malicious_runs
from labelward.runs.private_seeds import PRIVATE_FILE, Seeds, keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.provenance import library_versions, processor
from labelward.runs.schema import (
    RESULTS_FILE,
    AttackAccount,
    EngineInfo,
    MeterReading,
    ResultRow,
    RunDetails,
    VisibilityCounts,
    append_row,
    budget_texts,
    defense_label,
    read_rows,
    read_run,
    replace_rows,
    run_folder,
    write_run,
)
from labelward.runs.secure_files import private_folder
from labelward.runs.short_names import variant_without_defaults, without_defaults


def audit(
    job: Job,
    out: StrPath,
    *,
    force: bool = False,
    watch: Watch = no_log,
    explained: bool = True,
    attackers: Sequence[str] = (),
    repeat: Sequence[StrPath] = (),
    attacks: Sequence[Attack] = (),
    defenses: Sequence[Policy] = (),
) -> list[ResultRow]:
    """Run what a job asks for, or what is missing of it, and return all rows.

    In the folder of an earlier audit, what is stored counts: a job may have more seeds, defenses and attacks than were
    asked for before. Attacks that are new run on the stored views, and those that were asked for before stay.

    A run that a defense or an active attacker breaks, so that its numbers are not finite any more, has no rows; its
    folder says why (:mod:`labelward.runs.diverged_runs`), and it is not tried again.

    Args:
        out: a new folder, or that of an audit of a job that differs in seeds, defenses and attacks only.
        force: clear a folder of an audit of any job first.
        watch: hears how far it is.
        explained: look at what the bottom models of the first seed's runs learned, where the model has any.
        attackers: the parties that attack; all that the job's attacks name where none is named.
        repeat: folders of earlier runs whose private draws, such as which rows are tested on, are repeated.
        attacks: further attacks, of labelward or of one's own; the classes need not be in any list.
        defenses: further defenses, likewise; each alone.

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: a defense does not fit model or data.
        EncryptionError: the engine does not offer the key's size.
        JobError, DataError: an honest training without a defense diverged.
    """
    out, repeat = as_path("out", out), as_paths("repeat", repeat)
    job = with_defaults(_with_objects(as_job(job), attacks, defenses))
    check_job(job)
    known = {party.name for party in job.parties}
    known.update(party for attack in job.attacks for party in attacking_parties(job, attack))
    for name in attackers:
        if name not in known:
            reason = unknown_name("attacker", name, known)
            raise JobError(reason, code="unknown", field="attackers", value=name)
    check_output(out, job, "audit", force=force)
    stored = None if force else stored_job(out)
    begun = () if stored is None else _asked_attacks(stored)
    whole = job if stored is None else _grown(stored, begun, job)
    job = dataclasses.replace(
        job,
        attacks=whole.attacks,
        run=dataclasses.replace(job.run, seeds=tuple(seed for seed in whole.run.seeds if seed in job.run.seeds)),
    )
    check_job(whole)
    source = load_tables(job)
    private = resolve_seeds([party.name for party in job.parties], None if force else out, repeat)
    first = load_dataset(job, job.run.seeds[0], source, private=private)
    _check_data(job, first)
    _check_known(job, first, begun)
    warn_of_label_proxies(first)
    directed = directed_parties(first)  # by share, the seed decides who has a column
    for seed in job.run.seeds[1:]:  # refuse an unusable draw before anything is written
        drawn = load_dataset(job, seed, source, private=private)
        _check_known(job, drawn, begun)
        directed |= directed_parties(drawn)
    _check_directions(job, directed)
    listed, digests = with_standing(job, len(first.ids), len(first.classes)), source_digests(source.tables)
    if not force:
        check_source(out, digests)  # before the job in the folder is replaced
    with locked_output(out, whole, force=force):
        _check_begun(out)
        store_source(out, digests)
        private = keep_seeds(out, private)
        with closing(job_engine(job)) as engine:
            _Audit(job, out, source, private, listed, engine, watch, explained, tuple(attackers), directed).run()
        return read_rows(out)


def _with_objects(job: Job, attacks: Sequence[Attack], defenses: Sequence[Policy]) -> Job:
    """Return a job with further attacks and defenses, whose classes its names find from now on in this process."""
    for attack in attacks:
        check_instance("attacks", attack, Attack, "an object, with its parameters")
        ATTACKS.add(type(attack))
    for defense in defenses:
        check_instance("defenses", defense, Policy, "an object, with its parameters")
        DEFENSES.add(type(defense))
    return dataclasses.replace(
        job,
        attacks=(*job.attacks, *(ComponentSpec(each.kind, each.parameters()) for each in attacks)),
        defenses=(*job.defenses, *(Variant((ComponentSpec(each.kind, each.parameters()),)) for each in defenses)),
    )


def _grown(stored: Job, attacks: Sequence[ComponentSpec], job: Job) -> Job:
    """Return a job with the seeds, defenses and attacks that an audit was asked for before, these first."""
    earlier = with_defaults(dataclasses.replace(stored, attacks=()))
    seeds = dict.fromkeys((*earlier.run.seeds, *job.run.seeds))
    return dataclasses.replace(
        job,
        defenses=(*earlier.defenses, *(each for each in job.defenses if each not in earlier.defenses)),
        attacks=tuple(dict.fromkeys((*attacks, *job.attacks))),
        run=dataclasses.replace(job.run, seeds=tuple(seeds)),
    )


def _asked_attacks(stored: Job) -> tuple[ComponentSpec, ...]:
    """Return the attacks that an audit was asked for before, completed."""
    attacks = {  # one by one: two that a development version told apart may be the same
        attack: None
        for each in stored.attacks
        for attack in with_defaults(dataclasses.replace(stored, attacks=(each,))).attacks
    }
    return tuple(attacks)


def _check_begun(out: Path) -> None:
    """Refuse an audit of a version that drew the sides of the rows from the labels and the shared seed."""
    if (out / RESULTS_FILE).exists() and not stored_seeds(out):
        if any(row.versions.get("labelward", "").startswith("0.1.") for row in read_rows(out)):
            reason = (
                "this audit is from a version whose split leaked the labels and cannot be resumed; what is there "
                "can be reported and attacked. Choose another folder, or --force to begin anew"
            )
        else:
            reason = f"{PRIVATE_FILE} of this audit is missing; put it back, or begin anew in another folder"
        raise OutputError(reason, code="other-run", field=str(out))


def _check_data(job: Job, data: VerticalDataset) -> None:
    programs = model_family(job.model)
    for variant in job.variants():
        programs.check(data, monitored_chains(job, data, variant, seed=job.run.seeds[0]))
    for number, attack in enumerate(job.attacks, 1):
        made = make_attack(attack)
        try:
            check_own_metrics(made)
            made.check_labels(len(data.ids), len(data.classes))
            told = data.train_labels if made.known_column is None else told_column(made, data)
            sample_known_rows(told, made.labels_needed, seed=job.run.seeds[0])
            if made.attribute is not None:
                attackers = [name for each in attacking_parties(job, attack) for name in each.split(SEPARATOR)]
                check_attribute(made, data, attackers, seed=job.run.seeds[0])
        except InputError as error:
            raise error.under(f"[[attack]] {number}:").translated(JobError) from error
    for party in data.parties:
        if party.name.lower() == "truth" or party.name.lower().startswith("known-"):
            raise JobError(
                "the name is taken (the audit keeps true labels under it)",
                code="conflict",
                field=f"[parties] {party.name}",
                value=party.name,
            )
        if "id" in party.columns:
            raise DataError(
                "column 'id' would be taken for the row ids; name it under id in [data], or rename it",
                code="columns",
                field=f"party {party.name!r}",
                value="id",
            )


def _check_known(job: Job, data: VerticalDataset, begun: Sequence[ComponentSpec]) -> None:
    """Refuse attacks that know all rows of a class, but for those of an audit that an earlier version began."""
    for number, attack in enumerate(job.attacks, 1):
        if attack not in begun:
            try:
                check_rows_of_classes(make_attack(attack), data, attacking_parties(job, attack))
            except InputError as error:
                raise error.under(f"[[attack]] {number}:").translated(JobError) from error


def _check_directions(job: Job, directed: frozenset[str]) -> None:
    """Refuse an attack on splits of columns with a monotone constraint by parties that have none."""
    for number, attack in enumerate(job.attacks, 1):
        if make_attack(attack).reads_directions and not attackers_of(job, [attack], directed=directed):
            parties = " and ".join(attacking_parties(job, attack))
            reason = f"no column of {parties} has a monotone constraint; set monotone for one, or remove the attack"
            raise JobError(reason, code="conflict", field=f"[[attack]] {number}", value=attack.kind)


@dataclass(frozen=True)
class _Seed:
    """What all trainings of a seed share."""

    seed: int
    data: VerticalDataset
    beside: Baselines
    upper_bound: bool
    explainer: Explainer
    prospect: CostModel | None
    scorer: PrivacyScorer | None
    comparisons: dict[tuple[str, ComponentSpec], tuple[tuple[Guess, ...], dict[str, Any]]] = field(default_factory=dict)
    bounds: dict[Hashable, Guess] = field(default_factory=dict)

    def compared(
        self, name: ComponentSpec, attack: Attack, view: View, own: AttackerData
    ) -> tuple[tuple[Guess, ...], dict[str, Any]]:
        """Return what an attack is compared with, none of which depends on the view: worked out once for a party.

        That is what it reaches without the view, and other ways to the labels with what the attacker knows: guesses,
        without those that use labels of all rows, and metrics.
        """
        key = (view.party, name)
        if key not in self.comparisons:
            blind = score_without_view(attack, view, self.data, seed=self.seed, own=own)
            beside = score_baselines(
                attack, view, self.data, seed=self.seed, own=own, upper_bound=self.upper_bound, cache=self.bounds
            )
            guesses = (blind.guess, *(each.guess for kind, each in beside.items() if kind != UPPER_BOUND))
            figures: dict[str, Any] = {"without_view": blind.metrics}
            if beside:
                figures["beside"] = {kind: each.metrics for kind, each in beside.items()}
            self.comparisons[key] = guesses, figures
        return self.comparisons[key]

    def privacy(self, view: View, attacks: list[ViewGuess], variant: Variant) -> list[dict[str, Any]]:
        """Return the figures of privacy of each attack on a party's view; empty ones if the job wants none."""
        if self.scorer is None:
            return [{} for _ in attacks]
        delta = max((each.params.get("delta") or 0.0 for each in variant.chain), default=0.0)
        return self.scorer.score(view, attacks, delta=delta)


@dataclass(frozen=True)
class _Run:
    """A training that came to its end, and where it is kept."""

    at: _Seed
    deviation: MaliciousRun | None
    folder: Path
    training: AttackedTraining
    estimate: Estimate | None
    engines: str  # what the training would cost under each engine, where ``auto`` chose one


@dataclass
class _Audit:
    """The loop over seeds and variants."""

    job: Job
    out: Path
    source: RawTables
    private: Seeds
    attacks: tuple[ComponentSpec, ...]
    engine: Engine
    watch: Watch
    explained: bool
    attackers: tuple[str, ...]
    directed: frozenset[str]
    done: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Do what is missing."""
        self.done = {row.key() for row in read_rows(self.out)}
        runs: list[MaliciousRun | None] = [
            None,
            *malicious_runs((party, make_attack(attack)) for party, attack in self._attacking),
        ]
        units = [
            (seed, variant, each) for seed in self.job.run.seeds for variant in self.job.variants() for each in runs
        ]
        missing = [unit for unit in units if not self._finished(*unit)]
        finished, total = len(units) - len(missing), len(units)
        current: _Seed | None = None
        for seed, variant, deviation in missing:
            self.watch("runs", finished, total, _label(variant, seed, deviation))
            if current is None or current.seed != seed:
                current = self._prepare(seed)
            earlier = self._earlier(seed, variant, deviation)
            if earlier:
                self._attack_stored(current, variant, deviation, earlier)
            else:
                self._train(current, variant, deviation)
            finished += 1
        self.watch("runs", finished, total, "")

    @cached_property
    def engine_info(self) -> EngineInfo:
        """The encryption, as rows hold it."""
        bits = self.engine.key_bits(self.job.encryption.bits)
        return EngineInfo(
            name=self.engine.name,
            bits=bits,
            insecure=bool(insecure_reasons(self.engine, self.job.encryption)),
            security_level=self.engine.security_level(bits),
        )

    @cached_property
    def programs(self) -> ModelFamily[Any]:
        """How the model is run."""
        return model_family(self.job.model)

    @cached_property
    def _attacking(self) -> list[tuple[str, ComponentSpec]]:
        """Who attacks how, by party."""
        return attackers_of(self.job, self.attacks, self.attackers, directed=self.directed)

    def _finished(self, seed: int, variant: Variant, deviation: MaliciousRun | None) -> bool:
        keys = {self._row(seed, variant, party, attack).key() for party, attack in self._attackers(deviation)}
        slug = "" if deviation is None else deviation.slug
        if read_diverged(run_folder(self.out, variant.as_list(), seed, slug)) is not None:
            return True
        return keys <= self.done and read_run(self.out, variant.as_list(), seed, slug) is not None

    def _attackers(self, deviation: MaliciousRun | None) -> list[tuple[str | None, ComponentSpec | None]]:
        """Return who attacks how, once for each row of a training; an honest run has a row at least."""
        wanted = None if deviation is None else deviation.behavior
        found: list[tuple[str | None, ComponentSpec | None]] = [
            (party, attack)
            for party, attack in self._attacking
            if malicious_behavior(make_attack(attack)) == wanted and (deviation is None or deviation.party == party)
        ]
        return found or [(None, None)]

    def _row(
        self, seed: int, variant: Variant, party: str | None, attack: ComponentSpec | None, **figures: Any
    ) -> ResultRow:
        """Return a row; without figures only its key means anything."""
        nothing: dict[str, Any] = {"leakage": None, "utility": {}, "cost": None, "versions": {}}
        behavior = None if attack is None else make_attack(attack).behavior
        return ResultRow(
            dataset=self.source.name,
            model=self.job.model.as_dict(),
            engine=self.engine_info,
            seed=seed,
            defense=tuple(variant.as_list()),
            party=party,
            coalition=tuple(party.split(SEPARATOR)) if party and SEPARATOR in party else UNSET,
            attack=None if attack is None else attack.as_dict(),
            behavior=behavior,
            budgets=budget_texts(variant.as_list()) or UNSET,
            **{**nothing, **figures},
        )

    def _prepare(self, seed: int) -> _Seed:
        data = load_dataset(self.job, seed, self.source, private=self.private)
        made = [make_attack(attack) for attack in self.attacks]
        counts = {each.labels_needed for each in made if each.known_column is None}
        known = [sample_known_rows(data.train_labels, count, seed=seed) for count in sorted(counts)]
        told = ((each.attribute, known_attribute(each, data, seed=seed)) for each in made)
        values = [(of[0], it.known_rows, it.known_labels) for of, it in told if of is not None and it is not None]
        store_data(self.out, data, seed, known, values)
        beside = baselines(self.programs, data, seed=seed, precision=self.job.encryption.precision)
        explainer = Explainer(self.programs, data, seed, self.private[self.job.active.name])
        prospect = cost_model(self.job, data, self.engine, seed)
        scorer = PrivacyScorer(data, seed) if self.job.leakage.privacy else None
        return _Seed(seed, data, beside, self.job.leakage.upper_bound, explainer, prospect, scorer)

    def _train(self, at: _Seed, variant: Variant, deviation: MaliciousRun | None) -> None:
        folder = run_folder(self.out, variant.as_list(), at.seed, "" if deviation is None else deviation.slug)
        try:
            shutil.rmtree(folder, ignore_errors=False)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OutputError(
                f"files of an earlier attempt cannot be removed ({error.strerror})",
                code="unwritable",
                field=str(folder),
            ) from error
        for parent in (folder.parent.parent, folder.parent):
            private_folder(parent)
        detail = _label(variant, at.seed, deviation)
        policies = monitored_chains(self.job, at.data, variant, seed=at.seed)[self.job.active.name]
        estimate = estimate_or_none(at.prospect, policies)
        engines = costs_of_engines(self.job, at.data, variant, at.seed, forecast, estimate)
        try:
            training = run_training(
                self.job,
                at.data,
                variant,
                self.engine,
                folder,
                seed=at.seed,
                watch=self.watch,
                detail=detail,
                deviation=deviation,
            )
        except LabelwardError as error:
            if error.code != "diverged" or (deviation is None and not variant.chain):
                raise  # all others are compared with the honest, undefended run
            self._diverged(folder, at.seed, variant, deviation, error)
            return
        run = _Run(at, deviation, folder, training, estimate, engines)
        worth = utility(self.programs, training.ended.margins, at.data, at.beside)
        rows, accounts = self._attack(run, utility=worth, cost=training.ended.cost)
        if self.explained and at.seed == self.job.run.seeds[0]:
            self.watch("explanations", 0, 0, detail)
            passive = [each.name for each in self.job.passive if not self.attackers or each.name in self.attackers]
            shown = passive if deviation is None else (deviation.party,)
            private = any(each.label_private or each.promise is not None for each in policies)
            at.explainer.explain(folder, shown, rows_shown=not private)
        write_run(self.out, self._details(run, training.ended, accounts))
        for row in rows:
            if row.key() not in self.done:
                append_row(self.out, row)
                self.done.add(row.key())

    def _diverged(
        self, folder: Path, seed: int, variant: Variant, deviation: MaliciousRun | None, error: LabelwardError
    ) -> None:
        """Store that a defense or a deviating party broke the training: no model, and no view that is whole."""
        self.watch("diverged", 0, 0, _label(variant, seed, deviation))
        shutil.rmtree(folder, ignore_errors=True)
        private_folder(folder)
        run = DivergedRun(
            party=None if deviation is None else deviation.party,
            behavior=None if deviation is None else deviation.behavior.as_dict(),
            defense=defense_label(variant.as_list()),
            seed=seed,
            reason=error.reason,
        )
        write_diverged(folder, run)

    def _earlier(self, seed: int, variant: Variant, deviation: MaliciousRun | None) -> list[ResultRow]:
        """Return the stored rows of a training that came to its end; empty if it did not."""
        slug = "" if deviation is None else deviation.slug
        if read_run(self.out, variant.as_list(), seed, slug) is None:
            return []
        found = (row for row in read_rows(self.out) if (row.seed, list(row.defense)) == (seed, variant.as_list()))
        return [
            row
            for row in found
            if deviation == (MaliciousRun.of(row.party, row.behavior) if row.party and row.behavior else None)
        ]

    def _attack_stored(
        self, at: _Seed, variant: Variant, deviation: MaliciousRun | None, earlier: Sequence[ResultRow]
    ) -> None:
        """Attack the stored views of a training again, with all attacks: figures of privacy depend on all of them."""
        slug = "" if deviation is None else deviation.slug
        details = read_run(self.out, variant.as_list(), at.seed, slug)
        assert details is not None
        folder = run_folder(self.out, variant.as_list(), at.seed, slug)
        training = StoredTraining.load(self.job, at.data, variant, folder, seed=at.seed)
        run = _Run(at, deviation, folder, training, None, "")
        rows, accounts = self._attack(run, utility=earlier[0].utility, cost=earlier[0].cost)
        write_run(self.out, replace(details, attacks=tuple(accounts)))
        replace_rows(self.out, {row.key() for row in (*earlier, *rows)}, rows)
        self.done |= {row.key() for row in rows}

    def _attack(self, run: _Run, **common: Any) -> tuple[list[ResultRow], list[AttackAccount]]:
        """Run all attacks on a training; ``common``: utility and cost, which its rows share."""
        accounts: list[AttackAccount] = []
        leakages: dict[tuple[str | None, ComponentSpec | None], Any] = {}
        guesses: dict[str, list[tuple[ComponentSpec, ViewGuess]]] = {}
        at, training = run.at, run.training
        versions = library_versions(self.programs.libraries)
        attackers = self._attackers(run.deviation)
        present = [(party, attack) for party, attack in attackers if party is not None and attack is not None]
        for each in self._attacked(run, present):
            party, attack, found, made = each.party, each.attack, each.result, make_attack(each.attack)
            blind, compared = at.compared(attack, made, training.view(party), each.own)
            leakages[party, attack] = {**found.leakage, **compared}
            if isinstance(found.guess, LabelGuess) and party not in at.data.holders:
                without = tuple(each for each in blind if isinstance(each, LabelGuess))
                guess = ViewGuess(attack=made, own=each.own, guess=found.guess, blind=without)
                guesses.setdefault(party, []).append((attack, guess))
            accounts.append(
                AttackAccount(
                    party=party,
                    attack=attack.as_dict(),
                    auxiliary=found.auxiliary,
                    notes=found.notes,
                    seconds=found.seconds,
                )
            )
        for party, attacked in guesses.items():
            figures = at.privacy(training.view(party), [each for _, each in attacked], training.variant)
            for (attack, _), of_attack in zip(attacked, figures, strict=True):
                leakages[party, attack].update(of_attack)
        common["versions"] = versions
        rows = [self._row(at.seed, training.variant, *each, leakage=leakages.get(each), **common) for each in attackers]
        return rows, accounts

    def _attacked(self, run: _Run, attackers: Sequence[tuple[str, ComponentSpec]]) -> Iterator[AttackedView]:
        """Yield the attacks on a run as they end."""
        for number, (party, attack) in enumerate(attackers):
            self.watch("attacks", number, len(attackers), f"{without_defaults(attack).label} by {party}")
            yield from attack_training(run.training, [(party, attack)], lambda each: self._other_views(run, each))

    def _other_views(self, run: _Run, party: str) -> tuple[View, ...]:
        """Return the party's views of the same variant with earlier seeds, as far as they are stored."""
        if run.deviation is not None:
            return ()
        earlier = self.job.run.seeds[: self.job.run.seeds.index(run.at.seed)]
        folders = [run_folder(self.out, run.training.variant.as_list(), seed) / party / VIEW for seed in earlier]
        return tuple(View.load(folder) for folder in folders if (folder / FILE_NAME).exists())

    def _details(self, run: _Run, ended: SimulationResult, accounts: list[AttackAccount]) -> RunDetails:
        at, views = run.at, run.training.views
        active = at.data.parties[0].name
        applied = [(party, each) for party in views for each in views[party].applied() if each["stage"] == "end"]
        off = run.deviation
        return RunDetails(
            seed=at.seed,
            defense=tuple(run.training.variant.as_list()),
            wire=wire_flows(
                [(party, run.folder / party / VIEW) for party in views], active=active, secure=self.engine.secure
            ),
            phases={party: dict(meter.seconds) for party, meter in ended.meters.items()},
            key=key_info(self.engine, self.job.encryption, ended.fingerprint, beside=run.engines),
            seen=self._seen(run),
            applied=tuple(
                ({} if party == active else {"party": party}) | _account(each)
                for party, each in applied
                if each["kind"] != LeakageMeter.kind
            ),
            processor=processor(),
            duration=ended.cost.seconds,
            test_rows=len(at.data.test_labels),
            attacks=tuple(accounts),
            meter={party: read for _, each in applied for party, read in readings_of(each).items()}
            | self._coalition_readings(run),
            deviation=None if off is None else {"party": off.party, **off.behavior.as_dict()},
            estimate=run.estimate,
        )

    def _coalitions(self, run: _Run) -> list[str]:
        """Return the coalitions that attack the views of a run."""
        attacking = dict.fromkeys(party for party, _ in self._attacking if SEPARATOR in party)
        return list(attacking) if run.deviation is None else []

    def _coalition_readings(self, run: _Run) -> dict[str, tuple[MeterReading, ...]]:
        """Return what the meter reads of each coalition at the end; during training it reads single parties."""
        if not (self.programs.metered and self.job.leakage.meter):
            return {}
        found: dict[str, tuple[MeterReading, ...]] = {}
        for party in self._coalitions(run):
            view = run.training.view(party)
            read = measure_view(view, run.at.data.train_labels, seed=run.at.seed)
            found[party] = (MeterReading(trees=len(observed_leaves(view)), **dataclasses.asdict(read)),)
        return found

    def _seen(self, run: _Run) -> dict[str, VisibilityCounts]:
        """Return what each party saw, and what the coalitions that attack saw together."""
        found = {}
        for party in (*run.training.views, *self._coalitions(run)):
            own = own_data(run.at.data, party)
            seen = self.programs.visibility(run.training.view(party), own, run.at.data.train_labels)
            found[party] = replace(seen, columns=len(own.columns))
        return found


def _label(variant: Variant, seed: int, deviation: MaliciousRun | None) -> str:
    """Return the name of a run in progress reports."""
    more = "" if deviation is None else f", {deviation.label}"
    return f"{variant_without_defaults(variant).label}{more}, seed {seed}"


def _account(applied: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's account as one flat object."""
    nested = applied.get("parameters", {})
    return {
        "kind": applied["kind"],
        **nested,
        **{k: v for k, v in applied.items() if k not in ("parameters", "points", "stage", "readings")},
    }
