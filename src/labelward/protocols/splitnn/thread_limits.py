"""Division of the cores among the parties of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from labelward.protocols.splitnn._torch import torch


@contextlib.contextmanager
def share_threads(parties: int) -> Iterator[None]:
    """Give each of some parties that begin in here an equal part of torch's threads, at least one.

    For a rehearsal, whose parties are threads of one process: each would otherwise spread every operation over all
    cores, and they would wait for each other (five times the seconds for small networks on two cores). Threads that
    begin within see the smaller number, and so does the caller until it leaves.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // parties))
    try:
        yield
    finally:
        torch.set_num_threads(before)
