"""Early notice: what a party finds wrong before it speaks, its partners hear, so that nobody waits for it in vain.

They are told whose side it is and the error's code, as they would be during a run, and nothing of its text. A process
that already takes part for this party is left alone: a training is looked up by the lock of its folder, and a notice
about anything else comes from a place of its own, which the listener does not let take another one's.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from labelward.errors import LabelwardError
from labelward.federation.connect import connect
from labelward.federation.party_run import PATIENCE, Connection, Join, Log
from labelward.job import Job, network_job
from labelward.party.public_reason import public_reason
from labelward.runs.secure_files import LOCK_FILE, directory_lock

__all__ = ["EarlyNotice", "Purpose"]

Purpose = Literal["train", "align", "predict", "explain", "export"]
"""Of a run, as :data:`~labelward.federation.party_run.Join` has it."""


@dataclass(frozen=True, kw_only=True)
class EarlyNotice:
    """Tells the other parties why this one does not begin.

    Args:
        job_file: read again when something is wrong, as it may be what is wrong.
        party: this party's name.
        purpose: of the run.
        folder: of this party's files.
    """

    job_file: Path
    party: str
    purpose: Purpose
    folder: Path
    log: Log

    @contextlib.contextmanager
    def until_joined(self) -> Iterator[Join]:
        """Yield how to join the network; an error before that is told to the partners, and raised."""
        joined = False

        def join(job: Job, party: str, purpose: str, log: Log) -> tuple[Connection, str]:
            nonlocal joined
            joined = True
            return connect(job, party, purpose, log, folder=self.folder)

        try:
            yield join
        except Exception as error:
            job = None if joined else network_job(self.job_file)
            if job is not None and self.party in [each.name for each in job.parties]:
                with contextlib.suppress(LabelwardError), self._place() as place:
                    self._tell(job, place, error)
            raise

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        """Yield the folder that this process stands for; :class:`OutputError` where another one runs in it."""
        if self.purpose != "train":
            yield self.folder / secrets.token_hex(8)
        elif (self.folder / LOCK_FILE).exists():
            with directory_lock(self.folder):
                yield self.folder
        else:
            yield self.folder

    def _tell(self, job: Job, place: Path, error: Exception) -> None:
        network, _ = connect(job, self.party, self.purpose, _silent, folder=place)
        with contextlib.closing(network):
            self.log("telling", {"seconds": PATIENCE})
            told = network.announce(public_reason(error), PATIENCE)
        if told:
            self.log("told", {"peers": list(told)})


def _silent(event: str, details: Mapping[str, Any]) -> None:
    """Log nothing."""
