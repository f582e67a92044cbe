"""One training measured: the figures of an audit, without a file and without what only an audit needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from labelward.auditing.audit import audit
from labelward.auditing.measure import measure
from labelward.federation.components import with_defaults
from labelward.job import ComponentSpec, EncryptionSection, Job
from labelward.runs.private_seeds import stored_seeds
from labelward.runs.schema import ResultRow

Finished = tuple[Path, list[ResultRow]]


def test_figures_are_those_of_the_audit(job: Callable[..., Job], finished: Finished) -> None:
    out, rows = finished
    private, complete = stored_seeds(out), with_defaults(job())
    for seed in (1, 2):
        for variant in complete.variants():
            found = measure(job(), variant, seed=seed, private=private)
            for row in rows:
                if row.seed != seed or row.defense != tuple(variant.as_list()) or row.attack is None:
                    continue
                assert found.utility == {name: row.utility[name] for name in found.utility}
                assert found.cost.decryptions == row.cost.decryptions
                if row.attack["kind"] == "split-posterior":
                    continue  # of every audit, not of the job
                attack = ComponentSpec(row.attack["kind"], {k: v for k, v in row.attack.items() if k != "kind"})
                leakage = found.leakage[str(row.party), attack]
                assert row.leakage is not None
                assert leakage == {name: row.leakage[name] for name in leakage}


def test_nothing_is_written_unless_asked(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measure(job())
    assert not list(tmp_path.iterdir())
    measure(job(), folder=tmp_path / "run")
    assert (tmp_path / "run/telco/view").is_dir()


@pytest.mark.slow
def test_it_takes_less_than_half_of_an_audit_s_time(job: Callable[..., Job], tmp_path: Path) -> None:
    small = job(defense=[{"kind": "local-trees"}], run={"seeds": [1]})
    measure(small, with_defaults(small).variants()[1])  # compiled code is loaded
    spent = []
    for number in range(2):
        start = time.process_time()
        measure(small, with_defaults(small).variants()[1])
        middle = time.process_time()
        audit(small, tmp_path / str(number))
        spent.append((middle - start) / (time.process_time() - middle))
    assert min(spent) < 0.5


@pytest.mark.slow
def test_a_network_is_measured_in_memory(job: Callable[..., Job], tmp_path: Path) -> None:
    net = job(
        model={"kind": "splitnn", "epochs": 1},
        defense=None,
        encryption=None,
        attack=[{"kind": "passive-completion"}],
        run={"seeds": [1]},
    )
    rows = audit(net, tmp_path / "audit")
    found = measure(net, private=stored_seeds(tmp_path / "audit"))
    by_party = {party: metrics for (party, _), metrics in found.leakage.items()}
    for row in rows:
        if row.attack is not None and row.attack["kind"] == "passive-completion":
            assert row.leakage is not None
            assert by_party[str(row.party)]["accuracy"] == row.leakage["accuracy"]


def test_encryption_changes_no_figure(job: Callable[..., Job]) -> None:
    plain = replace(job(), data=replace(job().data, split="reference"))
    encrypted = replace(plain, encryption=EncryptionSection(engine="paillier", bits=512, insecure=True, workers=1))
    first, second = measure(plain), measure(encrypted)
    assert first.utility == second.utility
    assert first.leakage == second.leakage
