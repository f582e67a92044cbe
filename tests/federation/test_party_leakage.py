"""What a party's page says of leakage: the label holder attacks what it told, the others know what they could know."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import msgspec
import numpy as np
from test_participate import PARTIES, Meeting, company, trained

from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import load_active, load_party_table
from labelward.defenses.leakage_meter import MonitorConfig, guess_labels
from labelward.federation.components import with_defaults
from labelward.job import load_job
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.party.view import View
from labelward.report.party_page import write_party_report
from labelward.runs.private_seeds import resolve_seeds

__all__ = ["company"]


def test_the_label_holder_attacks_what_it_told(company: Path) -> None:
    """By the meter's reconstruction, which equals the views that the others stored; they do not hear of it."""
    records = trained(company, Meeting({1: ("telco", 8)}))
    job = with_defaults(load_job(company / "bank.toml"))
    data = load_active(job, load_party_table(job, "bank"), 1, resolve_seeds(["bank"], company / "run-bank", ())["bank"])
    measure = MonitorConfig.of(job.model.as_dict(), 2, 1)
    pages = {party: write_party_report(company / f"run-{party}").read_text() for party in PARTIES}
    assert set(records["bank"].leakage) == {"telco", "shop"}
    for party, figures in records["bank"].leakage.items():
        leaves = observed_leaves(View.load(company / f"run-{party}" / party / "view"))
        assert asdict(guess_labels(leaves, data.train_labels, party, measure)) == msgspec.to_builtins(figures)
        assert 0.5 <= figures.blind <= figures.right <= 1
        assert figures.v_measure <= figures.bound
        assert records[party].leakage == {}
        assert "What this party could know" in pages[party]
        assert "right of 100" not in pages[party]
        assert f">{merge_identical_rows(leaves).size.max()}<" in pages[party]
    assert "What was told to other parties" in pages["bank"]
    assert f">{100 * records['bank'].leakage['telco'].right:.0f}<" in pages["bank"]


def test_guesses_of_rows_that_are_told_apart() -> None:
    """Two leaves, three labels of one class among four in the first, one of four in the second; and of nothing."""
    measure = MonitorConfig(eta=0.5, together=1, seed=1)
    leaves = np.repeat([[1, 2]], 40, axis=1).astype(np.int32)
    labels = np.tile([1, 1, 1, 0], 20)
    labels[40:] = 1 - labels[40:]
    found = guess_labels(leaves, labels, "telco", measure)
    assert (found.trees, found.right, found.blind) == (1, 0.75, 0.5)
    alike = guess_labels(np.ones((1, 80), np.int32), labels, "telco", measure)
    assert (alike.right, alike.blind, alike.v_measure, alike.bound) == (0.5, 0.5, 0.0, 0.0)
