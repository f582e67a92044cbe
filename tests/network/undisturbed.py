"""What a run comes to that nobody disturbs, in one process; and whether a disturbed one came to the same."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import changed
import msgspec
from companies import Case, Companies, defended, sections, write_tables

from labelward.defenses.label_dp import NoisyLabels
from labelward.federation.components import model_family
from labelward.federation.train import train_variant
from labelward.job import ComponentSpec, load_job
from labelward.party.checkpoint import Checkpoints
from labelward.party.view import View
from labelward.policy.chain import PolicyChain
from labelward.protocols.pivodl import boosting

DRAWS = "draws"


@dataclass(frozen=True)
class Ended:
    """What a run leaves.

    Attributes:
        shares: by party, without the model's identifier.
        views: digest of the view's content, by party.
        accounts: what the active party's policies did.
        utility: metrics of the predictions of the test rows.
    """

    shares: dict[str, Any]
    views: dict[str, str]
    accounts: list[dict[str, object]]
    utility: dict[str, float]


class Undisturbed:
    """Runs of cases in a folder, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._known = folder, dict[tuple[Case, int], Ended]()

    def of(self, case: Case, draw: int = 0) -> Ended:
        """Return the end of a case in which the noise, if any, is that of the draw with this number."""
        if (case, draw) not in self._known:
            self._known[case, draw] = self._run(case, draw)
        return self._known[case, draw]

    def _run(self, case: Case, draw: int) -> Ended:
        folder = self._folder / str(len(self._known))
        folder.mkdir(parents=True)
        write_tables(folder, case)
        job = folder / "all.toml"
        job.write_text(sections(case, case.parties))
        draws = folder / DRAWS
        draws.write_text("drawn\n" * draw)
        out = folder / "out"
        with (
            patch.object(NoisyLabels, "before_targets", NoisyLabels.before_targets),
            patch.object(PolicyChain, "begin", PolicyChain.begin),
            patch.object(Checkpoints, "save", Checkpoints.save),
            patch.object(boosting, "record_draws", boosting.record_draws),
        ):
            changed.noise(str(draws))
            changed.keys(str(folder / "keys"))
            train_variant(load_job(job), out, seed=1, variant=defended(job) if "[[defense]]" in case.active else None)
        utility = json.loads((out / "training.json").read_text())["utility"]
        return _ended(case, {party: out / party for party in case.parties}, utility)


def end_of(companies: Companies, parties: Collection[str] | None = None) -> Ended:
    """Return what a run over the network has left, at all parties or at those that have finished."""
    case = companies.case
    folders = {party: companies.run(party) / party for party in case.parties if parties is None or party in parties}
    if len(folders) < len(case.parties):
        return _ended(case, folders, {})
    told = json.loads((companies.run(case.parties[0]) / "party.json").read_text())
    return _ended(case, folders, told["utility"])


def differences(found: Ended, wanted: Ended) -> list[str]:
    """Return in what a run differs from the undisturbed one, in words; metrics and accounts count at all parties."""
    told = [f"the share of {party!r}" for party in found.shares if found.shares[party] != wanted.shares[party]]
    told += [f"the view of {party!r}" for party in found.views if found.views[party] != wanted.views[party]]
    if len(found.shares) < len(wanted.shares):
        return told
    told += ["the metrics"] * (found.utility != wanted.utility)
    return told + ["the accounts of policies"] * (found.accounts != wanted.accounts)


def _ended(case: Case, folders: dict[str, Path], utility: dict[str, float]) -> Ended:
    kind = tomllib.loads(case.model).get("kind", "secureboost")
    load = model_family(ComponentSpec(kind)).load
    shares: dict[str, Any] = {party: load(folder / "model") for party, folder in folders.items()}
    models = {share.model for share in shares.values()}
    assert len(models) == 1, f"shares of different models: {models}"
    views = {party: View.load(folder / "view") for party, folder in folders.items()}
    assert all(view.ended == "complete" for view in views.values())
    return Ended(
        shares={party: msgspec.structs.replace(share, model="", evidence=None) for party, share in shares.items()},
        views={party: view.digest() for party, view in views.items()},
        accounts=list(next(iter(views.values())).applied()),
        utility={} if case.holders else utility,  # over a network nobody has the labels of all test rows
    )
