"""The parts of MixMatch against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from labelward.attacks.nets.completion import fit_completion, inference_head
from labelward.attacks.nets.mixmatch import (
    EmaWeights,
    MixMatchConfig,
    entropy_margin,
    linear_rampup,
    mixmatch_loss,
    mixtext_loss,
    mixup,
    repeated_permutations,
    sharpen,
    train_mixmatch,
    without_tokens,
)
from labelward.errors import DataError

torch.set_num_threads(1)

RECIPE = MixMatchConfig(
    steps=200,
    batch_size=8,
    learning_rate=0.01,
    unlabeled_weight=1.0,
    temperature=0.8,
    alpha=0.75,
    average=0.99,
    shrink=0.0,
)


def changed(**changes):
    return MixMatchConfig(**({name: getattr(RECIPE, name) for name in MixMatchConfig.__dataclass_fields__} | changes))


def test_sharpen_by_hand():
    # T = 1/2 squares: .6² : .3² : .1² = 36 : 9 : 1
    sharp = sharpen(torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64), 0.5)
    torch.testing.assert_close(sharp, torch.tensor([[36, 9, 1]], dtype=torch.float64) / 46)


def test_sharpen_keeps_at_one_and_never_raises_the_entropy():
    p = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(5), 50))
    torch.testing.assert_close(sharpen(p, 1.0), p)
    before, after = (-(q * q.log()).sum(1) for q in (p, sharpen(p, 0.8)))
    assert (after <= before + 1e-12).all()
    assert sharpen(torch.tensor([[1.0, 0.0]]), 0.8).tolist() == [[1.0, 0.0]]


def test_mixup_takes_a_share_for_each_pair_and_the_larger_part_of_the_first():
    first, second = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    p, q = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    x, y = mixup(first, second, p, q, torch.tensor([0.2, 0.7]))
    torch.testing.assert_close(x, torch.tensor([[0.8, 0.2], [0.7, 0.3]]))
    torch.testing.assert_close(y, torch.tensor([[0.8, 0.2], [0.85, 0.15]]))


def test_mixup_mixes_whole_images():
    first, second = torch.ones(2, 3, 4, 5), torch.zeros(2, 3, 4, 5)
    x, _ = mixup(first, second, torch.ones(2, 2), torch.ones(2, 2), torch.tensor([0.9, 0.5]))
    assert torch.equal(x[0], torch.full((3, 4, 5), 0.9))
    assert torch.equal(x[1], torch.full((3, 4, 5), 0.5))


def test_losses_by_hand():
    """Cross-entropy of the labeled row against (3/4, 1/4) at even odds is ln 2; squares: (.5² + .5²) / 2 classes."""
    logits = torch.zeros(2, 2, dtype=torch.float64)
    targets = torch.tensor([[0.75, 0.25], [1.0, 0.0]], dtype=torch.float64)
    assert mixmatch_loss(logits, targets, 1, 0.0).item() == pytest.approx(math.log(2))
    assert mixmatch_loss(logits, targets, 1, 4.0).item() == pytest.approx(math.log(2) + 4 * 0.25)
    assert mixmatch_loss(logits[:1], targets[:1], 1, 4.0).item() == pytest.approx(math.log(2))


def test_losses_are_means_over_rows():
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    labeled = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert mixmatch_loss(logits, targets, 2, 1.0).item() == pytest.approx(labeled + (0.25 + 0.0) / 2)


def test_the_ramp_begins_at_nothing_and_grows_evenly():
    assert [linear_rampup(step, 4) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_the_average_by_hand():
    """Shares 1, 10/11, 10/12, … of the present weights, until 1 − keep is more."""
    model = torch.nn.Linear(1, 1, bias=False)
    average = EmaWeights(model, keep=0.1, shrink=0.5)
    with torch.no_grad():
        model.weight.fill_(8.0)
    average.step()  # mean 8; the weight shrinks to 4
    assert model.weight.item() == 4.0
    average.step()  # 8 + 10/11 (4 − 8), and the weight to 2
    average.step()  # the share is now .9, more than 10/12
    assert model.weight.item() == 1.0
    second = 8 - 40 / 11
    average.give()
    assert model.weight.item() == pytest.approx(second + 0.9 * (2 - second), rel=1e-6)


def test_the_average_follows_running_statistics_and_shrinks_weights_alone():
    model = torch.nn.BatchNorm1d(2)
    average = EmaWeights(model, keep=0.0, shrink=0.5)
    with torch.no_grad():
        model.running_mean.fill_(6.0)
    average.step()
    assert model.running_mean.tolist() == [6.0, 6.0]
    assert model.weight.tolist() == [0.5, 0.5]
    average.give()
    assert model.weight.tolist() == [1.0, 1.0]


def test_the_head_begins_with_even_odds():
    made = inference_head(3, 4).eval()
    assert torch.equal(made(torch.randn(5, 3)).softmax(1), torch.full((5, 4), 0.25))
    assert torch.equal(made[2].weight, torch.ones(4, 3))


def test_rounds_take_every_row_before_any_comes_again():
    drawn = repeated_permutations(np.array([4, 7, 9]), 8, np.random.default_rng(1))
    assert sorted(drawn[:3]) == sorted(drawn[3:6]) == [4, 7, 9]
    assert len(drawn) == 8


def clouds(rows=400, seed=1):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    x = rng.normal(size=(rows, 2)) + 3.0 * np.column_stack([y, -y])
    return x.astype(np.float32), y


def test_unlabeled_rows_are_learned_from():
    """Two clouds, one labeled row each: what is told and what is guessed together find the gap between them."""
    x, y = clouds()
    model = inference_head(2, 2)
    known = (np.array([0, 1]), y[:2])
    loss = train_mixmatch(model, None, torch.from_numpy(x), known, 2, changed(steps=400), np.random.default_rng(2))
    found = model.eval()(torch.from_numpy(x)).argmax(1).numpy()
    assert (found == y).mean() > 0.95
    assert loss < math.log(2)


def test_all_rows_may_be_known():
    x, y = clouds(60)
    model = inference_head(2, 2)
    train_mixmatch(model, None, torch.from_numpy(x), (np.arange(60), y), 2, RECIPE, np.random.default_rng(2))
    assert (model.eval()(torch.from_numpy(x)).argmax(1).numpy() == y).mean() > 0.9


class Encoding(torch.nn.Module):
    """The one-hot code of one categorical column, as bottom models of tables begin."""

    def __init__(self):
        super().__init__()
        self.categories = {0: 3}

    def forward(self, x):
        return (x == torch.arange(3)).to(x.dtype)


class Watching(torch.nn.Module):
    """Keeps what it is shown."""

    def __init__(self):
        super().__init__()
        self.linear, self.shown = torch.nn.Linear(3, 4), []

    def forward(self, x):
        self.shown.append(x.detach())
        return self.linear(x)


def completed(bottom, x, **options):
    options = {"fine_tune": False, "mix": "inputs"} | options
    y = np.arange(len(x)) % 2
    return fit_completion(
        bottom.eval(), x, (np.arange(6), y[:6]), 2, changed(steps=5), rng=np.random.default_rng(1), **options
    )


def test_rows_are_mixed_behind_what_encodes_them():
    watching = Watching()
    codes = np.random.default_rng(1).integers(3, size=(40, 1)).astype(np.float32)
    completed(torch.nn.Sequential(Encoding(), watching), codes)
    shown = torch.cat(watching.shown)
    assert torch.allclose(shown.sum(1), torch.ones(len(shown)))  # mixtures of one-hot rows, not codes of mixtures
    assert ((shown > 0) & (shown < 1)).any()


@pytest.mark.parametrize("mix", ["inputs", "embeddings"])
@pytest.mark.parametrize("fine_tune", [False, True])
def test_a_frozen_bottom_model_stays_as_it_is(mix, fine_tune):
    """Its weights, and the running statistics of its normalization."""
    bottom = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU())
    before = {name: tensor.clone() for name, tensor in bottom.state_dict().items()}
    completed(bottom, clouds(60)[0], mix=mix, fine_tune=fine_tune)
    same = [torch.equal(tensor, before[name]) for name, tensor in bottom.state_dict().items()]
    assert all(same) is not fine_tune


def test_probabilities_are_of_each_row_alone():
    """Prediction does not depend on the rows beside a row, nor on the pieces that they come in."""
    x, _ = clouds(2500)
    made = completed(torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.BatchNorm1d(5)), x, fine_tune=True)
    whole = made.probabilities(x)
    np.testing.assert_allclose(whole.sum(1), 1, rtol=1e-6)
    # float32; products of one row and of a thousand may be added in another order
    np.testing.assert_allclose(made.probabilities(x[2000:2003]), whole[2000:2003], atol=1e-6)


# -- texts: MixText ----------------------------------------------------------------------------------------------------


def small_bert(seed=1, layers=2):
    from labelward.protocols.splitnn.models.bert import bert
    from labelward.protocols.splitnn.models.presets import initialize

    made = bert(50, 6, 8, layers=layers, width=16, heads=2).to_empty(device="cpu")
    initialize(made, np.random.default_rng(seed))
    return made.eval()


@pytest.mark.parametrize("layers", [1, 2, 3, 12])
def test_a_model_that_is_cut_gives_what_it_gives_as_a_whole(layers):
    """With padding, and a row of padding only."""
    model = small_bert(layers=layers)
    rows = torch.from_numpy(np.random.default_rng(2).integers(0, 50, (5, 6)))
    rows[1, 3:], rows[2] = 0, 0
    lower, upper = model.cut()
    with torch.no_grad():
        torch.testing.assert_close(upper(lower(rows)), model(rows))


def test_a_row_that_is_mixed_with_itself_stays_and_with_another_sees_the_tokens_of_both():
    model = small_bert()
    rows = torch.tensor([[5, 6, 7, 0, 0, 0], [8, 9, 10, 11, 12, 0]])
    lower, upper = model.cut()
    with torch.no_grad():
        hidden = lower(rows)
        p = torch.eye(2)
        alone, _ = mixup(hidden, hidden, p, p, torch.tensor([0.6, 0.6]))
        torch.testing.assert_close(upper(alone), model(rows))
        mixed, targets = mixup(hidden, hidden.flip(0), p, p.flip(0), torch.tensor([0.75, 0.75]))
    assert (mixed[:, :, -1] > 0).tolist() == [[True] * 5 + [False]] * 2
    torch.testing.assert_close(targets, torch.tensor([[0.75, 0.25], [0.25, 0.75]]))


def test_mixtext_losses_by_hand():
    """Equal logits: cross-entropy ln 2; divergence of (.9, .1) from halves; entropy ln 2 is .007 below the margin."""
    logits, targets = torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.9, 0.1]])
    divergence = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert float(mixtext_loss(logits, targets, 1, 2.0)) == pytest.approx(math.log(2) + 2 * divergence, abs=1e-6)
    assert float(mixtext_loss(logits[:1], targets[:1], 1, 2.0)) == pytest.approx(math.log(2), abs=1e-6)
    assert float(entropy_margin(logits)) == 0.0
    assert float(entropy_margin(torch.zeros(3, 4))) == pytest.approx(math.log(4) - 0.7, abs=1e-6)


def test_tokens_are_dropped_as_often_as_asked_but_the_first_stays():
    rows = torch.from_numpy(np.random.default_rng(3).integers(1, 50, (500, 21)))
    left = without_tokens(rows, 0.3, np.random.default_rng(4))
    assert (left[:, 0] == rows[:, 0]).all()
    assert ((left == rows) | (left == 0)).all()
    assert float((left[:, 1:] == 0).double().mean()) == pytest.approx(0.3, abs=0.023)  # five sd of 10,000 draws


@pytest.mark.slow
@pytest.mark.parametrize("fine_tune", [False, True])
def test_a_text_model_is_completed_by_mixtext(fine_tune):
    """The second token names the class; half of the unlabeled rows miss some others."""
    rng = np.random.default_rng(5)
    labels = np.arange(80) % 2
    rows = rng.integers(10, 50, (80, 6))
    rows[:, 0] = 1 + labels
    recipe = changed(steps=150, loss="mixtext", dropped=0.2)
    known = (np.arange(20), labels[:20])
    made = fit_completion(
        small_bert(), rows, known, 2, recipe, fine_tune=fine_tune, mix="hidden", rng=np.random.default_rng(6)
    )
    assert np.mean(made.probabilities(rows)[20:].argmax(1) == labels[20:]) > 0.9


def test_what_is_no_text_is_refused():
    linear = torch.nn.Linear(3, 2)
    rows, known = np.zeros((4, 3)), (np.array([0, 1]), np.array([0, 1]))
    for recipe, mix, field in ((changed(dropped=0.1), "inputs", "dropped"), (RECIPE, "hidden", "mix")):
        with pytest.raises(DataError) as caught:
            fit_completion(linear, rows, known, 2, recipe, fine_tune=False, mix=mix, rng=np.random.default_rng(1))
        assert caught.value.field == field
