"""Disturbed runs: drawn from a seed, played, and held to the run that nobody disturbs.

``python chaos.py RUNS SEED [FOLDER]`` plays many and prints a table (``make chaos``); ``python chaos.py nightly.toml
[FOLDER]`` those that the file names (``make chaos-nightly``). What was played stands in ``results.jsonl`` of the
folder: the same command goes on where it was stopped, and repeats what failed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from companies import LISTENER, PATIENCE, Case, Companies, Process, companies
from troubled import Proxy, Weather
from undisturbed import DRAWS, Undisturbed, differences, end_of

TWO = ("bank", "telco")
NOISE = '[[defense]]\nkind = "randomized-response"\nepsilon = 1.0'
SUMS = '[[defense]]\nkind = "label-dp-sums"\nepsilon = 8.0'
SPREAD = 'kind = "pivodl"\ntrees = 4\ndepth = 3\nmin_node_rows = 2\naggregation = "masks"\nopened_sums = "allow"'
NET = 'kind = "splitnn"\nepochs = 4\nbatch_size = 16\nwidth = 4'
REGRESSION = 'kind = "logistic"\nepochs = 6\nbatch_size = 32\nrows_per_column = 0'
LAPLACE = '[[defense]]\nkind = "noisy-gradients"\ndistribution = "laplace"\nscale = 0.01'
PPDL = 'kind = "ppdl"\ntheta = 0.5\nepsilon = 4.0\nclip = 1.0\ntau = 0.0001'
GRAFTED = '[[defense]]\nchain = [{ kind = "lp-mst", epsilon = 1.0 }, { kind = "grafting", unrepaired = "relabel" }]'
CASES = {
    "boosted": Case(),
    "forest": Case(
        model='kind = "forest"\ntrees = 6\ndepth = 3\ntrees_at_once = 2\nreplace = true\nrow_fraction = 1.0'
    ),
    "classes": Case(model="trees = 3\ndepth = 3", parties=TWO, classes=3),
    "tree for each class": Case(model='trees = 2\ndepth = 2\nmulti_strategy = "one_output_per_tree"', classes=3),
    "stops early": Case(
        model="trees = 12\ndepth = 2\nlearning_rate = 1.0\nearly_stopping_rounds = 2", data="validation_size = 0.25"
    ),
    "noise": Case(active=NOISE, noisy=True),
    "noise, grafted": Case(
        model='kind = "forest"\ntrees = 4\ndepth = 3', parties=TWO, active=GRAFTED, classes=3, noisy=True
    ),
    "budget": Case(active="[leakage]\nbudget = 0.4"),
    "goss": Case(model='trees = 4\ndepth = 3\nsampling = "goss"\ntop_rate = 0.3\nother_rate = 0.2'),
    "in turns": Case(model='trees = 6\ndepth = 2\nmode = "mixed"\nrow_fraction = 0.7\nfeature_fraction = 0.7'),
    "several holders": Case(model=SPREAD, holders=("bank", "shop"), data='classes = ["0", "1"]'),
    "several holders, noise": Case(
        model=SPREAD, holders=("bank", "shop", "telco"), data='classes = ["0", "1"]', active=SUMS
    ),
    "several holders, noisy leaves": Case(
        model=SPREAD,
        holders=("bank", "shop"),
        data='classes = ["0", "1"]',
        active='[[defense]]\nkind = "partial-dp"\nepsilon = 8.0',
    ),
    "network": Case(model=NET, encryption="", rows=100),
    "network, noise": Case(
        model=NET,
        encryption="",
        rows=100,
        active='[[defense]]\nkind = "noisy-gradients"\ndistribution = "laplace"\nscale = 0.01',
        keyed=True,
    ),
    "network, ppdl": Case(model=NET, encryption="", parties=TWO, rows=100, active=f"[[defense]]\n{PPDL}", keyed=True),
    "network, noisy labels": Case(model=NET, encryption="", parties=TWO, rows=100, active=NOISE, noisy=True),
    "five parties": Case(model="trees = 3\ndepth = 3", parties=("bank", "telco", "shop", "post", "grid")),
    "six parties": Case(model="trees = 3\ndepth = 2", parties=("bank", "telco", "shop", "post", "grid", "rail")),
    "paillier 512": Case(model="trees = 3\ndepth = 2\nbins = 8", encryption="bits = 512\ninsecure = true\nworkers = 1"),
    "paillier 2048": Case(model="trees = 2\ndepth = 2\nbins = 4", parties=TWO, encryption="workers = 1", rows=60),
}
FURTHER_FROM = 10_001
"""The first seed of runs of ``FURTHER``; the plans of smaller seeds stay what they were when they were played."""
FURTHER = {
    "network, marvell": Case(
        model=NET, encryption="", parties=TWO, rows=100, active='[[defense]]\nkind = "marvell"\ns = 4.0', keyed=True
    ),
    "network, gaussian": Case(
        model=NET, encryption="", rows=100, active=LAPLACE.replace("laplace", "gaussian"), keyed=True
    ),
    "noisy buckets": Case(model='kind = "federboost"\ntrees = 4\ndepth = 2\nbins = 4\nepsilon = 2.0', encryption=""),
    "regression": Case(model=REGRESSION),
    "regression, noisy labels": Case(model=REGRESSION, active=NOISE, noisy=True),
}
ALL = CASES | FURTHER
MOMENTS = ("start", "session", "attempt", "agreed", "trees", "saved", "finished")
"""After which word of a party's log a fault may come; ``start``: of its process."""
KINDS = {
    "kill": 6,
    "kill two": 2,
    "kill again": 2,
    "kill all": 1,
    "cut": 3,
    "partition": 2,
    "freeze": 2,
    "stop": 2,
    "slow": 1,
    "damage": 2,
    "delete": 2,
    "table": 1,
    "full": 1,
}
MENDED = ("table", "full")
"""What people have to mend: parties end with an error, and are started again."""
HOSTILE = 1 / 3
"""Share of the runs in which one party is hostile."""
HOSTILE_KINDS = ("garbage", "nested", "long", "observation", "unknown", "future", "greetings", "controls")
NAMED_WITHIN = 10.0
"""Seconds after which all others have ended, and named it; more where several processes want each core."""
SMALL_DISK = 40_000
"""Bytes of any file, beyond which writing fails as on a full disk."""
RESTARTS = 40


@dataclass(frozen=True)
class Fault:
    """What happens, to whom, when.

    Attributes:
        moment: one of :data:`MOMENTS`; ``count``: which of them.
        wait: seconds after it.
        seconds: how long it lasts.
    """

    kind: str
    party: str
    other: str
    moment: str
    count: int
    wait: float
    seconds: float

    def __str__(self) -> str:
        also = f" and {self.other}" if self.kind == "kill two" else ""
        return (
            f"{self.kind} {self.party}{also} {self.wait:.2f} s after {self.moment} {self.count}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Plan:
    """A disturbed run: all of it follows from the seed."""

    seed: int
    case: str
    relay: bool
    mangled: bool
    weather: Weather
    faults: tuple[Fault, ...]
    hostile: tuple[str, str, int] | None = None  # party, kind, and from which of its messages on

    def __str__(self) -> str:
        if self.hostile:
            party, kind, number = self.hostile
            return f"seed {self.seed}: {self.case}, {party} is hostile ({kind} from message {number} on)"
        way = "mangling relay" if self.mangled else "relay" if self.relay else "direct"
        weather = f"{self.weather.delay * 1000:.0f} ms, {self.weather.rate / 1e6:.1f} MB/s"
        return f"seed {self.seed}: {self.case}, {way}, {weather}; {'; '.join(map(str, self.faults)) or 'no fault'}"


def draw(seed: int) -> Plan:
    rng = random.Random(seed)
    case = rng.choice(list(CASES if seed < FURTHER_FROM else FURTHER))
    if rng.random() < HOSTILE:
        party, kind = rng.choice(ALL[case].parties), rng.choice(HOSTILE_KINDS)
        return Plan(seed, case, rng.random() < 0.3, False, Weather(), (), (party, kind, rng.randint(3, 12)))
    relay = rng.random() < 0.3
    mangled = relay and rng.random() < 0.6
    weather = Weather(delay=rng.choice((0.0, 0.0, 0.005, 0.02)), rate=rng.choice((0.0, 0.0, 12.5e6, 1e6)))
    least = 0 if mangled else 1
    faults = tuple(_fault(rng, ALL[case], relay) for _ in range(rng.choice((least, 1, 1, 2, 2, 3))))
    return Plan(seed, case, relay, mangled, weather, faults)


def _fault(rng: random.Random, case: Case, relay: bool) -> Fault:
    kinds = KINDS | ({"kill relay": 4} if relay else {})
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    party, other = rng.sample(case.parties, 2)
    moment = rng.choice(MOMENTS)
    wait = rng.uniform(0.0, 4.0) if moment == "start" else rng.choice((0.0, rng.expovariate(20.0), rng.uniform(0, 0.5)))
    count = rng.randint(1, 2) if moment == "trees" else 1
    return Fault(kind, party, other, moment, count, wait, rng.uniform(0.0, 3.0))


class Play:
    """A plan while it happens."""

    def __init__(self, plan: Plan, made: Companies, proxies: dict[str, Proxy]) -> None:
        self.plan, self.made, self.proxies = plan, made, proxies
        self.running: dict[str, Process] = {}
        self.happened: list[str] = []
        self._ended: set[str] = set()
        self._later: list[tuple[float, Any]] = []
        self._faults, self._seen = list(plan.faults), Counter[tuple[str, str]]()
        self._due: float | None = None
        self._mends: dict[str, Callable[[], object]] = {}
        self._mended, self._restarts = False, 0

    def to_its_end(self) -> None:
        """Start all parties, do what the plan says, until all have ended well."""
        if self.plan.relay:
            self._start(LISTENER)
        for party in self.made.case.parties:
            self._start(party)
        until = time.monotonic() + PATIENCE
        while set(self.made.case.parties) - self._ended:
            assert time.monotonic() < until, f"{self.plan}\nhangs; {self.happened}\n{self.made.told()}"
            self._look()
            self._do_what_is_due()
            time.sleep(0.005)

    def _look(self) -> None:
        for party, process in list(self.running.items()):
            code = process.popen.poll()
            if code is None:
                continue
            del self.running[party]
            mend = self._mends.pop(party, None)
            if mend is not None:
                mend()
                self._mended = True
            if code == 0:
                self._ended.add(party)
                continue
            known = code in (2, 3) and (self._mended or self._mends) and self._restarts < RESTARTS
            assert known, f"{self.plan}\n{party} ended with {code}; {self.happened}\n{self.made.told()}"
            assert "Traceback" not in process.errors, process.errors
            self._restarts += 1
            self._in(0.2, partial(self._start, party))

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [each for each in self._later if each[0] <= now]
        self._later = [each for each in self._later if each[0] > now]
        for _, work in due:
            work()
        if not self._faults:
            return
        fault = self._faults[0]
        if self._due is None and self._comes(fault):
            self._due = now + fault.wait
        if self._due is not None and self._due <= now:
            self._due = None
            self._faults.pop(0)
            self._happen(fault)

    def _comes(self, fault: Fault) -> bool:
        """Whether the moment of the next fault has come, since the one before."""
        events = self.made.events(fault.party)
        if fault.moment == "start":
            starts = sum(each.party == fault.party for each in self.made.processes)
            return starts > self._seen[fault.party, "start"]
        if fault.moment == "trees":
            number = sum(each["event"] in ("trees", "epochs") and each["done"] > 0 for each in events)
        else:
            number = sum(each["event"] == fault.moment for each in events)
        if number >= self._seen[fault.party, fault.moment] + fault.count:
            self._seen[fault.party, fault.moment] = number
            return True
        return False

    def _happen(self, fault: Fault) -> None:
        self.happened.append(fault.kind)
        proxy = self.proxies.get(fault.party)
        if fault.kind in ("damage", "delete"):
            self._lose(fault)
        elif fault.kind in MENDED:
            self._spoil(fault)
        elif fault.kind == "kill relay":
            self._kill(LISTENER, fault.seconds)
        elif fault.kind.startswith("kill"):
            others = {"kill two": (fault.other,), "kill all": self.made.case.parties}.get(fault.kind, ())
            for party in {fault.party, *others}:
                self._kill(party, fault.seconds / 3)
            if fault.kind == "kill again":
                self._in(fault.seconds / 3 + 1.0 + fault.wait, lambda: self._kill(fault.party, 0.1))
        elif fault.kind == "stop":
            self._stop(fault.party, fault.seconds)
        elif fault.kind == "slow":
            for each in self.proxies.values():
                each.weather.delay, each.weather.rate = 0.1, 0.2e6
        else:  # the listener's own connections are those of all others
            for each in [proxy] if proxy else self.proxies.values():
                self._disturb(each, fault)

    def _lose(self, fault: Fault) -> None:
        """Kill a party, and damage or delete its newest checkpoint, of several."""
        if not self._kill(fault.party, fault.seconds / 3):
            return
        states = self._states(fault.party)
        if len(states) > 2 and fault.kind == "delete":
            states[-1].unlink()
        elif len(states) > 2:
            data = bytearray(states[-1].read_bytes())
            data[self.plan.seed % len(data)] ^= 0x55
            states[-1].write_bytes(bytes(data))

    def _spoil(self, fault: Fault) -> None:
        """Kill a party, and change its table or leave it little room, until it has ended for that."""
        if fault.kind == "table" and len(self._states(fault.party)) < 2:
            return  # a table may change before anything was learned from it
        process = self.running.get(fault.party)
        if process is None or process.popen.poll() is not None or fault.party in self._mends:
            return
        process.kill()
        table = self.made.folder / f"{fault.party}.csv"
        whole = table.read_text()
        if fault.kind == "table":
            head, _, last = whole.rstrip("\n").rpartition("\n")
            cells = last.split(",")
            cells[1] = f"{float(cells[1] or 0) + 1:.3f}"
            table.write_text(f"{head}\n{','.join(cells)}\n")
        self._mends[fault.party] = partial(table.write_text, whole)
        largest = SMALL_DISK if fault.kind == "full" else 0
        self.running[fault.party] = self.made.start(fault.party, largest=largest)

    def _states(self, party: str) -> list[Path]:
        return sorted((self.made.run(party) / party / "checkpoint").glob("*.lwc"))

    def _disturb(self, proxy: Proxy, fault: Fault) -> None:
        weather = proxy.weather
        if fault.kind == "freeze":
            weather.frozen = True
            self._in(fault.seconds, lambda: setattr(weather, "frozen", False))
        else:
            weather.refusing = fault.kind == "partition"
            proxy.cut()
            self._in(fault.seconds, lambda: setattr(weather, "refusing", False))

    def _stop(self, party: str, seconds: float) -> None:
        process = self.running.get(party)
        if process is not None:
            process.popen.send_signal(signal.SIGSTOP)
            self._in(seconds, lambda: process.popen.send_signal(signal.SIGCONT))

    def _kill(self, party: str, pause: float) -> bool:
        process = self.running.get(party)
        if process is None or process.popen.poll() is not None or party in self._mends:
            return False
        process.kill()
        del self.running[party]
        self.made.stop_no_more(party)
        self._in(pause, lambda: self._start(party))
        return True

    def _start(self, party: str) -> None:
        if party == LISTENER:
            self.running[party] = self.made.start_relay(self.plan.seed if self.plan.mangled else None)
        else:
            self.running[party] = self.made.start(party)

    def _in(self, seconds: float, work: Any) -> None:
        self._later.append((time.monotonic() + seconds, work))


@dataclass
class Result:
    """How a disturbed run went; ``resumed``: how often a party went on from a checkpoint."""

    plan: Plan
    happened: list[str]
    attempts: int
    seconds: float
    resumed: int
    different: list[str] = field(default_factory=list)
    named_in: float | None = None  # seconds until all others had named the hostile party
    kept: int = 0  # parties that did not hear of it, as the hostile one was the listener, and ended by themselves


def play(plan: Plan, folder: Path, undisturbed: Undisturbed, *, surely: bool = False) -> Result:
    """Play a plan and compare how it ends; :class:`AssertionError` names the seed.

    Args:
        surely: whether the first party that is killed stops at its moment by itself: the run cannot end before.
    """
    case, began = ALL[plan.case], time.monotonic()
    if plan.hostile:
        return _play_hostile(plan, folder, undisturbed)
    with _companies(plan, folder) as (made, proxies):
        if surely:
            first = plan.faults[0]
            made.stop_at(first.party, first.moment, first.count + (first.moment == "trees"))  # after those of no tree
        played = Play(plan, made, proxies)
        played.to_its_end()
        found = end_of(made)
        draws = made.folder / DRAWS
        number = len(draws.read_text().splitlines()) - 1 if case.noisy else 0
        different = differences(found, undisturbed.of(case, number))
        attempts = sum(each["event"] == "attempt" for each in made.events(case.parties[0]))
        events = [each for party in case.parties for each in made.events(party)]
        resumed = sum(each["event"] == "agreed" and bool(each["resume"]) for each in events)
    assert not different, f"{plan}\ndiffers in {different}; {played.happened}\n{made.told()}"
    return Result(plan, played.happened, attempts, time.monotonic() - began, resumed)


def _play_hostile(plan: Plan, folder: Path, undisturbed: Undisturbed) -> Result:
    """Play a plan with a hostile party: each other ends in time and names it, or with what the undisturbed run gives.

    Where it is the listener, it can keep from one party what another says of it: that party ends after the timeout.
    """
    assert plan.hostile
    hostile, kind, number = plan.hostile
    case, began = ALL[plan.case], time.monotonic()
    with _companies(plan, folder) as (made, _):
        made.changes[hostile] = (*made.changes.get(hostile, ()), f"hostile={kind},{number}")
        if plan.relay:
            made.start_relay()
        running = made.start_all()
        honest = [running[party] for party in case.parties if party != hostile]
        marker, ended = made.folder / f"{hostile}.hostile", dict[str, float]()
        until = began + PATIENCE
        while len(ended) < len(honest):
            assert time.monotonic() < until, f"{plan}\nhangs\n{made.told()}"
            for each in honest:
                if each.party not in ended and each.popen.poll() is not None:
                    ended[each.party] = time.time()
            time.sleep(0.005)
        codes = {each.party: each.popen.poll() for each in honest}
        disturbed = [f"hostile: {kind}"] if marker.exists() else []
        well = [party for party, code in codes.items() if code == 0]  # it may disturb the others alone
        if not disturbed or len(well) == len(codes):
            running[hostile].wait()
            assert len(well) == len(codes), f"{plan}\n{codes}\n{made.told()}"
            well.append(hostile)
        different = differences(end_of(made, well), undisturbed.of(case, 0)) if well else []
        assert not different, f"{plan}\ndiffers in {different}\n{made.told()}"
        if hostile in well:
            return Result(plan, disturbed, 1, time.monotonic() - began, 0)
        listens, named = hostile == case.parties[0] and not plan.relay, []
        for each in honest:
            if each.party in well:
                continue
            last = (each.errors.splitlines() or [""])[-1]
            assert codes[each.party] in (2, 3), f"{plan}\n{codes}\n{made.told()}"
            assert last.isprintable(), last
            if f"{hostile!r}" in last:
                named.append(each.party)
            else:
                assert listens, f"{plan}\n{each.party} does not name it: {last}\n{made.told()}"
        assert named, f"{plan}\n{made.told()}"
        named_in = max(ended[party] for party in named) - marker.stat().st_mtime
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        allowed = NAMED_WITHIN * max(1.0, load)
        assert named_in < allowed, f"{plan}\ntook {named_in:.1f} s at a load of {load:.1f} a core\n{made.told()}"
    seconds, kept = time.monotonic() - began, len(honest) - len(well) - len(named)
    return Result(plan, disturbed, 1, seconds, 0, named_in=named_in, kept=kept)


@contextmanager
def _companies(plan: Plan, folder: Path) -> Iterator[tuple[Companies, dict[str, Proxy]]]:
    case = ALL[plan.case]
    with ExitStack() as stack:
        made = stack.enter_context(companies(folder, case, relay=plan.relay))
        proxies = {}
        for party in case.parties if plan.relay else case.peers:
            weather = Weather(delay=plan.weather.delay, rate=plan.weather.rate)
            proxies[party] = stack.enter_context(Proxy(("127.0.0.1", made.port), weather))
            made.addresses[party] = f"127.0.0.1:{proxies[party].port}"
        for party in case.parties if case.holders else case.parties[:1] if case.keyed else ():
            made.changes[party] = (f"keys={party}.keys",)
        if case.noisy:
            made.changes[case.parties[0]] = (f"noise={DRAWS}",)
        made.write_jobs()
        yield made, proxies


RESULTS = "results.jsonl"


def _read(folder: Path) -> dict[int, dict[str, Any]]:
    """Return what was played before, by seed; the last time counts."""
    path = folder / RESULTS
    lines = path.read_text().splitlines() if path.exists() else []
    return {told["seed"]: told for told in map(json.loads, lines)}


def _write(folder: Path, told: dict[str, Any]) -> None:
    with (folder / RESULTS).open("a") as file:
        file.write(json.dumps(told) + "\n")


def _summarize(results: Sequence[dict[str, Any]]) -> list[int]:
    """Print what was disturbed, and how much it took; return the seeds of the runs that failed."""
    print(f"\n{'case':32}{'runs':>5}{'ended well':>12}{'faults':>8}{'attempts':>10}{'seconds':>9}")
    for case in ALL:
        of_case = [each for each in results if each["case"] == case]
        figures = [sum(each["ok"] for each in of_case), sum(len(each["happened"]) for each in of_case)]
        figures += [sum(each["attempts"] for each in of_case), round(sum(each["seconds"] for each in of_case))]
        print(f"{case:32}{len(of_case):5d}{figures[0]:12d}{figures[1]:8d}{figures[2]:10d}{figures[3]:9d}")
    kinds = Counter(kind for each in results for kind in {*each["happened"]})
    unharmed = Counter(kind for each in results if each["ok"] for kind in {*each["happened"]})
    print(f"\n{'fault':24}{'runs':>5}{'ended well':>12}")
    for kind, count in sorted(kinds.items()):
        print(f"{kind:24}{count:5d}{unharmed[kind]:12d}")
    named = sorted(each["named_in"] for each in results if each["named_in"] is not None)
    if named:
        print(
            f"\na hostile party was named by all within {named[-1]:.1f} s (half within {named[len(named) // 2]:.1f} s, "
            f"{sum(each <= NAMED_WITHIN for each in named)} of {len(named)} within {NAMED_WITHIN:g} s)"
        )
    kept = sum(each.get("kept", 0) for each in results)
    if kept:
        print(f"{kept} parties did not hear of a hostile listener, and ended when they had waited long enough")
    failed = sorted(each["seed"] for each in results if not each["ok"])
    well = len(results) - len(failed)
    print(f"\n{well} of {len(results)} runs ended as they must; seeds of the others: {failed or '-'}")
    return failed


def _seeds(arguments: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the seeds to play, and the other arguments."""
    if arguments[0].endswith(".toml"):
        told = tomllib.loads(Path(arguments[0]).read_text())
        seeds = [
            *range(told["first"], told["first"] + told["runs"]),
            *range(FURTHER_FROM, FURTHER_FROM + told["further"]),
        ]
        return [*told["again"], *seeds], list(arguments[1:])
    first = int(arguments[1])
    return list(range(first, first + int(arguments[0]))), list(arguments[2:])


def main() -> None:
    seeds, rest = _seeds(sys.argv[1:])
    folder = Path(rest[0] if rest else tempfile.mkdtemp(prefix="labelward-chaos-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    known, temporary = _read(folder), tempfile.TemporaryDirectory(prefix="labelward-undisturbed-")
    undisturbed = Undisturbed(Path(temporary.name))
    for number in dict.fromkeys(seeds):
        if known.get(number, {}).get("ok"):
            continue
        plan, place = draw(number), folder / str(number)
        shutil.rmtree(place, ignore_errors=True)
        told: dict[str, Any] = {"seed": number, "case": plan.case, "plan": str(plan), "happened": []}
        began = time.monotonic()
        try:
            result = play(plan, place, undisturbed)
            happened = result.happened + ["mangling relay"] * plan.mangled
            told |= {"ok": True, "happened": happened, "attempts": result.attempts, "resumed": result.resumed}
            told |= {"seconds": round(result.seconds, 1), "named_in": result.named_in, "kept": result.kept}
            shutil.rmtree(place)
            print(f"{result.seconds:5.1f} s  {result.attempts} attempts  {plan}; happened: {happened}", flush=True)
        except AssertionError as error:
            kinds = [each.kind for each in plan.faults] + [f"hostile: {each}" for each in (plan.hostile or ())[1:2]]
            told |= {"ok": False, "happened": kinds, "attempts": 0, "resumed": 0, "named_in": None}
            told |= {"seconds": round(time.monotonic() - began, 1), "error": str(error)[:2000]}
            print(f"FAILED {error}\nleft in {place}", flush=True)
        known[number] = told
        _write(folder, told)
    failed = _summarize([known[number] for number in dict.fromkeys(seeds)])
    temporary.cleanup()
    sys.exit(bool(failed))


os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the parties: sums of several threads round differently

if __name__ == "__main__":
    main()
