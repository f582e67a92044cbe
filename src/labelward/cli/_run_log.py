"""What happens in a party's run, for people and for programs: sentences or JSON lines on stderr, and ``log.jsonl``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from labelward.cli._output import pluralize
from labelward.cli._stderr_writer import StderrWriter
from labelward.errors import CertificateError, HandshakeError, OutputError, PeerError

__all__ = ["RunLog"]

_TELLING = (CertificateError, HandshakeError, OutputError, PeerError)
"""Errors whose text holds names, files and numbers only; the texts of others may hold values of a table."""

_PARTING = ("saved", "finished", "done")
"""From here on a peer that leaves is no news."""

_REPORTED_EVERY = 30.0  # seconds

_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "listening": lambda told: f"listening at {told['listen']}",
    "connected": lambda told: f"{told['peer']} connects from {told['address']}" if "peer" in told else "",
    "session": lambda told: f"{told['peer']} is here (certificate {told['fingerprint'][:16]})",
    "disconnected": lambda told: f"no connection to {told.get('peer') or told['address']}: {told['reason']}",
    "refused": lambda told: f"refused {told.get('peer') or told.get('address') or 'a message'}: {told['reason']}",
    "waiting": lambda told: f"waiting for {', '.join(told['for'])}",
    "away": lambda told: f"{told['peer']} is away: {told['reason']}",
    "attempt": lambda told: "all parties are here",
    "agreed": lambda told: f"agreed on the job and on {told['rows']} rows" + _since(told["resume"]),
    "restarted": lambda told: f"{told['peer']} came back; all parties go on from the last checkpoint in common",
    "damaged": lambda told: told["checkpoint"],
    "saved": lambda told: f"this party's share of model {told['model']} is saved; waiting for the others",
    "unacknowledged": lambda told: (
        f"{', '.join(told['peers'])} may not know yet that all have their shares: the same command tells them"
    ),
    "predicted": lambda told: "",
    "done": lambda told: f"all parties have their shares of model {told['model']}",
}
"""What people are told of an event; of others nothing."""


def _since(checkpoint: int | None) -> str:
    return "" if checkpoint is None else f"; going on from checkpoint {checkpoint}"


class RunLog:
    """Takes what happens and tells it; see :data:`labelward.federation.party_run.Log`.

    Args:
        path: of the log; it is written once its folder is there.
        json_lines: on stderr in place of sentences.
        quiet: nothing on stderr.
    """

    def __init__(self, path: Path, *, json_lines: bool, quiet: bool) -> None:
        self._path, self._json, self._quiet = path, json_lines, quiet
        self._early: list[str] = []
        self._lock = threading.Lock()  # the network's threads have news, too
        self._bar: Any = None
        self._round = -1
        self._began: float | None = None
        self._reported, self._first = 0.0, 0
        self._last, self._over = "", False
        self._voice: StderrWriter | None = None

    def __enter__(self) -> Self:
        if not (self._quiet or self._json) and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("trees", total=None, visible=False)
            self._bar.start()
            console = self._bar.console
            self._voice = StderrWriter(lambda sentence: console.print(sentence, markup=False, highlight=False))
        elif not self._quiet:
            self._voice = StderrWriter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()
        if self._bar is not None:
            self._bar.stop()

    def rest(self) -> None:
        """Say what is left to say, and no more after that."""
        voice, self._voice = self._voice, None
        if voice is not None:
            voice.close()

    def __call__(self, event: str, told: Mapping[str, Any]) -> None:
        """Take one piece of news; ``told`` holds no private value."""
        with self._lock:
            line = self._keep(event, told)
            self._over = event in _PARTING or (self._over and event != "attempt")
            known = event in _SENTENCES and not (self._over and event == "disconnected")
            sentence = _SENTENCES[event](told) if known else ""
            if self._voice is None or not (self._json or sentence) or (not self._json and sentence == self._last):
                return
            self._last = sentence
            self._voice(line if self._json else sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        """Take how far the training is; see :data:`labelward.party.context.Progress`."""
        if what not in ("trees", "epochs"):
            return
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total or None, visible=True)
        if done != self._round:
            self._round = done
            self(what, {"done": done} | ({"total": total} if total else {}))
            self._report(what, done, total)

    def _report(self, what: str, done: int, total: int) -> None:
        """Say now and then how far it is, where there is no bar."""
        now = time.monotonic()
        if self._began is None or done < self._first:
            self._began, self._reported, self._first = now, now, done
        if self._bar is not None or self._json or now - self._reported < _REPORTED_EVERY:
            return
        self._reported = now
        rest = (now - self._began) / max(1, done - self._first) * (total - done)
        left = f", about {rest:.0f} s left" if rest < 100 else f", about {rest / 60:.0f} min left"
        with self._lock:
            if self._voice is not None:
                self._voice(f"{done} of {total} {what}{left}" if total else pluralize(done, what.removesuffix("s")))

    def failed(self, error: Exception) -> None:
        """Take what ended the run; its text only where it can hold no value of a table."""
        reason = str(error) if isinstance(error, _TELLING) else ""
        with contextlib.suppress(OutputError):  # such as of the full disk that ended the run
            self("failed", {"error": type(error).__name__, "reason": reason})

    def _keep(self, event: str, told: Mapping[str, Any]) -> str:
        """Return the line of the log, written once the folder is there."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **told})
        self._early.append(line)
        if self._path.parent.is_dir():
            lines, self._early = "".join(f"{each}\n" for each in self._early), []
            try:
                with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
                    file.write(lines)
            except OSError as error:
                raise OutputError(
                    f"cannot be written ({error.strerror})", code="unwritable", field=str(self._path)
                ) from error
        return line
