"""Presets: sizes that the papers state, first layers against the obvious, weights from the generator alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from splitnets import Net, blobs

from blames import refused_about
from labelward.errors import JobError
from labelward.protocols.splitnn.bottom_model import torch_generator
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.models.tabular import Hashed, TableEncoder
from labelward.protocols.splitnn.params import SplitNet
from labelward.rng import learning


def made(preset: str, inputs: tuple[int, ...], outputs: int, **others: Any) -> torch.nn.Module:
    spec = ModelSpec(preset=preset, inputs=inputs, outputs=outputs, **others)
    return build(spec, learning(1, "bank", 0, "test"), torch.float32)


def weights(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


@pytest.mark.parametrize(
    ("preset", "inputs", "outputs", "count"),
    [
        ("linear", (5,), 3, 18),
        ("resnet-20", (3, 32, 16), 10, 269_722),  # the methods page; He et al.: 0.27 M
        ("resnet-18", (3, 32, 16), 10, 11_173_962),  # as usually stated for CIFAR-10
        ("top fcnn-4", (20,), 10, 20 * 20 + 20 * 10 + 10 * 10 + 10 * 10 + 20 + 30 + 2 * (20 + 20 + 10 + 10)),
        ("bert-small", (64,), 10, 4_386_178 - 2 * 128 - 448 * 128 - 2 * 129 + 10 * 129),
    ],
)
def test_presets_have_the_sizes_that_are_known(preset: str, inputs: tuple[int, ...], outputs: int, count: int) -> None:
    """BERT-tiny has 4,386,178 weights with two segments, 512 positions and two outputs; ours 0, 64 and 10."""
    assert weights(made(preset, inputs, outputs)) == count


@pytest.mark.parametrize(
    ("preset", "shape"),
    [
        ("linear", (4,)),
        ("mlp", (4,)),
        ("fcnn-3", (4,)),
        ("hashed", (4,)),
        ("deepfm", (4,)),
        ("wdl", (4,)),
        ("nfm", (4,)),
        ("edcn", (4,)),
        ("resnet-20", (1, 28, 14)),
        pytest.param("resnet-18", (3, 8, 4), marks=pytest.mark.slow),
        ("bert-small", (12,)),
    ],
)
def test_every_preset_trains(preset: Any, shape: tuple[int, ...]) -> None:
    """Two parties of the preset: all gradients arrive, and the loss of so few rows falls."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    x = rng.integers(1, 99, (24, *shape)) if preset == "bert-small" else rng.normal(size=(24, *shape))
    if preset == "bert-small":
        x[:, 0] = 1 + y
        x[3, 5:] = 0
    else:
        x += y.reshape(24, *(1 for _ in shape))
    parts = {"bank": x, "telco": x[::-1].copy()[::-1]}
    epochs = 2 if preset == "resnet-18" else 6
    params = SplitNet(
        bottom=preset, epochs=epochs, batch_size=12, top_model="linear", vocabulary=100, learning_rate=0.02
    )
    history = Net(parts=parts, labels=y, params=params).run().active.history
    assert history[-1].train.loss < history[0].train.loss


def test_weights_come_from_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = made("resnet-20", (1, 8, 8), 4), made("resnet-20", (1, 8, 8), 4)
    other = build(
        ModelSpec(preset="resnet-20", inputs=(1, 8, 8), outputs=4), learning(2, "bank", 0, "test"), torch.float32
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    states = [torch.cat([weight.flatten() for weight in each.parameters()]) for each in (first, second, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert all(bool(state.isfinite().all()) for state in states)


def test_parties_start_with_weights_of_their_own() -> None:
    parts, y = blobs(0, 20, {"bank": 3, "telco": 3})
    params = SplitNet(epochs=1, batch_size=20, learning_rate=1e-12, bottom="linear", top=False)
    run = Net(parts=parts, labels=y, params=params).run()
    assert not np.allclose(run.state("bank")["1.weight"], run.state("telco")["1.weight"])


def test_a_table_scales_numbers_and_spreads_categories() -> None:
    x = np.array([[1.0, 2.0, 7.0], [3.0, 0.0, 7.0], [np.nan, 1.0, 7.0], [5.0, -1.0, 7.0]])
    table = TableEncoder(3, {1: 3}).to_empty(device="cpu").double()
    table.reset_parameters()
    table.fit(torch.from_numpy(x))
    spread = np.std([1.0, 3.0, 5.0])
    expected = [
        [-2 / spread, 0, 0, 0, 1],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],  # a missing number is the mean
        [2 / spread, 0, 0, 0, 0],  # a category that training never met is none
    ]
    np.testing.assert_allclose(table(torch.from_numpy(x)).numpy(), expected, atol=1e-15)
    assert table.outputs == 5


FIELDS = {"mixed": {1: 3, 3: 2}, "numbers alone": {}, "categories alone": {0: 4, 1: 3, 2: 5, 3: 2}}


def described_recommender(module: Any, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return what a recommender gives for each row, worked out field by field from its papers' equations."""
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    kinds, outputs = sorted(module.categories.items()), state["weights.weight"].shape[1]
    numbers = [column for column in range(x.shape[1]) if column not in module.categories]

    def dense(values: NDArray[np.float64]) -> NDArray[np.float64]:
        for layer in (0, 2, 4):
            values = state[f"deep.{layer}.weight"] @ values + state[f"deep.{layer}.bias"]
            values = np.maximum(values, 0) if layer < 4 else values
        return values

    rows = []
    for row in x:
        scaled = [(row[column] - state["mean"][at]) / state["scale"][at] for at, column in enumerate(numbers)]
        scaled = [0.0 if np.isnan(value) else value for value in scaled]
        places, start = [], len(numbers)
        for column, count in kinds:
            known = 0 <= row[column] < count
            places.append(start + int(row[column] if known else count + (not np.isnan(row[column]))))
            start += count + 2
        total = np.zeros(outputs)
        for at, value in enumerate(scaled):
            total = total + value * state["weights.weight"][at]
        for place in places:
            total = total + state["weights.weight"][place]
        vectors = [state["vectors.weight"][place] for place in places]
        pairs = [a * b for number, a in enumerate(vectors) for b in vectors[:number]]
        products = np.sum(pairs, 0) if pairs else np.zeros(4)
        name = type(module).__name__
        if name in ("DeepFM", "WideAndDeep"):
            total = total + dense(np.array([*(one for vector in vectors for one in vector), *scaled]))
            total = total + (products.sum() if name == "DeepFM" else 0)
        elif name == "NFM":
            total = total + dense(np.array([*products, *scaled]))
        else:
            joined = vectors or [value * state["vectors.weight"][at] for at, value in enumerate(scaled)]
            for layer in (0, 1):
                gates = [np.exp(state[f"gates.{2 * layer + branch}.gate"]) for branch in (0, 1)]
                crossed, deep = (
                    np.concatenate([field * weight for field, weight in zip(joined, gate / gate.sum(), strict=True)])
                    for gate in gates
                )
                crossed = crossed * (state[f"crosses.{layer}.direction.weight"][0] @ crossed) + crossed
                crossed = crossed + state[f"crosses.{layer}.bias"]
                deep = np.maximum(state[f"deeps.{layer}.weight"] @ deep + state[f"deeps.{layer}.bias"], 0)
                joined = list((crossed * deep).reshape(-1, 4))
            total = total + state["last.weight"] @ np.concatenate([crossed, deep, *joined]) + state["last.bias"]
        rows.append(total)
    return rows


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("preset", ["deepfm", "wdl", "nfm", "edcn"])
def test_recommenders_equal_their_equations(preset: str, outputs: int, fields: str) -> None:
    """Missing and unknown values included."""
    rng, categories = np.random.default_rng(3), FIELDS[fields]
    x = rng.normal(1, 2, (40, 4))
    for column, count in categories.items():
        x[:, column] = rng.integers(-1, count, 40)
    x[rng.random(x.shape) < 0.1] = np.nan
    spec = ModelSpec(preset=preset, inputs=(4,), outputs=outputs, categories=categories)
    module = build(spec, learning(1, "bank", 0, "test"), torch.float64).eval()
    assert float(module.vectors.weight.detach().std()) == pytest.approx(1e-4, rel=0.3)
    module.fit(torch.from_numpy(x))
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(weight.shape))))
        found = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, described_recommender(module, x), rtol=1e-10, atol=1e-9)


def test_hashed_columns_are_a_linear_layer_over_wide_rows() -> None:
    """Each number and each category has one bucket: the same as a matrix product with those rows written out."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=50), rng.integers(0, 5, 50), rng.normal(size=50), rng.integers(0, 9, 50)])
    hashed = Hashed(4, {1: 5, 3: 9}, buckets=4096, outputs=6).to_empty(device="cpu").double()
    hashed.reset_parameters()
    with torch.no_grad():
        hashed.weight.copy_(torch.eye(4096, 6, dtype=torch.float64) * 0)
        hashed.weight.normal_(generator=torch_generator(1, "", "test"))
    out = hashed(torch.from_numpy(x)).detach().numpy()
    keys = [(0, None), *((1, code) for code in range(5)), (2, None), *((3, code) for code in range(9))]
    wide = np.array([[row[c] if code is None else float(row[c] == code) for c, code in keys] for row in x])
    solved, *_ = np.linalg.lstsq(wide, out, rcond=None)
    np.testing.assert_allclose(wide @ solved, out, atol=1e-10)  # a linear system of 16 unknowns in float64
    rows = {tuple(np.round(row, 6)) for row in solved}
    assert len(rows) == len(keys)  # of 4096 buckets these 16 keys share none


def test_padding_changes_nothing() -> None:
    """A BERT's answer for a text does not depend on what stands in padded places of other rows."""
    module = made("bert-small", (6,), 3, vocabulary=50).eval()
    short = torch.tensor([[5, 6, 7, 0, 0, 0]])
    both = torch.tensor([[5, 6, 7, 0, 0, 0], [1, 2, 3, 4, 5, 6]])
    np.testing.assert_allclose(module(short)[0].detach(), module(both)[0].detach(), atol=1e-6)  # float32
    assert bool(module(torch.zeros(1, 6)).isfinite().all())


def test_rows_of_the_wrong_kind_are_refused() -> None:
    with refused_about("not of 3 x", JobError, "unsupported", value=(3, 8, 8)):
        made("mlp", (3, 8, 8), 2)
