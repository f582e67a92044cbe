"""Bins as the paper exchanges them: for each node and bin which of the receiver's rows lie in it, level by level.

A source tells a label holder no more than the bin codes of these rows do once, in many times their bytes.

Reference: Zhu et al., PIVODL (2023), Algorithm 2, step 3. Difference: the rows of each bin, not of all bins up to a
threshold, which follow from these.
"""

from __future__ import annotations

import numpy as np

from labelward.errors import wrong_message
from labelward.messages.base import RowMask
from labelward.messages.pivodl import MISSING, NodeBins
from labelward.party.context import Context
from labelward.protocols.common.columns import Integers, OwnColumns, SourceColumns

Step = tuple[int, int]


def tell_bins(ctx: Context, own: OwnColumns, rows: dict[str, list[Integers]], step: Step) -> None:
    """Tell each label holder the bins of its rows in each node of a level.

    Args:
        rows: by holder, for each node int64: its training rows there.
    """
    sizes = [(column, code) for column, size in enumerate(own.sizes.tolist()) for code in range(size)]
    for peer, of_nodes in rows.items():
        masks = []
        for here in of_nodes:
            codes = own.codes[here]
            masks += [RowMask.pack(codes[:, column] == code) for column, code in sizes]
        ctx.send(peer, NodeBins(tuple(masks)), step)


def hear_bins(ctx: Context, peer: str, known: SourceColumns, places: list[Integers], step: Step) -> SourceColumns:
    """Return a source's columns with the bins of this party's rows in the nodes of a level.

    Args:
        known: sizes and kinds of the columns.
        places: for each node int64: positions among the rows that this party labels.

    Raises:
        PeerError: the message is of other nodes, columns or rows, or puts a row into two bins.
    """
    message = ctx.recv(peer, NodeBins, step)
    codes = np.full((known.codes.shape[0], len(known.sizes)), MISSING, dtype=np.uint16)
    masks = iter(message.bins)
    if len(message.bins) != len(places) * int(known.sizes.sum()):
        raise wrong_message(peer, "NodeBins", "sent other bins", step)
    for here in places:
        for column, size in enumerate(known.sizes.tolist()):
            for code in range(size):
                with ctx.blaming(peer, "NodeBins", step):
                    inside = here[next(masks).unpack(len(here))]
                if (codes[inside, column] != MISSING).any():
                    raise wrong_message(peer, "NodeBins", "put a row into two bins", step)
                codes[inside, column] = code
    return known._replace(codes=codes)
