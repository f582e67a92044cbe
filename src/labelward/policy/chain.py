"""Several policies as one: how their answers are joined, how often each acted, and which points they need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.messages.base import Released, Releaser, RowMask
from labelward.messages.tree import NodeSplit, WinningSplit
from labelward.policy.base import (
    HOLDER_POINTS,
    NET_POINTS,
    BinCounts,
    CandidateSplits,
    FinishedTree,
    KnownInstanceSpaces,
    LeafWeights,
    Policy,
    PolicyContext,
    Schedule,
    SplitReveal,
    TrainingTargets,
    TreeRepair,
)
from labelward.policy.holder_points import HolderSums, LeafRelease
from labelward.policy.net_points import ActiveModel, OutgoingEmbedding, ReturnedGradient, Values
from labelward.rng import SecureRandom

Floats = NDArray[np.float64]

TALLIES = (
    "refused_candidates",
    "hidden_splits",
    "given_up_splits",
    "skipped_trees",
    "regrown_nodes",
    "changed_values",
    "dropped_values",
)
"""How often a policy acted: candidates that may not be chosen, splits whose children some party may not see, splits
that their owner may not know, trees in which some party may take no part, and nodes below which a finished tree was
grown anew; numbers of embeddings and gradients that leave as others than they were, and those among them that leave as
0."""

T = TypeVar("T")

_TREE_BEGINS = -1
"""The node of :class:`KnownInstanceSpaces` when a tree begins."""
_REMEMBERED_TREES = 256
"""Decisions on older trees are dropped; far more trees than grow side by side."""


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    """What a chain remembers, policy by policy.

    Attributes:
        tallies: how often each acted.
        told: what each told of the targets, as MessagePack.
        states: what each keeps itself.
    """

    tallies: tuple[dict[str, int], ...]
    told: tuple[bytes, ...]
    states: tuple[bytes, ...]


class PolicyChain(Releaser):
    """Several policies in order: values pass through each; candidates and viewers must please all."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.policies: tuple[Policy, ...] = tuple(policies)
        self._points = tuple(policy.points for policy in self.policies)
        self._tallies = [dict.fromkeys(TALLIES, 0) for _ in self.policies]
        self._viewers: dict[int, dict[int, frozenset[str]]] = {}  # tree → node → who may see its children
        self._informed: dict[int, set[tuple[str, int]]] = {}  # tree → (party, node) that before_rows admitted
        self._told: list[Mapping[str, Any]] = [{} for _ in self.policies]

    @property
    def purities(self) -> bool:
        """Whether any policy needs class counts."""
        return any(policy.purities for policy in self.policies)

    @property
    def bins(self) -> NDArray[np.int64] | None:
        """The classes that stand for quantities, int64 [rows], where a policy brings them."""
        return next((policy.bins for policy in self.policies if policy.bins is not None), None)

    def at(self, point: str) -> tuple[Policy, ...]:
        """Return the policies that act at a point."""
        return tuple(self.policies[position] for position in self._acting(point))

    @property
    def drawing(self) -> tuple[Policy, ...]:
        """The policies that draw when a run of a split network begins, or for its targets."""
        return tuple(
            policy
            for policy, points in zip(self.policies, self._points, strict=True)
            if type(policy).begin is not Policy.begin or ("before_targets" in points and not policy.repeatable)
        )

    def accounts(self) -> list[dict[str, Any]]:
        """Return what each policy did: kind, parameters, points, how often it acted, and what it tells itself."""
        found = []
        for policy, tally, told in zip(self.policies, self._tallies, self._told, strict=True):
            named = {"kind": policy.kind, "parameters": policy.parameters(), "points": sorted(policy.points)}
            found.append({**named, **tally, **told, **policy.account()})
        return found

    def tally(self) -> dict[str, int]:
        """Return how often policies acted, all together."""
        return {name: sum(tally[name] for tally in self._tallies) for name in TALLIES}

    def state(self) -> ChainState:
        """Return what is to be remembered where a run is cut off and goes on."""
        states = tuple(policy.state() for policy in self.policies)
        told = tuple(msgspec.msgpack.encode(each) for each in self._told)
        return ChainState(tallies=tuple(dict(each) for each in self._tallies), told=told, states=states)

    def resume(self, state: ChainState) -> None:
        """Take in what :meth:`state` returned."""
        self._tallies = [dict(each) for each in state.tallies]
        self._told = [msgspec.msgpack.decode(each) for each in state.told]
        for policy, own in zip(self.policies, state.states, strict=True):
            policy.resume(own)

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """See :meth:`Policy.begin`."""
        for policy in self.policies:
            policy.begin(setup, protection)

    def schedule(self, schedule: Schedule) -> Schedule:
        """See :meth:`Policy.schedule`."""
        peers = frozenset[str]().union(*schedule.participants)
        for policy in self.at("schedule"):
            schedule = policy.schedule(schedule)
            if not schedule.participants or not all(each <= peers for each in schedule.participants):
                raise PolicyError(
                    f"defense {policy.kind!r} left no tree, or named parties that do not exist",
                    code="cannot-act",
                    value=policy.kind,
                )
        return schedule

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """See :meth:`Policy.before_targets`."""
        for position, policy in enumerate(self.policies):
            if "before_targets" not in policy.points:
                continue
            rows, validation = targets.weights.shape, targets.validation.shape
            targets = policy.before_targets(targets)
            self._told[position], targets = dict(targets.account), replace(targets, account={})
            for name in ("values", "labels", "weights", "offset"):
                given = getattr(targets, name)
                if given.shape[: 1 if name == "values" else None] != rows or not np.isfinite(given).all():
                    raise PolicyError(
                        f"defense {policy.kind!r} gave {name} that are not one finite number a row",
                        code="cannot-act",
                        value=policy.kind,
                    )
            if targets.validation.shape != validation or not np.isfinite(targets.validation).all():
                raise PolicyError(
                    f"defense {policy.kind!r} gave labels of validation rows that are not one finite number a row",
                    code="cannot-act",
                    value=policy.kind,
                )
        return targets

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """See :meth:`Policy.split_candidates`."""
        allowed = np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = np.asarray(policy.split_candidates(candidates))
            if answer.shape != allowed.shape or answer.dtype != np.bool_:
                raise PolicyError(
                    f"defense {policy.kind!r} did not answer for every candidate", code="cannot-act", value=policy.kind
                )
            tally["refused_candidates"] += int(answer.size - np.count_nonzero(answer))
            allowed &= answer
        return allowed

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """See :meth:`Policy.before_instance_space`."""
        viewers = reveal.participants
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = frozenset(policy.before_instance_space(reveal))
            if reveal.owner in reveal.participants - answer:
                tally["given_up_splits"] += 1
            elif reveal.participants - answer:
                tally["hidden_splits"] += 1
            viewers &= answer
        _of_tree(self._viewers, reveal.tree, {})[reveal.node] = viewers
        return viewers

    def before_rows(self, rows: KnownInstanceSpaces) -> bool:
        """See :meth:`Policy.before_rows`; all must agree."""
        allowed = True
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            if not policy.before_rows(rows):
                tally["skipped_trees" if rows.node < 0 else "hidden_splits"] += 1
                allowed = False
        if allowed:
            _of_tree(self._informed, rows.tree, set()).add((rows.party, rows.node))
        return allowed

    def after_rows(self, rows: KnownInstanceSpaces) -> None:
        """See :meth:`Policy.after_rows`."""
        for policy in self.at("after_rows"):
            policy.after_rows(rows)

    def before_leaf_weights(self, leaves: LeafWeights) -> Floats:
        """See :meth:`Policy.before_leaf_weights`."""
        for policy in self.at("before_leaf_weights"):
            weights = np.asarray(policy.before_leaf_weights(leaves), dtype=np.float64)
            if weights.shape != leaves.weights.shape or not np.isfinite(weights).all():
                raise PolicyError(
                    f"defense {policy.kind!r} did not answer for every leaf", code="cannot-act", value=policy.kind
                )
            leaves = LeafWeights(tree=leaves.tree, weights=weights, counts=leaves.counts)
        return leaves.weights

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        """See :meth:`Policy.after_tree`; what any policy wants is done, and nothing below a node that is regrown."""
        regrow, refit = frozenset[int](), False
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = policy.after_tree(tree)
            if not answer.regrow <= {*tree.nodes, *tree.leaves}:
                raise PolicyError(
                    f"defense {policy.kind!r} repairs nodes that the tree does not have",
                    code="cannot-act",
                    value=policy.kind,
                )
            if answer.regrow and not tree.alone:
                raise PolicyError(
                    f"defense {policy.kind!r} regrows a tree that later ones were fitted to",
                    code="cannot-act",
                    value=policy.kind,
                )
            tally["regrown_nodes"] += len(answer.regrow)
            regrow, refit = regrow | answer.regrow, refit or answer.refit
        return TreeRepair(regrow=frozenset(node for node in regrow if not _above(node) & regrow), refit=refit)

    def release_sample(self, peer: str, tree: int, rows: RowMask) -> Released[RowMask]:
        """Release the rows of a tree to a peer that :meth:`before_rows` admitted."""
        self._require_informed(peer, tree, _TREE_BEGINS)
        return self._released(rows)

    def release_splits(self, peer: str, tree: int, splits: tuple[NodeSplit, ...]) -> Released[tuple[NodeSplit, ...]]:
        """Release the rows of other parties' splits to a peer that may see the children of every one of them."""
        for split in splits:
            self._require_viewer(peer, tree, split.node)
            self._require_informed(peer, tree, split.node)
        return self._released(splits)

    def release_winners(
        self, peer: str, tree: int, splits: tuple[WinningSplit, ...]
    ) -> Released[tuple[WinningSplit, ...]]:
        """Release the splits that a peer owns; from them it learns their children."""
        for split in splits:
            self._require_viewer(peer, tree, split.node)
        return self._released(splits)

    def release_own_sides(self, splits: tuple[NodeSplit, ...]) -> Released[tuple[NodeSplit, ...]]:
        """Release which rows a party's own splits send left; no policy acts here."""
        return self._released(splits)

    def release_paths(self, rows: tuple[RowMask, ...]) -> Released[tuple[RowMask, ...]]:
        """Release which rows of a prediction table reach a peer's splits; no policy acts here."""
        return self._released(rows)

    def _require_viewer(self, peer: str, tree: int, node: int) -> None:
        viewers = self._viewers.get(tree, {}).get(node, frozenset())
        if peer not in viewers and self.at("before_instance_space"):
            self._refuse_release(peer, tree, node)

    def _require_informed(self, peer: str, tree: int, node: int) -> None:
        if (peer, node) not in self._informed.get(tree, ()) and self.at("before_rows"):
            self._refuse_release(peer, tree, node)

    @staticmethod
    def _refuse_release(peer: str, tree: int, node: int) -> None:
        raise PolicyError(
            f"rows of tree {tree}, node {node} may not be sent to {peer!r}: no defense was asked, or one refused",
            code="cannot-act",
            value=peer,
        )

    def before_histograms(self, counts: BinCounts) -> NDArray[np.int32]:
        """See :meth:`Policy.before_histograms`; each policy is asked about what the one before it answered."""
        for position in self._acting("before_histograms"):
            counts = replace(counts, cells=self.policies[position].before_histograms(counts))
        return counts.cells

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Released[Values]:
        """See :meth:`Policy.before_embedding`; each policy is asked about what the one before it answered."""
        for position in self._acting("before_embedding"):
            outgoing = replace(outgoing, values=_read_only(outgoing.values))
            answer = self.policies[position].before_embedding(outgoing)
            outgoing = replace(outgoing, values=self._counted(position, answer, outgoing.values))
        return self._released(outgoing.values)

    def active_model(self, model: ActiveModel) -> ActiveModel:
        """See :meth:`Policy.active_model`."""
        for policy in self.at("active_model"):
            model = policy.active_model(model)
        return model

    def on_returned_gradient(self, returned: ReturnedGradient) -> Released[Values]:
        """See :meth:`Policy.on_returned_gradient`; each policy is asked about what the one before it answered."""
        for position in self._acting("on_returned_gradient"):
            returned = replace(returned, values=_read_only(returned.values))
            answer = self.policies[position].on_returned_gradient(returned)
            returned = replace(returned, values=self._counted(position, answer, returned.values))
            if self.policies[position].promise is not None:  # what follows may read what leaves, and no label
                returned = replace(returned, targets=np.full_like(returned.targets, np.nan))
        return self._released(returned.values)

    def on_own_sums(self, sums: HolderSums) -> NDArray[np.int64]:
        """See :meth:`Policy.on_own_sums`; each policy is asked about what the one before it answered."""
        for position in self._acting("on_own_sums"):
            sums = replace(sums, values=_read_only(sums.values))
            answer = self.policies[position].on_own_sums(sums)
            sums = replace(sums, values=self._counted(position, answer, sums.values))
        return sums.values

    def sum_noise(self, setup: PolicyContext) -> float:
        """See :meth:`Policy.sum_noise`; of all policies together."""
        return math.hypot(*(policy.sum_noise(setup) for policy in self.policies))

    def on_leaf_release(self, release: LeafRelease) -> Released[Values]:
        """See :meth:`Policy.on_leaf_release`; each policy is asked about what the one before it answered."""
        for position in self._acting("on_leaf_release"):
            release = replace(release, weights=_read_only(release.weights))
            answer = self.policies[position].on_leaf_release(release)
            release = replace(release, weights=self._counted(position, answer, release.weights))
        return self._released(release.weights)

    def release_of_targets(self, value: T) -> Released[T]:
        """Release what depends on labels through the targets alone, which the policies decided before."""
        for policy in self.policies:
            if not policy.points <= {"before_targets"}:
                self._refuse_release("all parties", 0, 0)
        return self._released(value)

    def release_opened(self, value: T) -> Released[T]:
        """Release what follows from sums that every holder's policies saw before they were added up and opened."""
        for policy in self.policies:
            if not policy.points <= {*HOLDER_POINTS}:
                self._refuse_release("all parties", 0, 0)
        return self._released(value)

    def _acting(self, point: str) -> list[int]:
        """Return the positions of the policies that act at a point."""
        return [position for position, points in enumerate(self._points) if point in points]

    def _counted(self, position: int, answer: Any, asked: Values) -> Values:
        """Return what a policy answered to numbers that would leave, checked and counted."""
        kind, tally = self.policies[position].kind, self._tallies[position]
        if not isinstance(answer, np.ndarray) or (answer.shape, answer.dtype) != (asked.shape, asked.dtype):
            raise PolicyError(
                f"defense {kind!r} did not answer with numbers of the shape and dtype that it was given",
                code="cannot-act",
                value=kind,
            )
        if not np.isfinite(answer).all():
            raise PolicyError(
                f"defense {kind!r} answered with numbers that are not finite", code="cannot-act", value=kind
            )
        changed = answer != asked
        tally["changed_values"] += int(np.count_nonzero(changed))
        tally["dropped_values"] += int(np.count_nonzero(changed & (answer == 0)))
        return answer


def _of_tree(decisions: dict[int, T], tree: int, empty: T) -> T:
    """Return the decisions on a tree; those on trees long finished are dropped."""
    if tree not in decisions:
        for old in [each for each in decisions if each < tree - _REMEMBERED_TREES]:
            del decisions[old]
    return decisions.setdefault(tree, empty)


def check_hooks(
    policies: Iterable[Policy],
    visited: frozenset[str],
    setup: PolicyContext,
    *,
    elsewhere: Mapping[str, frozenset[str]] | None = None,
) -> None:
    """Refuse policies whose points are never visited, or whose own check fails.

    Args:
        policies: of one party.
        visited: the points of this party's role.
        elsewhere: for each role of the model its points, so that an error can say whose point it is.

    Raises:
        PolicyError: names defense and points.
    """
    setup = replace(setup, chain=tuple(policies))
    for policy in setup.chain:
        missing = policy.points - visited
        roles = [role for role, points in (elsewhere or {}).items() if missing <= points]
        if missing and roles:
            raise PolicyError(
                f"defense {policy.kind!r} acts at {', '.join(sorted(missing))}, which only the {roles[0]} role of "
                f"{setup.model} visits; give the defense to such a party",
                code="inapplicable",
                value=tuple(sorted(missing)),
            )
        if missing:
            families = {"split networks": NET_POINTS, "labels on several parties": HOLDER_POINTS}
            family = next((name for name, points in families.items() if missing <= {*points}), "tree models")
            raise PolicyError(
                f"defense {policy.kind!r} acts at {', '.join(sorted(missing))}, which {setup.model} never reaches "
                f"(it is for {family})",
                code="inapplicable",
                value=tuple(sorted(missing)),
            )
        counted = policy.points & {"split_candidates", "before_instance_space"}
        if counted and not policy.purities:
            raise PolicyError(
                f"defense {policy.kind!r} acts at {min(counted)} and must declare purities",
                code="missing",
                value=min(counted),
            )
        policy.check(setup)
    _check_row_local(setup)


def _check_row_local(setup: PolicyContext) -> None:
    """Refuse a policy that looks beyond a row before one whose account assumes that a label moves one row."""
    for place, policy in enumerate(setup.chain):
        for point in sorted(policy.counts_rows(setup)):
            others = setup.chain[:place] if point in policy.points else setup.chain
            for other in others:
                if other is not policy and point in other.points and not other.row_local:
                    raise PolicyError(
                        f"the account of defense {policy.kind!r} assumes that a label moves one row alone, but "
                        f"{other.kind!r} before it may look beyond a row (or does not declare row_local); put it "
                        "behind, or leave it out",
                        code="inapplicable",
                        field=f"defense {policy.kind!r}",
                        value=other.kind,
                    )


def _read_only(values: Values) -> Values:
    """Return the same numbers, so that a policy that writes to them fails."""
    seen = values.view()
    seen.flags.writeable = False
    return seen


def _above(node: int) -> set[int]:
    """Return all nodes on the way from a node's parent to the root."""
    found = set()
    while node > 0:
        node = (node - 1) // 2
        found.add(node)
    return found
