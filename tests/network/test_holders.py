"""Labels on several parties over a network: the shares and views of one process, kills or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaos import SPREAD, SUMS, Fault, Plan, play
from companies import Case, companies, defended, together
from holder_kills import killed
from rehearsal import Network
from troubled import Weather
from undisturbed import Undisturbed

from labelward.errors import HandshakeError, JobError, LabelwardError, OutputError, PeerError
from labelward.party.view import View
from labelward.protocols.pivodl.share import PivodlShare
from labelward.protocols.pivodl.tree import Tree
from refusals import refused

pytestmark = pytest.mark.network

CALM = Weather()
KILLS = (
    Fault("kill", "telco", "shop", "trees", 1, 0.02, 0.1),
    Fault("kill", "bank", "shop", "trees", 1, 0.0, 0.1),
    Fault("kill two", "shop", "telco", "attempt", 1, 0.05, 0.1),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["several holders, noise", "several holders"])
def test_killed_parties_end_with_the_shares_and_views_of_one_process(
    case: str, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    result = play(Plan(0, case, False, False, CALM, KILLS), tmp_path / "run", undisturbed, surely=True)
    assert len(result.happened) == len(KILLS)
    assert result.resumed


@pytest.mark.slow
@pytest.mark.parametrize(("case", "seed"), [("several holders, noisy leaves", 5), ("several holders, paillier", 6)])
def test_parties_that_are_killed_at_random(case: str, seed: int, tmp_path: Path) -> None:
    """A sample: ``python tests/network/holder_kills.py`` kills each party fifty times."""
    assert killed(case, seed, tmp_path, kills=1, trees=60).attempts > 1


@pytest.mark.parametrize(
    ("model", "more"),
    [
        pytest.param(SPREAD, {}, id="masks"),
        pytest.param(
            f'{SPREAD}\nexchange = "published"\ninstance_threshold = 3',
            {"data": 'task = "regression"', "classes": 0},
            id="quantities",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            'kind = "pivodl"\ntrees = 2\ndepth = 2\nbins = 4\nopened_sums = "allow"',
            {"encryption": "bits = 512\ninsecure = true\nworkers = 1"},
            id="paillier",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_training_and_prediction(
    model: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(**{"model": model, "holders": ("bank", "shop"), "data": 'classes = ["0", "1"]', "rows": 120, **more})
    network = Network(tmp_path, case, PivodlShare)
    monkeypatch.chdir(tmp_path)
    records = network.train_both()
    for party in case.parties:
        others = {peer for peer in case.parties if peer != party}
        evidence = PivodlShare.load(network.made.run(party) / party / "model").evidence
        assert evidence is not None
        assert {*evidence.confirmed} == {*View.load(network.made.run(party) / party / "view").exchanges()} == others
    assert records["bank"].utility  # of the test rows that it labels
    assert not records["shop"].utility
    network.predict_both(but=frozenset({"id", "prediction"}))  # sums of floats: the order of parties is the same


def refusal(case: Case, folder: Path, **edits: tuple[str, str]) -> dict[str, Any]:
    """Return what training ends with at each party after edits of its job file, or of a file by its name."""
    network = Network(folder, case, PivodlShare)
    for party, (old, new) in edits.items():
        network.made.edit(f"{party}.toml", old, new)
    return together(case.parties, network.train)


CASE = Case(model=SPREAD, holders=("bank", "shop"), data='classes = ["0", "1"]', rows=60)


def test_parties_with_different_defenses(tmp_path: Path) -> None:
    partial = '\n[[defense]]\nkind = "partial-dp"\nepsilon = 8.0\n[network]'
    found = refusal(CASE, tmp_path, shop=("[network]", partial))
    assert {each.code for each in found.values()} == {"disagreement"}
    assert {name for each in found.values() if isinstance(each, HandshakeError) for name in each.value} == {"defense"}


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["cells", "counts", "key"])
def test_a_party_whose_sums_or_keys_are_others(lie: str, tmp_path: Path) -> None:
    """Exit code 3 and the party's name; whose masked sums were wrong nobody can tell where several are added."""
    with companies(tmp_path, CASE) as made:
        made.changes["shop"] = (f"lies={lie}",)
        running = made.start_all()
        codes = {party: process.wait() for party, process in running.items()}
        assert codes["bank"] == codes["telco"] == 3, made.told()
        last = {party: running[party].errors.splitlines()[-1] for party in ("bank", "telco")}
        assert not any("Traceback" in process.errors for process in running.values())
        assert all("party '" in each for each in last.values()), last
        assert lie == "counts" or any("'shop'" in each for each in last.values()), last


@pytest.mark.slow
def test_different_defenses_end_all_processes(tmp_path: Path) -> None:
    with companies(tmp_path, CASE) as made:
        made.edit("shop.toml", "[network]", '[[defense]]\nkind = "partial-dp"\nepsilon = 8.0\n[network]')
        more = {"shop": ("--defense", defended(made.job("shop")))}
        running = {party: made.start(party, *more.get(party, ())) for party in CASE.parties}
        assert {process.wait() for process in running.values()} == {2}, made.told()
        assert all("defense" in process.errors.splitlines()[-1] for process in running.values()), made.told()


@pytest.mark.parametrize("restart", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_all_labels_pay_twice_where_one_holder_lost_its_noise(
    restart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One begins anew with --force: other noise of its own gives other trees, and sums of others with other noise.

    The others restart from a checkpoint, or have none yet.
    """
    monkeypatch.chdir(tmp_path)
    network = Network(tmp_path, replace(CASE, active=SUMS), PivodlShare)
    own_sums, lives = Tree._own_sums, [1]

    def dying(tree: Tree, exact: Any, part: int) -> Any:
        ended = tree.tree > 0 if restart else tree.depth > 0
        if lives[0] == 1 and tree.ctx.party == "shop" and ended:
            raise OutputError("no room", code="unwritable")
        return own_sums(tree, exact, part)

    monkeypatch.setattr(Tree, "_own_sums", dying)
    assert all(isinstance(each, LabelwardError) for each in together(CASE.parties, network.train).values())
    lives[0] = 2

    def again(party: str) -> Any:
        return network.train(party, **({"force": True} if party == "shop" else {"restart": restart}))

    assert {each.stage for each in together(CASE.parties, again).values()} == {"closed"}
    for party in CASE.parties:
        view = View.load(network.made.run(party) / party / "view")
        (account,) = (each for each in view.applied() if each["kind"] == "label-dp-sums" and each["stage"] == "end")
        assert (account["spent"], account["spent_before"]) == (16.0, 8.0), party


def test_classes_over_a_network_are_named(tmp_path: Path) -> None:
    network = Network(tmp_path, replace(CASE, data=""), PivodlShare)
    with refused(JobError, "missing", field="[data] classes"):
        network.train("bank")


def test_a_row_that_two_parties_label(tmp_path: Path) -> None:
    network = Network(tmp_path, CASE, PivodlShare)
    path = tmp_path / "shop.csv"
    path.write_text("\n".join(f"{line}0" if line.endswith(",") else line for line in path.read_text().splitlines()))
    found = together(CASE.parties, network.train)
    assert all(isinstance(each, PeerError) for each in found.values())
    assert found["bank"].peer == "shop"
