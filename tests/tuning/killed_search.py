"""A search in a process of its own that is killed at random moments: ``killed_search.py JOB OUT WHOLE KILLS``.

WHOLE is the folder of the same search undisturbed, whose private draws are repeated. Settings are evaluated by a
function of their values. Each attempt is a child of this process, which has loaded the libraries.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import optuna  # noqa: F401
import pymoo  # noqa: F401
from made_up import without_trainings

from labelward.job import Job, load_job
from labelward.tuning import ledger
from labelward.tuning.tune import tune


def begin(job: Job, out: Path, repeated: Path) -> int:
    """Begin or resume the search in a child; return its process id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            tune(job, out=out, repeat=[repeated])
            code = 0
        finally:
            os._exit(code)
    return child


def lines(out: Path) -> int:
    """Return the number of evaluations on the disk."""
    path = out / ledger.LEDGER_FILE
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main() -> None:
    """Kill the search while it goes on, each time later than before; then let it end."""
    job, out, repeated, kills = load_job(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    assert job.tune is not None
    without_trainings(setattr)
    moments, done = sorted(random.sample(range(job.tune.evaluations - 1), kills)), 0
    for moment in moments:
        child, ended = begin(job, out, repeated), 0
        while lines(out) < moment and not ended:
            time.sleep(0.001)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            time.sleep(random.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        done += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    _, status = os.waitpid(begin(job, out, repeated), 0)
    print(done, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
