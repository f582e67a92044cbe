"""Images and texts whose pixels and tokens stand in the columns of a table, as a job has them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from labelward.auditing.audit import audit
from labelward.data import load_dataset
from labelward.errors import DataError, JobError
from labelward.federation.components import model_family
from labelward.job import ComponentSpec, DataSection, Job, LeakageSection, PartySection, RunSection
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from refusals import refused
from standing import listed

ROWS = 48


def _spec(**changes: object) -> ModelSpec:
    fields = {"preset": "resnet-20", "inputs": (2 * 6 * 4,), "outputs": 3, "image": (2, 6), **changes}
    return ModelSpec(**fields)  # type: ignore[arg-type]


def test_pixels_in_columns_are_the_image() -> None:
    flat = build(_spec(), torch.Generator().manual_seed(1), torch.float64).eval()
    whole = build(_spec(inputs=(2, 6, 4), image=()), torch.Generator().manual_seed(1), torch.float64).eval()
    images = torch.randn(5, 2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.equal(flat(images.flatten(1)), whole(images))


@pytest.mark.parametrize("columns", [0, 11, 13])
def test_columns_that_are_no_image_are_refused(columns: int) -> None:
    with refused(JobError, "conflict", field="[model] height", value=columns):
        build(_spec(inputs=(columns,)), torch.Generator(), torch.float32)


def _job(path: str, model: dict[str, object], count: int) -> Job:
    names = [f"c{at}" for at in range(2 * count)]
    return Job(
        data=DataSection(table=path, label="label", test_size=0.25),
        parties=(
            PartySection(name="active", columns=tuple(names[:count])),
            PartySection(name="telco", columns=tuple(names[count:])),
        ),
        model=ComponentSpec("splitnn", {"epochs": 1, "batch_size": 12, **model}),
        attacks=(ComponentSpec("passive-completion", {"auxiliary": 4, "steps": 4}),),
        leakage=LeakageSection(upper_bound=False),
        run=RunSection(seeds=(1,)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "count", "top"),
    [({"bottom": "resnet-20", "height": 4}, 8, 255.0), ({"bottom": "bert-small", "vocabulary": 50}, 6, 49.0)],
    ids=["images", "texts"],
)
def test_an_audit_takes_them(
    model: dict[str, object], count: int, top: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("columns")
    draw = np.random.default_rng(3)
    values = draw.integers(0, int(top) + 1, (ROWS, 2 * count)).astype(np.float64)
    table = {f"c{at}": values[:, at] for at in range(2 * count)}
    pq.write_table(pa.table({**table, "label": np.arange(ROWS) % 2}), folder / "table.parquet")
    (row,) = listed(audit(_job(str(folder / "table.parquet"), model, count), folder / "out"))
    assert row.leakage is not None
    assert 0 <= row.leakage["accuracy"] <= 1  # type: ignore[operator]
    assert set(row.leakage["beside"]) == {"logistic", "boosted"}  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_before_training(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("columns") / "table.parquet")
    values = np.random.default_rng(3).normal(size=(ROWS, 4))
    pq.write_table(pa.table({**{f"c{at}": values[:, at] for at in range(4)}, "label": np.arange(ROWS) % 2}), path)

    def check(model: dict[str, object]) -> None:
        job = _job(path, model, 2)
        model_family(job.model).check(load_dataset(job, 1), {})

    with refused(JobError, "missing", field="[model] height"):
        check({"bottom": "resnet-20"})
    with refused(JobError, "choice", field="[model] bottom", value="module"):
        check({"bottom": "module"})
    with refused(DataError, "values", field="party 'active'"):
        check({"bottom": "bert-small", "vocabulary": 50})
    with refused(JobError, "conflict", field="[model] channels", value=3):
        check({"bottom": "mlp", "channels": 3})
