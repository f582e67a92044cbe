"""A protocol family is one package and one entry: three roles, labels on two parties, two keys, here and over gRPC."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import labelward

TESTS = Path(__file__).parent
EXAMPLE = TESTS / "examples" / "pooled_rates"
ENTRY = """    FamilyEntry(
        family="protocols.pooled_rates.family:PooledRatesFamily",
        models={"pooled-rates": "protocols.pooled_rates.family:PooledRates"},
        messages=("protocols.pooled_rates.messages",),
    ),
"""

SCRIPT = """
import json, sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from loopback import networks, together
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.data import PartyDataset
from labelward.errors import ProtocolError
from labelward.federation.components import model_family
from labelward.federation.party_run import run_program
from labelward.federation.simulation import make_session, run_simulation
from labelward.he import engine
from labelward.job import ComponentSpec, EncryptionSection
from labelward.party.handshake import RowMasks
from labelward.party.transcript import Transcript
from labelward.party.view import View
from labelward.protocols.common import LabelVector, PartyInputs
from labelward.protocols.pooled_rates.messages import HolderRates, RowBins
from labelward.messages.base import Array

PARTIES, HOLDERS = ("bank", "clinic", "shop", "hub"), ("bank", "clinic")
out = Path(sys.argv[1])
x, y = load_breast_cancer(return_X_y=True)
train, test = 400, len(y) - 400
holder = np.random.default_rng(1).integers(0, 2, train)
masks = RowMasks.in_order(train, 0, test)


def inputs(party):
    column = x[:, 22:23] if party == "shop" else np.empty((len(x), 0))
    data = PartyDataset(
        name=party, columns=("perimeter",) if party == "shop" else (), train=column[:train], validation=column[:0],
        test=column[train:],
    )
    if party not in HOLDERS:
        return PartyInputs(data=data)
    own = np.where(holder == HOLDERS.index(party), y[:train], np.nan)
    return PartyInputs(data=data, labels=LabelVector(values=own, weights=np.ones(train), classes=("0", "1")))


@dataclass(frozen=True, kw_only=True)
class RateRanking(Attack):
    \"\"\"Rank the rows by the rate of their bin, which the source is told.\"\"\"

    kind: ClassVar[str] = "rate-ranking"
    models: ClassVar[tuple[str, ...]] = ("pooled-rates",)

    def __call__(self, view, own: AttackerData, aux: AuxiliaryKnowledge, *, rng) -> LabelGuess:
        sums = sum(each.message.sums.value.unpack() for each in view.received(HolderRates))
        edges = np.quantile(own.features[:, 0], np.arange(1, len(sums)) / len(sums))
        rates = (sums[:, 0] / sums[:, 1])[np.searchsorted(edges, own.features[:, 0])]
        return LabelGuess.of_scores(np.stack([1 - rates, rates], axis=1))


def attacked(folder):
    view = View.load(folder / "shop" / "view")
    own = AttackerData(features=x[:train, 22:23], columns=("perimeter",))
    guess = RateRanking()(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
    return roc_auc_score(y[:train], guess.scores[:, 1])


family = model_family(ComponentSpec("pooled-rates"))
paillier = engine("paillier", workers=1)
encryption = EncryptionSection(bits=2048)
topology = family.topology(PARTIES, HOLDERS)
session = make_session(
    topology, {"model.kind": "pooled-rates"}, encryption, [str(i) for i in range(len(y))], paillier, seed=1, masks=masks
)
each = {party: inputs(party) for party in PARTIES}
here = run_simulation(session, family, each, paillier, folder=out / "here")


def party_program(party, network):
    def program(ctx):
        ctx.transcript.begin(session.header(party, columns=each[party].data.columns))
        if party == "hub":  # a role sends what it declares, and nothing else
            try:
                ctx.send("bank", RowBins(Array.pack(np.zeros(1))), (9,))
            except ProtocolError as error:
                refused.append(error.code)
        return family.program(ctx, session.handshake(ctx), each[party], paillier)

    ctx = session.context(network.attempt(), Transcript(None, out / "there" / party / "view"))
    result = run_program(ctx, program)
    network.conclude(lambda: None)
    return result


refused = []
with networks(PARTIES) as made:
    there = together(**{party: (lambda party=party: party_program(party, made[party])) for party in PARTIES})
views = {party: View.load(out / "there" / party / "view") for party in PARTIES}
json.dump(
    {
        "roles": {party: view.header.role for party, view in views.items()},
        "reasons": list(session.reasons),
        "keys": len({bytes(there[party].fingerprint) for party in HOLDERS}),
        "equal": bool(np.array_equal(here.margins, there["bank"].margins)),
        "test": roc_auc_score(y[train:], here.margins[:, 0]),
        "received": {
            party: sorted({name for kind, _, name, *_ in views[party].content() if kind == "received"})
            for party in PARTIES
        },
        "attacks": [attacked(out / where) for where in ("here", "there")],
        "refused": refused,
        "encryptions": here.cost.encryptions,
    },
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the example's folder and its entry in the list of families."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(Path(labelward.__file__).parent, root / "labelward")
    shutil.copytree(EXAMPLE, root / "labelward" / "protocols" / "pooled_rates")
    families = root / "labelward" / "families.py"
    before, end, after = families.read_text(encoding="utf-8").rpartition(")\n")
    families.write_text(before + ENTRY + end + after, encoding="utf-8")
    return root


def _run(root: Path, *arguments: str) -> str:
    path = os.pathsep.join(map(str, (root, TESTS / "transport", TESTS)))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_shows_the_family(extended: Path) -> None:
    assert "pooled-rates" in _run(extended, "-m", "labelward", "list")


@pytest.mark.slow
@pytest.mark.network
def test_the_family_runs_here_and_over_grpc_and_an_attack_reads_its_views(extended: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(_run(extended, "-c", SCRIPT, str(tmp_path)))
    assert found["roles"] == {"bank": "holder", "clinic": "holder", "shop": "source", "hub": "collector"}
    assert found["reasons"] == []
    assert found["keys"] == 2
    assert found["encryptions"] == 800
    assert found["equal"]
    assert found["test"] > 0.9
    # labels of others reach nobody but as sums of bins at the source
    greeting = {"Begin", "Hello"}
    received = {party: set(names) - {"PairStart"} for party, names in found["received"].items()}
    assert received["shop"] == greeting | {"HolderRates"}
    assert received["clinic"] == greeting | {"BinSums"}
    assert received["hub"] == greeting | {"HolderKey", "EncryptedLabels", "RowBins"}
    here, there = found["attacks"]
    assert here == there > 0.9
    assert found["refused"] == ["not-sendable"]
