"""A passive party's own defense acts where its point is: from a job, an estimator, and in predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from embedding_noise import listed
from labelward.auditing.audit import audit
from labelward.errors import Code, JobError, LabelwardError, PolicyError
from labelward.estimators import SecureBoostClassifier, SplitNetClassifier
from labelward.estimators._errors import InvalidInputError
from labelward.federation.components import with_defaults
from labelward.federation.model import AlignedRows, FederatedModel
from labelward.federation.party_training import _refuse_unowned, party_variant
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job, parse_job
from labelward.messages.splitnn import BatchEmbeddings
from labelward.party.view import View
from labelward.report.page import write_report
from labelward.runs.schema import read_run
from labelward.runs.short_names import variant_without_defaults
from refusals import refused

torch.set_num_threads(1)

NET: dict[str, Any] = {"kind": "splitnn", "epochs": 2, "batch_size": 64, "width": 8}
SECTIONS: dict[str, Any] = {"model": NET, "encryption": None, "defense": None, "attack": None, "run": {"seeds": [1]}}
COMPRESSION: dict[str, Any] = {"kind": "gradient-compression", "keep": 0.5}
NOISE: dict[str, Any] = {"kind": "embedding-noise", "scale": 0.5}
TELCO = NOISE | {"party": "telco"}
SLUG = "embedding-noise-party-telco-scale-0.5"


@pytest.fixture(autouse=True)
def _listed() -> Iterator[None]:
    with listed():
        yield


@pytest.fixture
def net(job: Callable[..., Job]) -> Callable[..., Job]:
    return lambda **sections: job(**{**SECTIONS, **sections})


def embeddings(view: View, peer: str) -> np.ndarray:
    return np.concatenate(
        [each.message.values.value.unpack() for each in view.received(BatchEmbeddings) if each.peer == peer]
    )


def accounts(view: View) -> list[dict[str, Any]]:
    return [each for each in view.applied() if each["stage"] == "end"]


@pytest.mark.slow
def test_an_audit_has_it_as_a_variant_and_says_whose_it_is(net: Callable[..., Job], tmp_path: Path) -> None:
    attack = {"kind": "passive-completion", "steps": 5}
    rows = audit(net(defense=[TELCO], attack=[attack]), tmp_path / "audit")
    assert rows[0].defense == ()
    assert rows[-1].defense == ({"kind": "embedding-noise", "party": "telco", "scale": 0.5},)
    views = {
        (slug, party): View.load(tmp_path / "audit" / "runs" / slug / "1" / party / "view")
        for slug in ("none", SLUG)
        for party in ("active", "telco", "shop")
    }
    for party, changed in (("telco", True), ("shop", False)):
        one, two = (embeddings(views[slug, "active"], party)[:64] for slug in ("none", SLUG))
        assert bool(abs(one - two).max() > 0.5) is changed  # the first batch, before any weight differs
    (told,) = accounts(views[SLUG, "telco"])
    assert (told["kind"], told["parameters"], told["points"]) == (
        "embedding-noise",
        {"scale": 0.5},
        ["before_embedding"],
    )
    assert told["changed_values"] > 0
    assert not accounts(views[SLUG, "active"])
    assert not accounts(views[SLUG, "shop"])
    details = read_run(tmp_path / "audit", [TELCO], 1)
    assert details is not None
    assert [(each["kind"], each["party"], each["scale"]) for each in details.applied] == [
        ("embedding-noise", "telco", 0.5)
    ]
    assert views[SLUG, "active"].header.job == views["none", "active"].header.job  # it is nobody else's business
    page = write_report(tmp_path / "audit").read_text()
    assert "embedding-noise (party telco, scale 0.5)" in page


def test_a_training_and_its_predictions(net: Callable[..., Job], tmp_path: Path) -> None:
    """The defense acts in later predictions, too: new rows' embeddings leave as protected as those of training rows."""
    run = tmp_path / "run"
    done = train_variant(net(defense=[TELCO]), run, seed=1, variant=SLUG)
    assert done.variant == SLUG
    assert accounts(View.load(run / "telco" / "view"))[0]["parameters"] == {"scale": 0.5}
    model = FederatedModel.load(run)
    rows = AlignedRows(
        columns={party: np.zeros((40, len(share.columns))) for party, share in model.shares.items()},
        ids=np.array([f"r{row:02}" for row in range(40)]),
    )
    bare = replace(model, policies=dict).predict(rows)
    assert np.ptp(bare, axis=0).max() < 1e-6
    assert np.ptp(model.predict(rows), axis=0).max() > 0.01
    frame = load_breast_cancer(as_frame=True).frame.drop(columns="target")
    frame.to_parquet(tmp_path / "rows.parquet")
    tables = dict.fromkeys(model.parties, tmp_path / "rows.parquet")
    assert predict_table(run, tables, tmp_path / "out.parquet") == len(frame)
    margins = pq.read_table(tmp_path / "out.parquet")["margin_1"].to_numpy()
    aligned = model.bring(tables)
    np.testing.assert_array_equal(margins, model.predict(aligned)[:, 1])
    assert abs(margins - replace(model, policies=dict).predict(aligned)[:, 1]).max() > 0.01


def test_defenses_of_several_parties_are_one_chain(net: Callable[..., Job], tmp_path: Path) -> None:
    chain = [COMPRESSION, TELCO, NOISE | {"party": "shop", "scale": 0.25}]
    made = net(defense=[{"chain": chain}])
    (variant,) = with_defaults(made).defenses
    train_variant(made, tmp_path / "run", seed=1, variant=variant_without_defaults(variant).slug)
    found = {
        party: [each["parameters"] for each in accounts(View.load(tmp_path / "run" / party / "view"))]
        for party in ("active", "telco", "shop")
    }
    assert found == {"active": [found["active"][0]], "telco": [{"scale": 0.5}], "shop": [{"scale": 0.25}]}
    assert found["active"][0]["keep"] == 0.5


def test_the_active_party_may_be_named(net: Callable[..., Job]) -> None:
    named, bare = (with_defaults(net(defense=[each])) for each in (COMPRESSION | {"party": "active"}, COMPRESSION))
    assert named.defenses == bare.defenses


def test_a_list_of_parties_is_swept(net: Callable[..., Job]) -> None:
    done = with_defaults(net(defense=[NOISE | {"party": ["telco", "shop"]}]))
    assert [each.as_list()[0]["party"] for each in done.defenses] == ["telco", "shop"]
    assert with_defaults(done) == done
    assert with_defaults(parse_job(done.to_toml())) == done


@pytest.mark.parametrize(
    ("defense", "model", "error", "code", "field", "value"),
    [
        (NOISE | {"party": "telko"}, NET, JobError, "unknown", "[[defense]] 1 party", "telko"),
        (NOISE, NET, PolicyError, "inapplicable", "", ("before_embedding",)),
        (
            {"kind": "gradient-compression", "keep": 0.5, "party": "telco"},
            NET,
            PolicyError,
            "inapplicable",
            "",
            ("on_returned_gradient",),
        ),
        (TELCO, {"trees": 2}, PolicyError, "inapplicable", "", ("before_embedding",)),
        (
            {"kind": "local-trees", "party": "telco"},
            {"trees": 2},
            PolicyError,
            "inapplicable",
            "",
            ("schedule",),
        ),
    ],
)
def test_what_a_role_never_visits_is_refused(
    net: Callable[..., Job],
    tmp_path: Path,
    defense: dict[str, Any],
    model: dict[str, Any],
    error: type[LabelwardError],
    code: Code,
    field: str,
    value: object,
) -> None:
    sections: dict[str, Any] = {"defense": [defense], "model": model}
    if "kind" not in model:
        sections["encryption"] = {"engine": "plain", "insecure": True}
    with refused(error, code, field=field, value=value):
        audit(net(**sections), tmp_path / "audit")
    assert not (tmp_path / "audit" / "runs").exists()


# -- estimators ------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"epochs": 2, "width": 8, "batch_size": 32, "random_state": 1}


def test_a_party_does_not_begin_without_a_defense_that_only_it_can_apply(job: Callable[..., Job]) -> None:
    """Between companies each applies its own part: what names no party is the active one's, which never reaches it."""
    nobodys = with_defaults(job(defense=[{"kind": "min-bin-rows", "rows": 20}]))
    with refused(JobError, "missing", field="[[defense]] party", value="min-bin-rows"):
        _refuse_unowned(nobodys, "telco")
    own = with_defaults(job(defense=[{"kind": "min-bin-rows", "rows": 20, "party": "telco"}]))
    slug = "min-bin-rows-party-telco-rows-20"
    assert party_variant(own, "telco", slug).chain[0].kind == "min-bin-rows"
    bank = with_defaults(job(defense=[{"kind": "id-lmid", "xi": 0.5}]))
    _refuse_unowned(bank, "telco")
    assert party_variant(bank, "telco", None).chain == ()


def test_an_estimator_takes_defenses_by_party(tmp_path: Path) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    parties = {"bank": list(range(10)), "telco": list(range(10, 30))}
    chains = {"telco": [NOISE], "bank": [COMPRESSION]}
    model = SplitNetClassifier(parties=parties, defenses=chains, **SMALL).fit(X, y)
    plain = SplitNetClassifier(parties=parties, **SMALL).fit(X, y)
    assert [each["kind"] for each in accounts(model.views_["telco"])] == ["embedding-noise"]
    assert [each["kind"] for each in accounts(model.views_["bank"])] == ["gradient-compression"]
    one, two = (embeddings(each.views_["bank"], "telco")[:32] for each in (model, plain))
    assert abs(one - two).max() > 0.5
    assert np.ptp(model.decision_function(np.zeros((20, 30)))) > 0.01  # it acts in predictions, too
    assert np.ptp(plain.decision_function(np.zeros((20, 30)))) < 1e-6
    folder = model.save(tmp_path / "model")
    np.testing.assert_array_equal(SplitNetClassifier.load(folder).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("estimator", "defenses", "code", "field", "value"),
    [
        (SplitNetClassifier(**SMALL), {"telko": [NOISE]}, "unknown", "defenses", "telko"),
        (SplitNetClassifier(**SMALL), {"passive": NOISE}, "type", "defenses", {"passive": NOISE}),
        (
            SplitNetClassifier(**SMALL),
            {"passive": [COMPRESSION]},
            "inapplicable",
            "",
            ("on_returned_gradient",),
        ),
        (SplitNetClassifier(**SMALL), [NOISE], "inapplicable", "", ("before_embedding",)),
        (
            SecureBoostClassifier(engine="plain", insecure=True, n_estimators=1),
            {"passive": [{"kind": "local-trees"}]},
            "inapplicable",
            "",
            ("schedule",),
        ),
    ],
)
def test_an_estimator_refuses_what_cannot_be(
    estimator: Any, defenses: Any, code: Code, field: str, value: object
) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    with refused(InvalidInputError, code, field=field, value=value):
        estimator.set_params(defenses=defenses).fit(X, y)
    assert not hasattr(estimator, "shares_")
