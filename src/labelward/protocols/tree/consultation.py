"""What the policies have to say while a tree grows: which candidates may be chosen, and who may see a split."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from labelward.policy.base import CandidateSplits, KnownInstanceSpaces, PendingSplit, SplitReveal
from labelward.protocols.tree.level import Source, Winner, left_counts
from labelward.protocols.tree.plan import Ensemble, Plan

__all__ = ["Consultation"]

Totals = Mapping[int, NDArray[np.int64]]


class Consultation:
    """The policies' part in one tree."""

    def __init__(self, ensemble: Ensemble, plan: Plan) -> None:
        self._policies, self._ensemble, self._plan = ensemble.ctx.policies, ensemble, plan

    def allowed(self, sources: Mapping[str, Source], totals: Totals, depth: int) -> dict[str, list[NDArray[np.bool_]]]:
        """Return for each owner and block bool [nodes, columns, candidates]: which may be chosen; empty where all may.

        Args:
            totals: int64 [k] of each node.
        """
        if not self._policies.at("split_candidates"):
            return {}
        allowed: dict[str, list[NDArray[np.bool_]]] = {}
        numbers = self._plan.judge.numbers
        for owner, source in sources.items():
            nodes = source.level.nodes
            of_nodes = np.stack([numbers.class_counts(totals[node]) for node in nodes])
            for offered in source.candidates:
                candidates = CandidateSplits(
                    tree=self._plan.tree,
                    depth=depth,
                    owner=owner,
                    owner_is_active=owner in self._ensemble.blocks,
                    nodes=nodes,
                    left=left_counts(offered, numbers),
                    node=of_nodes,
                    totals=self._ensemble.class_totals,
                    known=self._known(owner),
                )
                allowed.setdefault(owner, []).append(self._policies.split_candidates(candidates))
        return allowed

    def viewers(
        self,
        winner: Winner,
        participants: frozenset[str],
        totals: NDArray[np.int64],
        rows: NDArray[np.int32],
        depth: int,
    ) -> frozenset[str]:
        """Return who may see the children of a split. Its owner, if among them, counts as told from now on.

        Args:
            participants: the peers that see the node itself.
            totals: int64 [k] of the node.
            rows: of the node.
        """
        if not participants or not self._policies.at("before_instance_space"):
            return participants
        numbers = self._plan.judge.numbers
        left = numbers.class_counts(winner.left)
        reveal = SplitReveal(
            tree=self._plan.tree,
            depth=depth,
            node=winner.node,
            owner=winner.owner,
            owner_is_active=winner.owner in self._ensemble.blocks,
            left=left,
            right=numbers.class_counts(totals) - left,
            totals=self._ensemble.class_totals,
            participants=participants,
            known=self._known(winner.owner),
        )
        viewers = self._policies.before_instance_space(reveal)
        if winner.owner in viewers:
            pending = PendingSplit(rows=rows, left=reveal.left, right=reveal.right)
            seen_as = self._plan.seen_as[winner.owner]
            self._ensemble.exposure.expect(winner.owner, seen_as, winner.node, pending)
        return viewers

    def _known(self, owner: str) -> KnownInstanceSpaces | None:
        """Return what an owner knows of the rows, where it is a peer and a policy asks."""
        if owner not in self._plan.seen_as:
            return None
        return self._ensemble.exposure.known(self._plan.tree, owner, self._plan.seen_as[owner])
