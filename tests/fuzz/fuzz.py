"""Fuzz the readers: ``python fuzz.py [--inputs N] [--seconds S] [--seed K] [TARGET ...]`` (``make fuzz``).

Inputs are guided by coverage where atheris is installed (``pip install atheris``), else the seeds and what is in
the corpus are changed at random. Each target runs in a process of its own. New inputs that reach new code go to the
corpus (:mod:`corpus`), with which the next call begins; an input that breaks a reader is written to ``--found``. A
process that grows by more than 200 MB since its first thousand inputs fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import corpus

HERE = Path(__file__).resolve().parent
GROWTH = 200 * 1024 * 1024
_WARM, _EACH = 1000, 5000
_TEMPORARY = Path("/proc/self/statm")


class Counter:
    """Feeds a target, and watches memory."""

    def __init__(self, name: str, report: Path) -> None:
        from targets import TARGETS, check

        self.target, self.check, self.report = TARGETS[name], check, report
        self.inputs = self.accepted = self.first = self.most = 0
        self.began = time.monotonic()

    def feed(self, data: bytes) -> None:
        self.inputs += 1
        self.accepted += self.check(self.target, data)
        if self.inputs % (_WARM if self.inputs <= _WARM else _EACH) == 0:
            self.write()

    def write(self) -> None:
        """Write how far it came, since a fuzzer ends its process without a word."""
        size = memory()
        self.first = self.first or size
        self.most = max(self.most, size)
        told = {
            "inputs": self.inputs,
            "accepted": self.accepted,
            "seconds": round(time.monotonic() - self.began, 1),
            "start_mb": self.first >> 20,
            "most_mb": self.most >> 20,
        }
        self.report.write_text(json.dumps(told))
        assert size - self.first <= GROWTH, f"grew by {(size - self.first) >> 20} MB in {self.inputs} inputs"


def memory() -> int:
    """Return the bytes that this process has in memory."""
    return int(_TEMPORARY.read_text().split()[1]) * 4096


def guided(counter: Counter, options: argparse.Namespace, folder: Path) -> None:
    """Fuzz with atheris; ends the process."""
    import atheris

    seeds = options.found / f"{counter.target.name}-seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(counter.target.seeds()):
        (seeds / str(number)).write_bytes(data)
    arguments = [f"-seed={options.seed}", f"-artifact_prefix={options.found}/{counter.target.name}-", "-verbosity=0"]
    arguments += [
        f"-runs={options.inputs}",
        f"-max_total_time={options.seconds}",
        "-max_len=16384",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([sys.argv[0], *arguments, str(folder), str(seeds)], counter.feed)
    atheris.Fuzz()


def drawn(counter: Counter, options: argparse.Namespace, folder: Path) -> None:
    """Fuzz with changes drawn at random: several thousand inputs per second, and no guidance."""
    from changed_inputs import changed_at_random

    inputs = [*counter.target.seeds(), *(path.read_bytes() for path in sorted(folder.iterdir()))]
    until, rng = time.monotonic() + (options.seconds or float("inf")), random.Random(options.seed)
    while counter.inputs < options.inputs and time.monotonic() < until:
        data = changed_at_random(rng, inputs)
        try:
            counter.feed(data)
        except BaseException:
            (options.found / f"{counter.target.name}-input").write_bytes(data)
            raise


def one(name: str, options: argparse.Namespace) -> None:
    """Fuzz one target in this process."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    folder = folder_of(name, options)
    if importlib.util.find_spec("atheris"):
        import atheris

        with atheris.instrument_imports(include=["labelward"], enable_loader_override=False):
            import targets  # noqa: F401
        guided(Counter(name, report(name, options)), options, folder)
    else:
        drawn(counter := Counter(name, report(name, options)), options, folder)
        counter.write()


def folder_of(name: str, options: argparse.Namespace) -> Path:
    """Return a folder with the corpus of a target, a file for each input."""
    folder: Path = options.found / f"{name}-corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus.kept(name)):
        (folder / f"kept{number}").write_bytes(data)
    return folder


def report(name: str, options: argparse.Namespace) -> Path:
    found: Path = options.found
    return found / f"{name}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs of each target")
    parser.add_argument("--seconds", type=int, default=0, help="seconds of each target at most; 0: no limit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="folder of reports and broken inputs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.found.mkdir(parents=True, exist_ok=True)
    if options.one:
        one(options.one, options)
        return 0
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import targets

    failed = []
    print(f"{'target':12}{'inputs':>10}{'accepted':>10}{'seconds':>9}{'MB at start':>13}{'most':>6}")
    for name in options.targets or targets.TARGETS:
        report(name, options).unlink(missing_ok=True)
        command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
        with tempfile.TemporaryDirectory(prefix="labelward-fuzz-", dir=targets.memory()) as place:
            environment = os.environ | {targets.SCRATCH: place}
            ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        try:
            told = json.loads(report(name, options).read_text())
        except FileNotFoundError:
            told = dict.fromkeys(("inputs", "accepted", "seconds", "start_mb", "most_mb"), 0)
        figures = zip(told.values(), (10, 10, 9, 13, 6), strict=True)
        print(f"{name:12}" + "".join(f"{value:>{width}}" for value, width in figures), flush=True)
        corpus.keep(name, (path.read_bytes() for path in folder_of(name, options).iterdir()))
        if ended.returncode:
            failed.append(name)
            print(ended.stdout[-2000:] + ended.stderr[-4000:], flush=True)
    print(f"broken: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
