"""Source of a party's credentials during a run: new files are taken over while it goes on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labelward.errors import CertificateError
from labelward.transport.certificates.credentials import REFUSED_FILE, Credentials, readable_refused

_INTERVAL = 1.0  # seconds between two looks at the files


class CredentialSource:
    """Credentials as their folder has them now; files that do not fit together are ignored until they do.

    Not so the list of refused certificates, which counts at once: the own certificate may have expired in a long run.

    Args:
        changed: called with the new credentials when they have changed.
    """

    def __init__(self, credentials: Credentials, changed: Callable[[Credentials], None] = lambda new: None) -> None:
        self._credentials, self._changed = credentials, changed
        self._files = _state(credentials.folder)
        self._looked, self._lock = time.monotonic(), threading.Lock()

    def current(self) -> Credentials:
        """Return the present credentials; from any thread."""
        own = self._credentials
        with self._lock:
            if own.folder is None or time.monotonic() - self._looked < _INTERVAL:
                return self._credentials
            self._looked, before = time.monotonic(), self._files
            self._files = _state(own.folder)
            if self._files == before:
                return self._credentials
            try:
                self._credentials = Credentials.load(own.folder, own.party, pinned=own.pinned)
            except CertificateError:
                refused = own.refused | readable_refused(own.folder / REFUSED_FILE)
                if refused != own.refused:
                    self._credentials = replace(own, refused=refused)
                return self._credentials
        self._changed(self._credentials)
        return self._credentials


def _state(folder: Path | None) -> frozenset[tuple[str, int, int]]:
    """Return names, sizes and times of a folder's files."""
    found = set[tuple[str, int, int]]()
    if folder is not None:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                stat = path.stat()
                found.add((path.name, stat.st_size, stat.st_mtime_ns))
    return frozenset(found)
