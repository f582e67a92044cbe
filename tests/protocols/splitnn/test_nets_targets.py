"""What a network is fitted to where policies replace labels, and the active party's side without a bottom model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from splitnets import Net, Run, blobs
from torch import nn

from crossing import crossed
from fixed_seeds import FIXED
from labelward.defenses._perceptron import drawn_perceptron
from labelward.defenses.coae import Coae, loss_gradients
from labelward.defenses.label_dp import LpMst, RandomizedLabels
from labelward.defenses.lpsc import Lpsc, adaboost_weights, l2, logitboost, vote_weight
from labelward.defenses.mid import Mid
from labelward.errors import JobError, PolicyError
from labelward.messages.splitnn import BatchEmbeddings, BatchGradients, EmbeddingAnswer, EpochEnd, EpochOrder
from labelward.party.in_process import standalone_context
from labelward.policy.base import Policy, TrainingTargets
from labelward.policy.net_points import OutgoingEmbedding
from labelward.protocols.splitnn.active import combine_outputs
from labelward.protocols.splitnn.models.bottleneck import normal_divergence
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.session import net_policy_context
from labelward.protocols.splitnn.share import LocalPart, StoredModel
from labelward.protocols.splitnn.targets import OwnColumnsNet
from labelward.rng import PrivateSeed, SecureRandom
from refusals import refused

WIDTHS = {"bank": 3, "telco": 3, "shop": 2}
CODINGS = ("logitboost", "adaboost", "l2", "offset")


def one_output(**changes: Any) -> SplitNet:
    given = {"top": False, "bottom": "linear", "loss": "logistic", "active_bottom": False, "epochs": 3}
    return SplitNet(**{**given, "batch_size": 16, "learning_rate": 0.1, "dtype": "float64", **changes})


def net(*policies: Policy, rows: int = 60, validation: int = 0, **changes: Any) -> Net:
    parts, labels = blobs(3, rows + validation, WIDTHS)
    labels = np.where(np.random.default_rng(0).random(len(labels)) < 0.2, 1 - labels, labels)
    return Net(
        parts=parts, labels=labels, params=one_output(**changes), policies={"bank": policies}, validation=validation
    )


def sent(run: Run, kind: type[Any], to: str, party: str) -> dict[Any, NDArray[Any]]:
    return {
        each.step: each.message.values.value.unpack() for each in run.views[to].received(kind) if each.peer == party
    }


class Seen(Policy):
    """Keeps the targets that reach it."""

    kind = "seen"
    given: TrainingTargets

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        self.given = targets
        return targets


@dataclass(frozen=True, kw_only=True)
class Kept(Lpsc):
    """Keeps what it answered."""

    answer: ClassVar[TrainingTargets]

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        Kept.answer = super().before_targets(targets)
        return Kept.answer


# -- one output, no bottom model of the active party -------------------------------------------------------------------


def test_the_active_partys_columns_enter_no_network() -> None:
    given = net()
    run, other = given.run(), given.run(parts={**given.parts, "bank": 9 + given.parts["bank"]})
    assert run.active.share.bottom is None
    for party in ("telco", "shop"):
        assert run.views[party].digest() == other.views[party].digest()
    assert "active_bottom" not in SplitNet().parameters()  # stored models and jobs are what they were
    assert run.active.share.params["active_bottom"] is False
    assert b"local" not in msgspec.msgpack.encode(run.active.share)


def test_one_output_is_two_outputs_whose_difference_it_is() -> None:
    """Its probability is the logistic function of the sum of the parts."""
    run = net().run()
    outputs = run.active.outputs
    assert outputs.shape == (60, 1)
    found = run.active.share.objective.predicted(outputs)
    assert np.allclose(found, np.hstack([1 / (1 + np.exp(outputs)), 1 / (1 + np.exp(-outputs))]), atol=1e-12)
    loss = nn.functional.binary_cross_entropy_with_logits(torch.zeros(60), torch.from_numpy(net().labels).float())
    assert run.active.history[0].train.loss < 2 * float(loss)


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["logitboost", "l2", "offset"])
def test_the_gradients_of_the_only_passive_party_tell_own_predictions(coding: str) -> None:
    """Without a top model: weight and residual of each row from the gradients of two epochs, the offset from one.

    The party knows its embeddings h, the rows of each batch and their order: g = w (h - r), or g = p(F + h) - y.
    """
    given = net(Kept(coding=coding), epochs=2)  # type: ignore[arg-type]
    run = replace(given, parts={name: given.parts[name] for name in ("bank", "telco")}).run()
    orders = [each.rows.unpack() for each in run.views["telco"].observed(EpochOrder)]
    embedded, gradient = np.empty((2, 60)), np.empty((2, 60))
    for filled, found in (
        (embedded, sent(run, BatchEmbeddings, "bank", "telco")),
        (gradient, {step: len(each) * each for step, each in sent(run, BatchGradients, "telco", "bank").items()}),
    ):
        for place, (epoch, order) in enumerate(zip(sorted({step[0] for step in found}), orders, strict=True)):
            filled[place, order] = np.concatenate([found[step][:, 0] for step in sorted(found) if step[0] == epoch])
    if coding == "offset":
        labels = (gradient[0] < 0).astype(float)
        shares = gradient[0] + labels
        np.testing.assert_allclose(np.log(shares / (1 - shares)) - embedded[0], Kept.answer.offset, atol=1e-9)
        np.testing.assert_array_equal(labels, given.labels)
        return
    weight = np.diff(gradient, axis=0)[0] / np.diff(embedded, axis=0)[0]
    np.testing.assert_allclose(weight, Kept.answer.weights, rtol=1e-6)
    np.testing.assert_allclose(embedded[0] - gradient[0] / weight, Kept.answer.values, atol=1e-6)
    np.testing.assert_array_equal(Kept.answer.values > 0, given.labels == 1)


@pytest.mark.parametrize("policy", [RandomizedLabels(epsilon=0.5), LpMst(epsilon=0.5)])
@pytest.mark.parametrize("params", [{}, {"top": True, "active_bottom": True, "loss": "weighted"}], ids=str)
def test_a_network_learns_from_noisy_labels_alone(policy: Policy, params: dict[str, Any]) -> None:
    """Class weights, gradients and what later policies see follow from them; a run on them as labels is the same."""
    seen = Seen()
    given = net(policy, seen, **params)
    run = given.run()
    noisy = seen.given.values
    assert 0 < (noisy != given.labels).mean() < 0.7  # .38 ± .06
    assert np.array_equal(seen.given.labels, noisy)
    plain = given.run(labels=noisy.astype(np.int64), policies={})
    for party in ("telco", "shop"):
        ours, theirs = sent(run, BatchGradients, party, "bank"), sent(plain, BatchGradients, party, "bank")
        assert all(np.array_equal(ours[step], theirs[step]) for step in theirs)
    spent = [each for each in run.views["bank"].applied() if each.get("kind") == policy.kind]
    assert {each["spent"] for each in spent} == {0.5}


def test_validation_labels_are_the_true_ones() -> None:
    run = net(RandomizedLabels(epsilon=0.1), validation=20).run()
    plain = net(validation=20).run()
    losses = [[each.validation.loss for each in one.active.history if each.validation] for one in (run, plain)]
    assert losses[0] != losses[1]
    assert all(math.isfinite(loss) for loss in losses[0])


def test_a_policy_of_targets_ends_the_account_of_separate_rows() -> None:
    params = SplitNet(top=False, bottom="linear", active_bottom=False)
    setup = {"classes": 2, "rows": 40, "active_columns": 3, "passive": ("telco",)}
    assert net_policy_context(params, **setup).separate
    assert not net_policy_context(params, **setup, policies=(Lpsc(),)).separate


# -- codes -------------------------------------------------------------------------------------------------------------


def test_codes_are_those_of_table_6() -> None:
    """Weights and residuals as negative gradients of each loss, by enumeration; and Theorem 3 for f in -1 and 1."""
    labels, logits = (each.ravel() for each in np.meshgrid([0.0, 1.0], np.linspace(-9, 9, 37)))
    p = 1 / (1 + np.exp(-logits))
    for row, (y, q) in enumerate(zip(labels, p, strict=True)):
        weight = max(q * (1 - q), 1e-6)
        assert logitboost(labels, logits)[0][row] == pytest.approx(weight, abs=1e-12)
        assert logitboost(labels, logits)[1][row] == pytest.approx(min(max((y - q) / weight, -4), 4), abs=1e-9)
        assert (l2(labels, logits)[0][row], l2(labels, logits)[1][row]) == (1.0, pytest.approx(y - q, abs=1e-12))
    assert logitboost(np.array([1.0]), np.array([-40.0])) == (pytest.approx([1e-6]), pytest.approx([4.0]))
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 2, 501).astype(float), rng.normal(size=501)
    logits += 2 * labels - 1
    alpha = vote_weight(labels, logits, np.ones(501))
    error = np.mean((logits > 0) != labels)
    assert alpha == pytest.approx(0.5 * math.log((1 - error) / error))
    weights, y, f = adaboost_weights(labels, logits, alpha), 2 * labels - 1, np.sign(logits)
    assert weights == pytest.approx(np.exp(-alpha * y * f) / np.exp(-alpha * y * f).sum())
    assert abs((weights * y * f).sum()) < 1e-12


@crossed(
    "coding,dtype,top",
    CODINGS,
    ["float64", "float32"],
    [False, True],
)
def test_gradients_are_those_of_the_joined_network(coding: Any, dtype: str, top: bool) -> None:
    """Every batch of the first epoch, from the embeddings that were sent, with torch's own losses."""
    given = net(Kept(coding=coding), dtype=dtype, top=top, **({"top_model": "linear"} if top else {}))
    run = given.run()
    targets, tolerance = Kept.answer, 1e-12 if dtype == "float64" else 1e-6
    order = next(run.views["telco"].observed(EpochOrder)).rows.unpack()
    embeddings = [sent(run, BatchEmbeddings, "bank", party) for party in ("telco", "shop")]
    if top:  # the first batch, before the top model's first step
        assert run.active.share.top is not None
        module: nn.Module | None = run.active.share.top.untrained(given.params, torch.Generator())
    for batch, start in enumerate(range(0, 16 if top else 60, 16)):
        rows = order[start : start + 16]
        parts = [torch.from_numpy(each[0, batch].copy()).requires_grad_() for each in embeddings]
        out = combine_outputs(parts, module if top else None)[:, 0]
        y, w, f = (
            torch.from_numpy(each[rows].astype(dtype)) for each in (targets.values, targets.weights, targets.offset)
        )
        losses = (y - out) ** 2 / 2 if targets.loss == "residuals" else torch.log1p(torch.exp(-(2 * y - 1) * (f + out)))
        (w * losses).mean().backward()  # weights are not normalized (Table 6)
        for party, part in zip(("telco", "shop"), parts, strict=True):
            assert part.grad is not None
            assert np.abs(sent(run, BatchGradients, party, "bank")[0, batch] - part.grad.numpy()).max() < tolerance


class Silent(Policy):
    """Passive parties answer nothing at prediction."""

    kind = "silent"

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Any:
        return outgoing.values if outgoing.purpose != "prediction" else np.zeros_like(outgoing.values)


@pytest.mark.parametrize("coding", CODINGS)
def test_what_the_own_columns_tell_is_added_at_prediction(coding: Any) -> None:
    """Beside parties that say nothing the prediction is the own model's, exactly."""
    policies = {"bank": Kept(coding=coding), "telco": Silent(), "shop": Silent()}
    run = net(epochs=5).run(policies=policies)
    term = Kept.answer.local
    assert term is not None
    logits = term.model.logits
    assert logits.std() > 0.3
    own = np.where(logits > 0, term.weight, -term.weight) if coding == "adaboost" else logits
    assert run.active.outputs[:, 0] == pytest.approx(own, abs=0 if coding in ("offset", "logitboost") else 1e-12)


def test_the_scale_is_the_best_of_the_validation_rows() -> None:
    given = net(Lpsc(coding="offset", scale="validation"), rows=200, validation=100, epochs=6)
    run = given.run()
    local = run.active.share.local
    assert isinstance(local, LocalPart)
    assert local.scale != 1.0
    logits = local.logits(given.params, given.parts["bank"])
    plain = given.run(policies={"bank": Lpsc(coding="offset")})
    outputs = (plain.active.outputs - logits)[200:]

    def loss(scale: float) -> float:
        margins = logits[200:] + scale * outputs
        return float(np.logaddexp(0.0, np.where(given.labels[200:, None] > 0, -margins, margins)).mean())

    assert loss(local.scale) <= min(map(loss, np.linspace(0, 4, 401))) + 1e-6
    assert np.allclose(run.active.outputs[200:], logits[200:] + local.scale * outputs)
    for party in ("telco", "shop"):
        assert run.views[party].digest() == plain.views[party].digest()


def test_labels_are_joined_by_logistic_regression() -> None:
    """The network is the undefended one, bit for bit; the three numbers are those of a general solver."""
    given = net(Lpsc(coding="labels"), rows=300, validation=200, epochs=6)
    run, plain = given.run(), given.run(policies={})
    for party in ("telco", "shop"):
        assert run.views[party].digest() == plain.views[party].digest()
    local = run.active.share.local
    assert isinstance(local, LocalPart)
    logits, outputs = local.logits(given.params, given.parts["bank"]), plain.active.outputs
    inputs, labels = np.hstack([outputs, logits])[300:], given.labels[300:]
    solved = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(inputs, labels)
    assert [local.scale, local.weight] == pytest.approx(solved.coef_[0], abs=1e-3)
    assert local.bias == pytest.approx(solved.intercept_[0], abs=1e-3)
    assert np.allclose(run.active.outputs, local.joined(outputs, logits))


def learner(rows: int, labels: NDArray[np.int64], parts: Mapping[str, NDArray[Any]], **changes: Any) -> OwnColumnsNet:
    given = Net(parts=parts, labels=labels, params=one_output(**changes))
    ctx = standalone_context("bank", seed=1, rows=rows, private=PrivateSeed(bytes(32)))
    return OwnColumnsNet(ctx=ctx, params=given.params, inputs=given.held("bank"), labels=given.targets())


@pytest.mark.slow
def test_no_model_saw_the_label_of_a_row_that_it_predicts() -> None:
    """Labels drawn at random are no better than chance out of fold, and learned by heart in fold."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(1500, 40)), rng.integers(0, 2, 1500)
    made = learner(1500, y, {"bank": x, "telco": x}, bottom="mlp", epochs=20, batch_size=64)
    out = made.out_of_fold(y.astype(float), 5)
    assert 0.47 <= roc_auc_score(y, out) <= 0.53
    made.epochs = 20
    inside = made.fitted(y.astype(float), np.ones(1500, bool)).logits
    assert roc_auc_score(y, inside) > 0.6


def test_a_label_that_is_flipped_leaves_its_rows_own_prediction() -> None:
    """Exactly where no early stopping looks at it."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60).astype(float)
    flipped = y.copy()
    flipped[7] = 1 - flipped[7]
    one, two = (
        learner(60, y.astype(int), {"bank": x, "telco": x}, epochs=1).out_of_fold(each, 3) for each in (y, flipped)
    )
    assert one[7] == two[7]
    assert (one != two).sum() > 30


# -- what stands between, and soft labels -----------------------------------------------------------------------------


def test_the_divergence_of_a_bottleneck_is_that_of_torch() -> None:
    rng = np.random.default_rng(0)
    mean, deviation = torch.from_numpy(rng.normal(size=(7, 3))), torch.from_numpy(rng.uniform(0.1, 2, (7, 3)))
    normal = torch.distributions.Normal
    slow = torch.distributions.kl_divergence(normal(mean, deviation), normal(0.0, 1.0)).sum(1).mean()
    assert normal_divergence(mean, deviation).item() == pytest.approx(slow.item(), abs=1e-9)


@pytest.mark.parametrize("top", [False, True])
def test_a_bottleneck_passes_a_draw_in_training_and_its_mean_afterwards(top: bool) -> None:
    """And what is returned is the gradient of the whole loss through it, first batch."""
    given = net(Mid(weight=0.3), top=top, **({"top_model": "linear"} if top else {}))
    run = given.run()
    share = run.active.share
    assert isinstance(share.between, StoredModel)
    module: Any = share.between.untrained(given.params, torch.Generator())
    parts = [
        torch.from_numpy(sent(run, BatchEmbeddings, "bank", party)[0, 0].copy()).requires_grad_()
        for party in ("telco", "shop")
    ]
    rows = next(run.views["telco"].observed(EpochOrder)).rows.unpack()[:16]
    y = torch.from_numpy(given.labels[rows].astype(float))
    rng = FIXED.learning(given.seed, 0, "bottleneck of batch 0")
    drawn = [rng.normal(size=tuple(part.shape)) for part in parts]
    passed, penalty = [], torch.zeros(()).double()
    for number, part in enumerate(parts):
        mean = module.means[number](part)
        deviation = nn.functional.softplus(module.spreads[number](part) - 0.5)
        passed.append(mean + deviation * torch.from_numpy(drawn[number]))
        penalty = penalty + normal_divergence(mean, deviation)
    untrained = share.top.untrained(given.params, torch.Generator()) if share.top else None
    out = combine_outputs(passed, untrained)[:, 0]
    (nn.functional.binary_cross_entropy_with_logits(out, y) + 0.3 * penalty).backward()
    for party, part in zip(("telco", "shop"), parts, strict=True):
        assert part.grad is not None
        assert np.abs(sent(run, BatchGradients, party, "bank")[0, 0] - part.grad.numpy()).max() < 1e-12
    embeddings = [sent(run, EmbeddingAnswer, "bank", party)[(0,)] for party in ("telco", "shop")]
    trained: Any = share.between.module(given.params)
    top_model = share.top.module(given.params) if share.top else None
    with torch.no_grad():
        means = [each(torch.from_numpy(x.copy())) for each, x in zip(trained.means, embeddings, strict=True)]
        assert run.active.outputs == pytest.approx(combine_outputs(means, top_model).numpy(), abs=1e-12)


@pytest.mark.parametrize("policy", [Mid(weight=0.0), Coae(weight=0.0)], ids=lambda each: each.kind)
def test_a_weight_of_0_is_undefended_bit_for_bit(policy: Policy) -> None:
    given = net(policy, loss="auto")
    run, plain = given.run(), given.run(policies={})
    for party in ("telco", "shop"):
        assert run.views[party].digest() == plain.views[party].digest()
    assert run.active.outputs.tobytes() == plain.active.outputs.tobytes()


def test_the_loss_of_soft_labels_is_that_of_torch() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(3, 3)), *drawn_perceptron(3, 5, 3, rng)]
    tensors = [torch.from_numpy(each.copy()).requires_grad_() for each in weights]
    soft, y = tensors[0].softmax(1), torch.arange(3)
    out = torch.relu(soft @ tensors[1] + tensors[2]) @ tensors[3] + tensors[4]
    own = nn.functional.nll_loss(soft.log(), y)
    entropy = -(soft * soft.log()).sum(1).mean()
    (10 * nn.functional.cross_entropy(out, y) - 0.7 * entropy - own).backward()
    for ours, tensor in zip(loss_gradients(weights, 0.7), tensors, strict=True):
        assert tensor.grad is not None
        assert np.abs(ours - tensor.grad.numpy()).max() < 1e-9


def test_soft_labels_hide_names_and_are_decoded() -> None:
    """No soft label is largest at its own class; predictions are as good as without; the validation loss is decoded."""
    soft, _ = Coae(weight=0.5).learned(3, np.random.default_rng(0))
    assert not (soft.argmax(axis=1) == np.arange(3)).any()
    assert soft.sum(axis=1) == pytest.approx(np.ones(3))
    parts, labels = blobs(3, 160, WIDTHS, 3)
    params = one_output(loss="auto", epochs=12)
    given = Net(parts=parts, labels=labels, params=params, classes=("0", "1", "2"), validation=40)
    plain, run = given.run(), given.run(policies={"bank": Coae(weight=0.5)})
    right = [float((each.active.outputs.argmax(1) == labels).mean()) for each in (plain, run)]
    assert right[1] > right[0] - 0.05
    last = run.active.history[-1].validation
    assert last is not None
    assert last.metric == pytest.approx(float((run.active.outputs[120:].argmax(1) == labels[120:]).mean()))


def generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("classes", [2, 4])
def test_neither_the_least_nor_the_largest_number_of_a_soft_label_names_its_class(classes: int) -> None:
    """In the published form one of them does, always; five deviations of 40 draws of an order."""
    policy, labels, named = Coae(weight=2.0, steps=60), np.arange(classes), np.zeros(2)
    for seed in range(40):
        rows = labels.astype(np.float64)
        given = TrainingTargets(
            values=rows,
            labels=rows,
            weights=np.ones(classes),
            offset=np.zeros(classes),
            loss="auto",
            classes=classes,
            learner=OwnColumnsNet.__new__(OwnColumnsNet),
            draw=partial(generator, seed),
            protection=SecureRandom(),
        )
        soft = policy.before_targets(given).values
        assert soft.shape == (classes, classes)
        named += [np.mean(soft.argmin(axis=1) == labels), np.mean(soft.argmax(axis=1) == labels)]
    assert np.abs(named / 40 - 1 / classes).max() < 5 * math.sqrt((1 / classes) * (1 - 1 / classes) / 40)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"active_bottom": True}, True),
        ({"loss": "auto"}, "auto"),
    ],
)
def test_set_ups_that_lpsc_refuses(changes: dict[str, Any], value: Any) -> None:
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value=value):
        net(Lpsc(), **changes).run()


def test_more_that_lpsc_refuses() -> None:
    given = net(Lpsc())
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value=0):
        given.run(parts={**given.parts, "bank": np.empty((60, 0))})
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value="validation"):
        given.run(policies={"bank": Lpsc(scale="validation")})
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value="labels"):
        given.run(policies={"bank": Lpsc(coding="labels")})
    with refused(JobError, "conflict", field="scale", value=2.0):
        Lpsc(coding="labels", scale=2.0)
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value="seen"):
        given.run(policies={"bank": (Lpsc(), Seen())})
    for labels in (np.zeros(8), np.array([0.0, 1.0] * 4)):
        with refused(PolicyError, "cannot-act", field="defense 'lpsc'", value=0.0 if labels.any() else 1.0):
            vote_weight(labels, 2 * labels - 1 if labels.any() else np.ones(8), np.ones(8))


# -- early stopping ----------------------------------------------------------------------------------------------------


class Given(Policy):
    """Stands for noise: what is fitted, and what decides when to stop, do not depend on the labels."""

    kind = "given"
    label_private = True

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        given = np.arange(len(targets.values)) % 2.0
        return replace(targets, values=given, labels=given, validation=np.arange(len(targets.validation)) % 2.0)


def test_when_a_network_stops_follows_from_released_labels_only() -> None:
    """True labels that are the opposite everywhere: the same embeddings, gradients and ends of epochs."""
    ends, shown = [], []
    for flipped in (False, True):
        made = net(Given(), rows=60, validation=30, patience=2, epochs=20, learning_rate=0.5)
        run = (replace(made, labels=1 - made.labels) if flipped else made).run()
        ends.append([(each.message.best, each.message.last) for each in run.views["telco"].received(EpochEnd)])
        shown.append(sent(run, BatchGradients, "telco", "bank"))
    assert ends[0] == ends[1]
    assert len(ends[0]) < 20
    assert all((shown[0][step] == shown[1][step]).all() for step in shown[0])


def test_without_patience_no_label_of_a_validation_row_reaches_a_policy() -> None:
    seen = Seen()
    net(seen, validation=10).run()
    assert not len(seen.given.validation)
