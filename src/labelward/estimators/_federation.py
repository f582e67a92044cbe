"""Training of all estimators: all parties in threads of this process, views and shares in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from labelward.data import PartyDataset
from labelward.defenses import DEFENSES
from labelward.errors import unknown_name
from labelward.estimators._errors import InvalidInputError
from labelward.federation.components import make_engine
from labelward.federation.simulation import SimulationResult, make_session, party_inputs, run_simulation
from labelward.job import EncryptionSection
from labelward.party.context import Progress, no_progress
from labelward.party.handshake import RowMasks
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector
from labelward.protocols.family import ModelFamily
from labelward.rng import PrivateSeed


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Model and protection of a training.

    Attributes:
        programs: how the model is run, with its parameters.
        behaviors: by passive party, how it trains where not as agreed.
    """

    programs: ModelFamily[Any]
    seed: int
    defenses: Any = None
    encryption: EncryptionSection = field(default_factory=lambda: EncryptionSection(engine="none"))
    behaviors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def shared(self, parties: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that the parties must agree on, under the names of a job."""
        params, section = self.programs.params, self.encryption
        shared = {"model.kind": params.kind}
        shared |= {f"model.{key}": value for key, value in params.parameters().items() if value is not None}
        return {**shared, **section.shared(), "parties": parties}


def train_parties(
    plan: TrainingPlan,
    parties: Sequence[PartyDataset],
    labels: LabelVector,
    before: Mapping[str, Any] | None = None,
    *,
    verbose: bool = False,
) -> SimulationResult:
    """Train a model.

    Args:
        parties: what each party holds, the active one first; no prediction rows.
        labels: the active party's, of training rows, then of validation rows.
        before: by party, its share of the model that a warm start continues.

    Raises:
        LabelwardError: the first error of a party.
    """
    names, rows, validation = tuple(party.name for party in parties), len(labels.values), len(parties[0].validation)
    policies = resolve_policies(plan.defenses, names)
    with closing(make_engine(plan.encryption)) as engine:
        session = make_session(
            plan.programs.topology(names, names[:1]),
            plan.shared(names),
            plan.encryption,
            [str(row) for row in range(rows)],
            engine,
            seed=plan.seed,
            masks=RowMasks.in_order(rows - validation, validation, 0),
            shares=before,
        )
        inputs = party_inputs(parties, {names[0]: labels}, shares=before, behaviors=plan.behaviors)
        with _progress_bar(verbose) as progress:
            return run_simulation(session, plan.programs, inputs, engine, policies=policies, progress=progress)


def private_seed(random_state: Any, seed: int, party: str) -> PrivateSeed:
    """Return a party's private seed: a new one without ``random_state``, which otherwise fixes all draws."""
    if random_state is None:
        return PrivateSeed.drawn()
    return PrivateSeed(hashlib.sha256(f"estimator\x1f{seed}\x1f{party}".encode()).digest())


def resolve_policies(defenses: Any, parties: Sequence[str] = ()) -> dict[str, tuple[Policy, ...]]:
    """Return by party the policies of an estimator's parameter ``defenses``, new ones on each call.

    Args:
        defenses: dictionaries with ``kind`` and parameters, of the active party; or such lists by party.
        parties: the active one first; none where only the form is checked.
    """
    named = defenses if isinstance(defenses, Mapping) else {(parties or ("",))[0]: defenses or ()}
    found = {}
    for party, chain in named.items():
        if isinstance(chain, str | Mapping) or not all(isinstance(one, Mapping) and "kind" in one for one in chain):
            reason = f"must be a list of dictionaries with a kind, or such a list for each party, but got {defenses!r}"
            raise InvalidInputError(reason, code="type", field="defenses", value=defenses)
        if parties and party not in parties:
            raise InvalidInputError(
                unknown_name("party", str(party), parties), code="unknown", field="defenses", value=party
            )
        found[party] = tuple(
            DEFENSES.make(one["kind"], {key: one[key] for key in one if key != "kind"}) for one in chain
        )
    return found


@contextmanager
def _progress_bar(verbose: bool) -> Iterator[Progress]:
    """Yield a progress callback: a bar, or one that does nothing."""
    if not verbose:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done, total=total or None)  # type: ignore[arg-type]

        yield report
