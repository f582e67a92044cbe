"""The list of kinds, as ``labelward list`` shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from labelward.errors import EncryptionError, JobError
from labelward.families import FAMILIES
from labelward.federation.components import MODELS as MODEL_KINDS
from labelward.federation.components import (
    check_job,
    list_components,
    make_engine,
    model_family,
    with_defaults,
)
from labelward.job import ComponentSpec, EncryptionSection, Job, load_job
from labelward.runs.short_names import variant_without_defaults, without_defaults
from refusals import refused


def test_every_kind_is_described_with_its_parameters() -> None:
    found = list_components()
    assert list(found) == ["models", "defenses", "attacks", "engines", "tables"]
    kinds = {family: [info.kind for info in infos] for family, infos in found.items()}
    assert kinds["models"] == ["secureboost", "forest", "splitnn", "pivodl", "federboost", "pivot", "logistic"]
    assert {"id-lmid", "local-trees"} <= set(kinds["defenses"])
    assert {"clustering", "id2graph"} <= set(kinds["attacks"])
    assert {"plain", "paillier"} <= set(kinds["engines"])
    assert {"breast_cancer", "digits", "phishing"} <= set(kinds["tables"])
    for family, infos in found.items():
        for info in infos:
            assert info.summary, f"{family} {info.kind} has no summary"
            for name, default, doc in info.parameters:
                assert doc, f"parameter {name} of {family} {info.kind} is not documented"
                assert default, name
    parameters = {info.kind: info.parameters for info in found["defenses"]}
    assert parameters["id-lmid"][0][:2] == ("xi", "required")
    assert parameters["local-trees"][0][:2] == ("count", "1")


def test_every_model_has_its_programs() -> None:
    assert {kind for entry in FAMILIES for kind in entry.models} == set(MODEL_KINDS.classes())
    for kind in MODEL_KINDS.classes():
        model_family(ComponentSpec(kind))


def test_completion_is_idempotent_and_leaves_what_was_given(job: Callable[..., Job]) -> None:
    once = with_defaults(job())
    assert once.model.params["depth"] == 3
    assert once.model.params["bins"] == 32
    assert with_defaults(once) == once
    assert [kind.params for variant in once.defenses for kind in variant.chain] == [
        {"xi": 0.4, "sampled": False},
        {"count": 1, "mode": "replace"},
    ]
    assert once.attacks[1].params["eta"] is None
    check_job(once)


def test_a_whole_number_becomes_the_float_that_it_stands_for(job: Callable[..., Job]) -> None:
    """Rows and names of folders would differ between ``xi = 1`` and ``xi = 1.0`` else."""
    one, other = (with_defaults(job(defense=[{"kind": "id-lmid", "xi": xi}], attack=None)) for xi in (1, 1.0))
    assert repr(one) == repr(other)
    assert variant_without_defaults(one.defenses[0]).slug == "id-lmid-xi-1.0"


def test_names_hold_the_first_parameter_and_what_differs_from_defaults(job: Callable[..., Job]) -> None:
    local = [{"kind": "local-trees"}, {"kind": "local-trees", "count": 2}, {"kind": "local-trees", "mode": "add"}]
    made = with_defaults(job(defense=local, attack=[{"kind": "id2graph"}, {"kind": "id2graph", "eta": 1, "starts": 3}]))
    assert [variant_without_defaults(variant).slug for variant in made.variants()] == [
        "none",
        "local-trees-count-1",
        "local-trees-count-2",
        "local-trees-count-1-mode-add",
    ]
    assert [without_defaults(attack).label for attack in made.attacks] == ["id2graph", "id2graph (eta 1.0, starts 3)"]


def test_a_key_that_no_engine_makes(job: Callable[..., Job]) -> None:
    odd = replace(job(), encryption=EncryptionSection(engine="paillier", bits=2050))
    with refused(EncryptionError, "range", field="[encryption] bits", value=2050):
        check_job(odd)


def test_workers_default_to_the_cores() -> None:
    import os

    engine = make_engine(EncryptionSection(engine="plain", insecure=True))
    assert engine.workers == len(os.sched_getaffinity(0))
    assert make_engine(EncryptionSection(engine="plain", insecure=True, workers=3)).workers == 3


def test_parties_of_a_rehearsal_share_cores_and_have_no_limit_unless_one_is_given() -> None:
    for section, limit in (({}, None), ({"memory_limit": "2 KiB"}, 2048)):
        made = make_engine(EncryptionSection(engine="plain", insecure=True, **section))
        assert (made.background, made.memory_limit) == (False, limit)
    assert make_engine(EncryptionSection(engine="plain", insecure=True), background=True).background


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_names_only_what_there_is(file: Path) -> None:
    check_job(with_defaults(load_job(file)))


def test_an_engine_that_hides_nothing_needs_the_flag(job: Callable[..., Job]) -> None:
    plain = replace(job(), encryption=EncryptionSection(engine="plain"))
    with refused(JobError, "insecure", field="[encryption] engine", value="plain"):
        with_defaults(plain)
