"""MixMatch without data augmentation: a network learned from a few labeled rows and many unlabeled ones.

Reference: Berthelot et al., MixMatch (2019), as Appendix B of the label inference paper customizes it (Algorithms 4 and
5, Equations 4 to 7). Differences from the published code: each pair is mixed with a share of its own, as Algorithm 5
has it; the weights after the last step are used, not those selected with true labels; labeled and
unlabeled rows pass through the network together, so that normalization covers both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.nets._torch import nn, torch

MARGIN = 0.7
"""Entropy in nats that guesses of unlabeled texts may have, as MixText's published settings have it."""

_BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class MixMatchConfig:
    """Training parameters, named as in the completion attacks."""

    steps: int
    batch_size: int
    learning_rate: float
    unlabeled_weight: float
    temperature: float
    alpha: float
    average: float
    shrink: float
    loss: str = "mixmatch"
    dropped: float = 0.0


def sharpen(p: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return distributions [rows, classes] with less entropy (Equation 4): p^(1/T), scaled to sum 1."""
    powers = p.pow(1 / temperature)
    return powers / powers.sum(1, keepdim=True)


def mixup(
    first: torch.Tensor, second: torch.Tensor, p: torch.Tensor, q: torch.Tensor, shares: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and labels mixed pair by pair (Algorithm 5); each result is nearer to the first of its pair.

    Args:
        first, second: [rows, ...].
        p, q: [rows, classes], their labels' probabilities.
        shares: [rows], drawn from Beta(alpha, alpha); the larger of share and 1 − share is that of the first.
    """
    most = torch.maximum(shares, 1 - shares)
    wide = most.view(-1, *[1] * (first.ndim - 1))
    return second + wide * (first - second), q + most[:, None] * (p - q)


def linear_rampup(step: int, steps: int) -> float:
    """Return the share of the unlabeled rows' weight that counts at a step, from 0 at the first up to 1."""
    return step / steps


def mixmatch_loss(
    logits: torch.Tensor, targets: torch.Tensor, labeled: int, unlabeled_weight: float | torch.Tensor
) -> torch.Tensor:
    """Return L_X + weight · L_U (Equations 5 to 7).

    Args:
        logits, targets: [rows, classes]: the labeled rows first.
        labeled: number of labeled rows; there may be no others.
    """
    of_labeled = nn.functional.cross_entropy(logits[:labeled], targets[:labeled])
    if len(logits) == labeled:
        return of_labeled
    of_others = (logits[labeled:].softmax(1) - targets[labeled:]).square().mean()
    return of_labeled + unlabeled_weight * of_others


def mixtext_loss(
    logits: torch.Tensor, targets: torch.Tensor, labeled: int, unlabeled_weight: float | torch.Tensor
) -> torch.Tensor:
    """Return the losses of MixText: cross-entropy of labeled rows, Kullback-Leibler divergence of the others.

    Arguments as for :func:`mixmatch_loss`. Reference: Chen et al., MixText (2020), Section 3.
    """
    of_labeled = nn.functional.cross_entropy(logits[:labeled], targets[:labeled])
    if len(logits) == labeled:
        return of_labeled
    guesses = logits[labeled:].log_softmax(1)
    return of_labeled + unlabeled_weight * nn.functional.kl_div(guesses, targets[labeled:], reduction="batchmean")


def entropy_margin(logits: torch.Tensor, margin: float = MARGIN) -> torch.Tensor:
    """Return by how much the entropy of guesses exceeds a margin, on average (MixText, entropy minimization)."""
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    return (entropy - margin).clamp(min=0).mean()


def without_tokens(rows: torch.Tensor, share: float, rng: np.random.Generator) -> torch.Tensor:
    """Return rows of token numbers in which each token became padding with a probability; the first one stays."""
    dropped = torch.from_numpy(rng.random(tuple(rows.shape)) < share).to(rows.device)
    dropped[:, 0] = False
    return rows.masked_fill(dropped, 0)


class EmaWeights:
    """The exponential moving average of a model's weights and running statistics.

    While there were few steps, recent ones weigh more than ``keep`` says, so that the start does not stay on.

    Args:
        model: whose weights are followed.
        keep: share of the average that a step leaves, such as .999.
        shrink: share by which the model's trained weights shrink at each step (a weight decay, apart from Adam's).
    """

    def __init__(self, model: nn.Module, keep: float, shrink: float) -> None:
        self.keep, self.shrink, self.steps = keep, shrink, 0
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        trained = {id(weight) for weight in self._weights}
        numbers = [each for each in model.buffers() if each.is_floating_point() and id(each) not in trained]
        self._live = [weight.data for weight in self._weights] + numbers
        self._mean = [each.clone() for each in self._live]

    @torch.no_grad()
    def step(self) -> None:
        """Update the averages with the current weights, then shrink the weights."""
        self.steps += 1
        share = max(1 - self.keep, 10 / (9 + self.steps))
        for mean, live in zip(self._mean, self._live, strict=True):
            mean.lerp_(live, share)
        if self.shrink:
            for weight in self._weights:
                weight.mul_(1 - self.shrink)

    @torch.no_grad()
    def give(self) -> None:
        """Set the model's weights to the averages."""
        for mean, live in zip(self._mean, self._live, strict=True):
            live.copy_(mean)


def repeated_permutations(rows: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ``count`` of the rows: random permutations of all rows, one after another."""
    times = -(-count // len(rows))
    return np.concatenate([rng.permutation(rows) for _ in range(times)])[:count]


def train_mixmatch(
    model: nn.Module,
    encode: nn.Module | None,
    x: torch.Tensor,
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    classes: int,
    recipe: MixMatchConfig,
    rng: np.random.Generator,
) -> float:
    """Train a model that gives logits; return the mean loss of the last steps.

    Args:
        model: takes mixed rows; its weights become their average.
        encode: takes rows of ``x`` to what can be mixed, and is trained along; None: ``x`` is that already.
        x: [rows, ...].
        known: rows and their labels; all other rows are unlabeled.
        classes: number of classes.
        recipe: how.
        rng: gives all draws.
    """
    whole = model if encode is None else nn.ModuleList([encode, model])
    weights = [weight for weight in whole.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=recipe.learning_rate, fused=True)
    average = EmaWeights(whole, recipe.average, recipe.shrink)
    others = np.setdiff1d(np.arange(len(x)), known[0])
    truth = nn.functional.one_hot(torch.tensor(known[1]), classes).to(x.device, weights[0].dtype)
    truth_of = torch.full((len(x),), -1, dtype=torch.int64)
    truth_of[torch.tensor(known[0])] = torch.arange(len(known[0]))
    half = recipe.batch_size
    last: list[torch.Tensor] = []
    for step, (rows, pairs, shares) in enumerate(_draws(known[0], others, recipe, rng)):
        raw = x[rows]
        if recipe.dropped:
            raw = torch.cat([raw[:half], without_tokens(raw[half:], recipe.dropped, rng)])
        own = raw if encode is None else encode(raw)
        targets = truth[truth_of[rows[:half]]]
        if len(rows) > half:
            with torch.no_grad():
                guessed = model(own[half:]).softmax(1)
                if recipe.dropped and encode is not None:  # a guess from the whole text and one from its part
                    guessed = (guessed + model(encode(x[rows[half:]])).softmax(1)) / 2
                guessed = sharpen(guessed, recipe.temperature)
            targets = torch.cat([targets, guessed])
        mixed, targets = mixup(own, own[pairs], targets, targets[pairs], shares.to(own.device, own.dtype))
        weight = recipe.unlabeled_weight * linear_rampup(step, recipe.steps)
        if recipe.loss == "mixtext":
            loss = mixtext_loss(model(mixed), targets, half, weight)
            if len(rows) > half:
                loss = loss + entropy_margin(model(own[half:]))
        else:
            loss = mixmatch_loss(model(mixed), targets, half, weight)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.step()
        if step >= recipe.steps - 20:
            last.append(loss.detach())
    average.give()
    return float(torch.stack(last).mean())


def _draws(
    known: NDArray[np.int64], others: NDArray[np.int64], recipe: MixMatchConfig, rng: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield for each step its rows (labeled ones first), the partner of each within the batch, and shares."""
    half, groups = recipe.batch_size, [each for each in (known, others) if len(each)]
    for start in range(0, recipe.steps, _BLOCK):
        count = min(_BLOCK, recipe.steps - start)
        rows = np.concatenate([_sampled(each, count, half, rng) for each in groups], axis=1)
        pairs = rng.permuted(np.tile(np.arange(rows.shape[1]), (count, 1)), axis=1)
        shares = rng.beta(recipe.alpha, recipe.alpha, size=rows.shape)
        yield from zip(*(torch.from_numpy(each).unbind() for each in (rows, pairs, shares)), strict=True)


def _sampled(rows: NDArray[np.int64], count: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return repeated_permutations(rows, count * size, rng).reshape(count, size)
