"""Bottom models that differ between the parties: ``bottoms`` in job, training and share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from splitnets import Net, blobs

from labelward.data import load_dataset
from labelward.errors import Code, JobError
from labelward.federation.components import model_family, with_defaults
from labelward.job import Job, parse_job
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.share import NetShare
from refusals import refused


def net(**changes: Any) -> Net:
    parts, labels = blobs(2, 80, {"bank": 3, "telco": 2, "shop": 4})
    return Net(parts=parts, labels=labels, params=SplitNet(epochs=2, batch_size=16, **changes))


def test_each_party_trains_the_preset_that_it_was_given(tmp_path: Path) -> None:
    run = net(bottoms={"telco": "linear", "bank": "fcnn-3"}).run()
    presets = {"bank": "fcnn-3", "telco": "linear", "shop": "mlp"}
    shares = {"bank": run.active.share, **{party: each.share for party, each in run.passive.items()}}
    assert {party: share.bottom.spec.preset for party, share in shares.items() if share.bottom} == presets
    share = NetShare.load(shares["telco"].save(tmp_path / "model"))
    assert share.settings.bottoms == {"telco": "linear", "bank": "fcnn-3"}
    again = net(bottom="linear").run()
    same = again.passive["telco"].share.bottom
    assert share.bottom is not None
    assert same is not None
    assert {name: array.shape for name, array in share.bottom.state.items()} == {
        name: array.shape for name, array in same.state.items()
    }


def test_presets_that_are_named_again_change_nothing() -> None:
    named = net(bottoms={"telco": "mlp"}).run()
    plain = net().run()
    assert np.array_equal(named.active.outputs, plain.active.outputs)
    assert "bottoms" not in plain.active.share.params
    assert named.active.share.params["bottoms"] == {"telco": "mlp"}


def job_of(bottoms: Any, **model: Any) -> Job:
    given = {"kind": "splitnn", "batch_size": 32, "bottoms": bottoms, **model}
    return parse_job({"data": {"table": "breast_cancer"}, "parties": {"active": 0.5, "telco": 0.5}, "model": given})


def test_a_job_file_keeps_the_table_of_presets() -> None:
    job = with_defaults(job_of({"telco": "linear"}))
    again = parse_job(job.to_toml())
    assert again.model.params["bottoms"] == {"telco": "linear"}
    assert again.shared()["model.bottoms"] == {"telco": "linear"}
    assert hash(again.model) == hash(job.model.without("embedding"))  # None, which TOML lacks
    assert "bottoms" not in with_defaults(replace(job, model=job.model.without("bottoms"))).shared()


@pytest.mark.parametrize(
    ("bottoms", "code", "field", "value"),
    [
        ({"shop": "linear"}, "unknown", "[model] bottoms", "shop"),
        ({"telco": "linea"}, "unknown", "[model] bottoms.telco", "linea"),
        ({"telco": 3}, "unknown", "[model] bottoms.telco", 3),
        ({"telco": "module"}, "conflict", "[model] bottoms.telco", "module"),
        ("linear", "type", "[model] bottoms", "linear"),
        ({"telco": "resnet-20"}, "missing", "[model] height", None),
    ],
)
def test_tables_that_name_no_preset_of_a_party(bottoms: Any, code: Code, field: str, value: Any) -> None:
    with refused(JobError, code, field=field, value=value):
        job = with_defaults(job_of(bottoms))
        model_family(job.model).check(load_dataset(job, 1), {})


def test_a_table_for_a_parameter_that_is_none_is_refused() -> None:
    model = {"kind": "secureboost", "depth": {"a": 1}}
    job = parse_job({"data": {"table": "digits"}, "parties": {"active": 0.5, "telco": 0.5}, "model": model})
    with refused(JobError, "type", field="[model] depth", value={"a": 1}):
        with_defaults(job)
