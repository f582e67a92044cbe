"""Log of a party's run: sentences or JSON lines on stderr, and ``log.jsonl``."""

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

from labelward.cli._output import StderrWriter, pluralize
from labelward.errors import CertificateError, HandshakeError, OutputError, PeerError, quoted

_SAFE_ERRORS = (CertificateError, HandshakeError, OutputError, PeerError)
"""Errors whose text is logged: it contains names, files and numbers only, but no values of a table."""

_FINAL = ("saved", "finished", "done")
"""Events after which disconnected peers are not reported."""

_WAITING_INTERVAL = 60.0  # seconds between two sentences about the same wait
_LONGEST = 10_000  # characters of a sentence: what is quoted in it is shorter
_REPORT_INTERVAL = 30.0  # seconds

_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "listening": lambda event: f"listening at {event['listen']}",
    "connected": lambda event: f"{event['peer']} connected from {event['address']}" if "peer" in event else "",
    "session": lambda event: f"{event['peer']} authenticated (certificate {event['fingerprint'][:16]})",
    "disconnected": lambda event: f"no connection to {event.get('peer') or event['address']}: {event['reason']}",
    "refused": lambda event: f"refused {event.get('peer') or event.get('address') or 'a message'}: {event['reason']}",
    "certificate": lambda event: f"the files of certificates changed; own certificate {event['fingerprint'][:16]}",
    "expiry": lambda event: f"the certificate of {event['peer']} ends in {event['days']} days; make the next one now",
    "clock": lambda event: (
        f"the clock of {event['peer']} is {abs(event['seconds'])} s {'ahead' if event['seconds'] > 0 else 'behind'}; "
        "set the clocks of both machines"
    ),
    "waiting": lambda event: f"waiting for {_waiting(event)}",
    "telling": lambda event: f"this party cannot begin; telling the others, for up to {event['seconds']:g} s",
    "told": lambda event: f"{', '.join(event['peers'])} heard that this party cannot begin",
    "away": lambda event: f"{event['peer']} is disconnected: {event['reason']}",
    "attempt": lambda event: "all parties are connected",
    "agreed": lambda event: f"all parties agree on the job and on {event['rows']} rows" + _since(event["resume"]),
    "remark": lambda event: event["remark"],
    "labels": lambda event: (
        f"this party labels {event['rows']} of {event['of']} rows" + (", all alike" if event["different"] == 1 else "")
    ),
    "restarted": lambda event: (
        f"{event['peer']} restarted{_by(event)}; training goes on from the last common checkpoint, all else begins anew"
    ),
    "damaged": lambda event: event["checkpoint"],
    "saved": lambda event: f"this party's share of model {event['model']} is saved; waiting for the other parties",
    "unacknowledged": lambda event: (
        f"{', '.join(event['peers'])} may not know yet that all parties have saved their shares; "
        "run the same command again to tell them"
    ),
    "aligned": lambda event: "",
    "predicted": lambda event: "",
    "explained": lambda event: "",
    "asked": lambda event: (
        f"the joined model is asked for, for {event['purpose']!r}: this party "
        + ("consents" if event["consent"] else "does not consent")
    ),
    "exported": lambda event: "",
    "done": lambda event: f"all parties have saved their shares of model {event['model']}",
}
"""Sentences of events; other events are logged only."""


def _waiting(event: Mapping[str, Any]) -> str:
    """Return for whom, how long at most, why they are away, and what to check."""
    left, away = event["left"], event["away"]
    told = (
        f"{', '.join(event['for'])}, {left / 60:.0f} min" if left >= 100 else f"{', '.join(event['for'])}, {left:.0f} s"
    )
    reasons = "; ".join(f"{peer}: {reason}" for peer, reason in away.items())
    return f"{told} left" + (f" ({reasons}). {_CHECKS}" if reasons else "")


_CHECKS = (
    "Check that they have started the same command, with the same [network] address and run, and that firewalls let "
    "them reach it"
)


def _by(event: Mapping[str, Any]) -> str:
    return f", says {event['said_by']}" if "said_by" in event else ""


def _since(checkpoint: int | None) -> str:
    return "" if checkpoint is None else f"; resuming from checkpoint {checkpoint}"


class RunLog:
    """Receives the events of a run; see :data:`labelward.federation.party_run.Log`.

    Args:
        path: of the log file, which is written as soon as its folder exists.
        json_lines: print JSON lines instead of sentences.
    """

    def __init__(self, path: Path, *, json_lines: bool, quiet: bool) -> None:
        self._path, self._json, self._quiet = path, json_lines, quiet
        self._unwritten: list[str] = []
        self._lock = threading.Lock()  # threads of the network log as well
        self._bar: Any = None
        self._round = -1
        self._began: float | None = None
        self._reported, self._first = 0.0, 0
        self._last, self._over = "", False
        self._awaited: tuple[Any, float] = ((), 0.0)
        self._writer: StderrWriter | None = None

    def __enter__(self) -> Self:
        if not (self._quiet or self._json) and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("trees", total=None, visible=False)
            self._bar.start()
            console = self._bar.console
            self._writer = StderrWriter(lambda sentence: console.print(sentence, markup=False, highlight=False))
        elif not self._quiet:
            self._writer = StderrWriter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        if self._bar is not None:
            self._bar.stop()

    def flush(self) -> None:
        """Print all pending lines, and nothing after that."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def __call__(self, event: str, details: Mapping[str, Any]) -> None:
        """Log one event; ``details`` contain no private value."""
        with self._lock:
            line = self._write(event, details)
            self._over = event in _FINAL or (self._over and event != "attempt")
            known = event in _SENTENCES and not (self._over and event == "disconnected")
            sentence = _SENTENCES[event](details) if known else ""
            if self._writer is None or not (self._json or sentence) or (not self._json and sentence == self._last):
                return
            if event == "waiting" and not self._json and self._said_lately(details):
                return
            self._last = sentence = quoted(sentence, _LONGEST)
            self._writer(line if self._json else sentence)

    def _said_lately(self, waiting: Mapping[str, Any]) -> bool:
        """Whether a sentence about this wait was printed within the last minute."""
        now, about = time.monotonic(), (waiting["for"], waiting["away"])
        if about == self._awaited[0] and now - self._awaited[1] < _WAITING_INTERVAL:
            return True
        self._awaited = (about, now)
        return False

    def progress(self, what: str, done: int, total: int) -> None:
        """Show the progress of the training or alignment; see :data:`labelward.party.context.Progress`."""
        if what not in ("trees", "epochs", "ids"):
            return
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=total or None, visible=True)
        if done != self._round:
            self._round = done
            self(what, {"done": done} | ({"total": total} if total else {}))
            self._report(what, done, total)

    def _report(self, what: str, done: int, total: int) -> None:
        """Print the progress from time to time, if there is no bar."""
        now = time.monotonic()
        if self._began is None or done < self._first:
            self._began, self._reported, self._first = now, now, done
        if self._bar is not None or self._json or now - self._reported < _REPORT_INTERVAL:
            return
        self._reported = now
        rest = (now - self._began) / max(1, done - self._first) * (total - done)
        left = f", about {rest:.0f} s left" if rest < 100 else f", about {rest / 60:.0f} min left"
        with self._lock:
            if self._writer is not None:
                self._writer(f"{done} of {total} {what}{left}" if total else pluralize(done, what.removesuffix("s")))

    def failed(self, error: Exception) -> None:
        """Log the error that ended the run; its text only if it cannot contain values of a table."""
        reason = str(error) if isinstance(error, _SAFE_ERRORS) else ""
        with contextlib.suppress(OutputError):  # the same full disk may have ended the run
            self("failed", {"error": type(error).__name__, "reason": reason})

    def _write(self, event: str, details: Mapping[str, Any]) -> str:
        """Return the line of the log; it is written as soon as the folder exists."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **details})
        self._unwritten.append(line)
        if self._path.parent.is_dir():
            lines, self._unwritten = "".join(f"{each}\n" for each in self._unwritten), []
            try:
                with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
                    file.write(lines)
            except OSError as error:
                raise OutputError(
                    f"cannot be written ({error.strerror})", code="unwritable", field=str(self._path)
                ) from error
        return line
