"""One training, attacked and scored: what an audit does for each seed and variant, and a search for each setting."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labelward.attacks.base import Attack, AttackerData
from labelward.attacks.coalition import joined_data
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import OutputError
from labelward.federation.components import (
    attacking_parties,
    bare_attack,
    check_job,
    job_engine,
    make_attack,
    model_family,
    with_defaults,
)
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import MODEL, VIEW, SimulationResult, simulate_job
from labelward.he import Engine
from labelward.job import ComponentSpec, Job, Variant, as_job
from labelward.leakage.run_attack import AttackResult, attack_and_score
from labelward.metrics.utility import utility_scores
from labelward.parameters import check_instance
from labelward.party.checkpoint import Checkpoints
from labelward.party.joined_view import SEPARATOR, JoinedView
from labelward.party.view import View
from labelward.protocols.family import PartyShare, attacker_data
from labelward.rng import PrivateSeed
from labelward.runs.checks import Metrics
from labelward.runs.malicious_runs import MaliciousRun, malicious_behavior
from labelward.runs.schema import Cost

OtherViews = Callable[[str], tuple[View, ...]]
"""Returns a party's views of the same variant with other seeds."""


@dataclass(frozen=True, kw_only=True)
class AttackedTraining(ABC):
    """A training that came to its end, with the views and the shares of all parties."""

    job: Job
    data: VerticalDataset
    seed: int
    variant: Variant
    views: Mapping[str, View]
    joined: dict[str, View] = field(default_factory=dict)

    @property
    @abstractmethod
    def shares(self) -> Mapping[str, PartyShare]:
        """By party its part of the model."""

    def view(self, party: str) -> View:
        """Return the view of a party, or of a coalition."""
        if SEPARATOR in party and party not in self.joined:
            self.joined[party] = JoinedView([self.views[member] for member in party.split(SEPARATOR)])
        return self.joined.get(party) or self.views[party]

    def attacker(self, party: str, attack: Attack, other_views: OtherViews | None = None) -> AttackerData:
        """Return what a party that attacks, alone or with others, has of its own."""
        programs, members = model_family(self.job.model), self.view(party).members
        found = {}
        for view in members:
            own = programs.own(view, own_data(self.data, view.party), self.shares[view.party])
            if attack.reads_other_runs and other_views is not None:
                own = dataclasses.replace(own, other_runs=other_views(view.party))
            found[view.party] = own
        return joined_data(list(found), list(found.values())) if len(found) > 1 else found[party]


@dataclass(frozen=True, kw_only=True)
class FinishedTraining(AttackedTraining):
    """A training that this process ran."""

    ended: SimulationResult

    @property
    def shares(self) -> Mapping[str, PartyShare]:
        """By party its part of the model."""
        return self.ended.shares


@dataclass(frozen=True, kw_only=True)
class StoredTraining(AttackedTraining):
    """A training that an earlier process ran, for further attacks."""

    stored: Mapping[str, PartyShare]

    @property
    def shares(self) -> Mapping[str, PartyShare]:
        """By party its part of the model."""
        return self.stored

    @classmethod
    def load(cls, job: Job, data: VerticalDataset, variant: Variant, folder: Path, *, seed: int) -> StoredTraining:
        """Return the training of a run's folder.

        Raises:
            FileFormatError: a view or share is missing, damaged or purged.
        """
        programs, names = model_family(job.model), [party.name for party in data.parties]
        views = {name: View.load(folder / name / VIEW) for name in names}
        shares = {name: programs.load(folder / name / MODEL) for name in names}
        return cls(job=job, data=data, seed=seed, variant=variant, views=views, stored=shares)


@dataclass(frozen=True)
class AttackedView:
    """An attack by a party or a coalition on a training, scored."""

    party: str
    attack: ComponentSpec
    result: AttackResult
    own: AttackerData


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One training: utility on its test rows, cost, and the leakage to each attacker.

    Attributes:
        utility: metrics by name, the first of which ranks models.
        cost: of the training with the engine that it ran on.
        leakage: by party and attack its metrics, as in a result row, but for comparisons with other guesses.
        training: model, margins and views, in memory.
    """

    utility: Mapping[str, float]
    cost: Cost
    leakage: Mapping[tuple[str, ComponentSpec], Metrics]
    training: FinishedTraining


def measure(
    job: Job,
    variant: Variant | None = None,
    *,
    seed: int | None = None,
    data: VerticalDataset | None = None,
    engine: Engine | None = None,
    private: Mapping[str, PrivateSeed] | None = None,
    folder: Path | None = None,
    watch: Watch = no_log,
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> Measured:
    """Train one variant of a job, attack the views, and score both; with the same seeds, as :func:`audit` does.

    The undefended training, baselines, comparisons of the attacks, figures of privacy and the leakage meter are left
    out; a leakage budget needs its meter and keeps it. Attacks that need a deviating party are left out as well.

    Args:
        job: as it was read, or completed.
        variant: the defenses; None: none.
        seed: of the run; None: the job's first.
        data: of this job and seed, if loaded already.
        engine: of the job's encryption, if made already; it stays open.
        private: private seeds by party; a party without one draws a new one.
        folder: gets views and model shares; None: nothing is written.
        watch: hears of the progress.
        checkpoints: by party, get its states between rounds.

    Raises:
        InputError: of any kind, before training begins.
        PolicyError: the defenses do not fit model or data, or cannot act.
    """
    seed = as_job(job).run.seeds[0] if seed is None else seed
    variant = Variant() if variant is None else variant
    check_instance("variant", variant, Variant, "one of job.variants()")
    meter = job.leakage.budget is not None
    job = with_defaults(
        dataclasses.replace(
            job,
            leakage=dataclasses.replace(job.leakage, meter=meter),
            run=dataclasses.replace(job.run, seeds=(seed,)),
            defenses=(variant,) if variant.chain else (),
        )
    )
    variant = job.variants()[-1]
    check_job(job)
    data = load_dataset(job, seed, private=private) if data is None else data
    programs = model_family(job.model)
    programs.check(data, monitored_chains(job, data, variant, seed=seed))
    made = job_engine(job) if engine is None else engine
    try:
        training = run_training(
            job,
            data,
            variant,
            made,
            folder,
            seed=seed,
            watch=watch,
            checkpoints=checkpoints,
        )
    finally:
        if engine is None:
            made.close()
    pairs = attackers_of(job, job.attacks, directed=directed_parties(data))
    honest = [pair for pair in pairs if malicious_behavior(make_attack(pair[1])) is None]
    return Measured(
        utility=utility_scores(programs, training.ended.margins, data),
        cost=training.ended.cost,
        leakage={(each.party, each.attack): each.result.leakage for each in attack_training(training, honest)},
        training=training,
    )


def run_training(
    job: Job,
    data: VerticalDataset,
    variant: Variant,
    engine: Engine,
    folder: Path | None,
    *,
    seed: int,
    watch: Watch = no_log,
    detail: str = "",
    deviation: MaliciousRun | None = None,
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> FinishedTraining:
    """Train and predict the test rows, and read the views.

    Args:
        job: completed with defaults.
        folder: gets views and model shares; None: they stay in memory.
        watch: hears of the progress, with ``detail``.
        deviation: of a party that does not train as agreed.
        checkpoints: by party, get its states between rounds.

    Raises:
        OutputError: a stored view is not whole.
        LabelwardError: the first error of a party.
    """
    ended = simulate_job(
        job,
        data,
        variant,
        engine,
        folder,
        seed=seed,
        progress=lambda what, done, total: watch(what, done, total, detail),
        deviation=deviation,
        checkpoints=checkpoints,
    )
    if folder is None:
        return FinishedTraining(job=job, data=data, seed=seed, variant=variant, views=ended.views, ended=ended)
    views = {party.name: View.load(folder / party.name / VIEW) for party in data.parties}
    for party, view in views.items():
        if view.ended != "complete":
            raise OutputError(
                f"the view is {view.ended} after a whole run; is the disk full?",
                code="incomplete",
                field=str(folder / party / VIEW),
                value=view.ended,
            )
    return FinishedTraining(job=job, data=data, seed=seed, variant=variant, views=views, ended=ended)


def attack_training(
    training: AttackedTraining,
    attackers: Sequence[tuple[str, ComponentSpec]],
    other_views: OtherViews | None = None,
    *,
    by_chance: bool = True,
) -> Iterator[AttackedView]:
    """Yield the attacks on a training as they end; ``by_chance``: with the level of chance of each guess."""
    for party, attack in attackers:
        made = make_attack(attack)
        own = training.attacker(party, made, other_views)
        view, seed = training.view(party), training.seed
        found = attack_and_score(made, view, training.data, seed=seed, own=own, by_chance=by_chance)
        yield AttackedView(party, attack, found, own)


def attackers_of(
    job: Job, attacks: Sequence[ComponentSpec], only: Sequence[str] = (), *, directed: Set[str]
) -> list[tuple[str, ComponentSpec]]:
    """Return who attacks how, by party, passive parties first.

    Args:
        attacks: those of the job, or more.
        only: the parties that attack; empty: all.
        directed: the parties that have a column with a monotone constraint (:func:`directed_parties`), without which
            an attack that reads such splits has nothing to read.
    """
    parties = [each.name for each in (*job.passive, job.active)]
    parties += [name for attack in attacks for name in attacking_parties(job, attack)]
    return [
        (party, bare_attack(attack))
        for party in dict.fromkeys(parties)
        for attack in attacks
        if party in attacking_parties(job, attack)
        and (not only or party in only)
        and (not make_attack(attack).reads_directions or not directed.isdisjoint(party.split(SEPARATOR)))
    ]


def directed_parties(data: VerticalDataset) -> frozenset[str]:
    """Return the parties that have a column with a monotone constraint."""
    return frozenset(party.name for party in data.parties if party.monotone)


def own_data(data: VerticalDataset, party: str) -> AttackerData:
    """Return a party's columns, and the labels that it holds, as its attacks take them; or a coalition's."""
    if SEPARATOR in party:
        members = party.split(SEPARATOR)
        return joined_data(members, [own_data(data, member) for member in members])
    own = next(each for each in data.parties if each.name == party)
    found = dataclasses.replace(attacker_data(own), outside=own.test)
    if party not in data.holders:
        return found
    held = data.holds(party)[: len(data.train_values)]
    labels: Any = np.where(held, data.train_values, np.nan)
    return dataclasses.replace(found, labels=labels, weights=data.train_weights)
