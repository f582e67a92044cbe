"""Report of one party's run between companies: participants, protection, results and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labelward.errors import FileFormatError
from labelward.leakage.view_summary import ViewSummary, summarize_view
from labelward.report.formatting import NOTHING, count, data_size, duration
from labelward.report.metrics import format_metric, metric_name
from labelward.report.narrative import insecure_warning
from labelward.report.page import REPORT_FILE
from labelward.report.plots import Image, curves
from labelward.report.summary import Spread
from labelward.report.tables import ReportTable
from labelward.report.templates import render, write_page
from labelward.runs.party_record import PARTY_FILE, PartyRecord, read_party_record

_STAGES = {
    "running": "not finished; run the same command again to resume it",
    "saved": "this party's share is saved, but some other parties have not saved theirs",
    "finished": "finished: all parties have their shares",
    "closed": "finished: all parties have their shares",
}


def is_party_run(folder: Path) -> bool:
    """Return whether ``labelward party`` wrote a folder."""
    return (folder / PARTY_FILE).exists()


def write_party_report(folder: Path) -> Path:
    """Write ``report.html`` into the folder of a party's run, replacing it atomically, and return its path.

    Raises:
        FileFormatError: the folder has no record, or the record or the view is damaged.
        DependencyError: Jinja or matplotlib is not installed.
        OutputError: the page cannot be written.
    """
    record = read_party_record(folder)
    if record is None:
        raise FileFormatError("not a folder that labelward party wrote", code="foreign", field=str(folder))
    seen = summarize_view(folder, record.party)
    parts = (
        _protection(record),
        _outcome(record),
        _told(record),
        _known(record, seen),
        _meter(seen),
        _traffic(seen, record.attempts),
        _queries(seen),
    )
    page = render(
        "party.html.j2",
        record=record,
        title=f"run with {', '.join(name for name in record.parties if name != record.party)}",
        verdict=_verdict(record),
        insecure=insecure_warning(record.key.insecure),
        parts=[part for part in parts if part],
    )
    return write_page(folder / REPORT_FILE, page)


@dataclass(frozen=True, kw_only=True)
class _Part:
    title: str
    about: str = ""
    tables: tuple[ReportTable, ...] = ()
    images: tuple[Image, ...] = ()


def _verdict(record: PartyRecord) -> str:
    resumed = record.attempts - 1
    times = "once" if resumed == 1 else f"{resumed} times"
    note = f" The run was interrupted and resumed {times}." if resumed > 0 else ""
    return f"Model {record.model or NOTHING}: {_STAGES[record.stage]}.{note}"


def _protection(record: PartyRecord) -> _Part:
    key = record.key
    strength = f"{key.bits} bits (security level {key.security_level} bits)" if key.bits else "none"
    rows = (
        ("encryption engine", key.engine),
        *([("why this engine", key.chosen)] if key.chosen else []),
        ("key", strength),
        ("fingerprint of the public key", key.fingerprint or NOTHING),
        ("kernel", key.kernel or NOTHING),
        ("insecure settings", ", ".join(key.insecure) or "none"),
        ("certificate of this party (SHA-256)", record.own),
    )
    peers = tuple(
        (
            name,
            peer.identity,
            peer.fingerprint,
            peer.address,
            peer.tls or NOTHING,
            "yes" if peer.sealed else "no",
        )
        for name, peer in record.peers.items()
    )
    return _Part(
        title="Protection",
        tables=(
            ReportTable(caption="Encryption and identity", header=("item", "in this run"), rows=rows, words=2),
            ReportTable(
                caption="The other parties",
                header=("party", "identity", "certificate (SHA-256)", "link", "TLS", "end-to-end encrypted"),
                rows=peers,
                words=6,
                note="Compare the fingerprints with those on the other company's page. The public encryption key has "
                "the same fingerprint at all parties.",
            ),
        ),
    )


def _outcome(record: PartyRecord) -> _Part | None:
    tables = []
    if record.utility:
        rows = tuple(
            (metric_name(name), NOTHING if value is None else format_metric(name, value, digits=4))
            for name, value in record.utility.items()
        )
        tables.append(ReportTable(caption="Utility on the test rows", header=("metric", "value"), rows=rows))
    if record.cost is not None:
        cost = record.cost
        last = " of the last attempt" if record.attempts > 1 else ""
        figures = (
            ("duration", duration(cost.seconds)),
            ("sent", f"{data_size(cost.bytes)} in {count(cost.messages)} messages"),
            ("ciphertexts sent", count(cost.ciphertexts)),
            ("encryptions", count(cost.encryptions)),
            ("additions", count(cost.additions)),
            ("decryptions", count(cost.decryptions)),
        )
        rows = tuple((f"{name}{last}", amount) for name, amount in figures)
        tables.append(ReportTable(caption=f"Cost for this party{last}", header=("item", "amount"), rows=rows))
    return _Part(title="Results", tables=tuple(tables)) if tables else None


def _told(record: PartyRecord) -> _Part | None:
    """Return what the label holder gets right with what it told each party."""
    if not record.leakage:
        return None
    header = ("party", "trees seen", "right of 100 by its view", "right of 100 blindly", "V-measure", "at most")
    rows = tuple(
        (
            party,
            count(each.trees),
            f"{100 * each.right:.0f}",
            f"{100 * each.blind:.0f}",
            f"{each.v_measure:.3f}",
            f"{each.bound:.3f}",
        )
        for party, each in record.leakage.items()
    )
    note = (
        "By its view: the rows are divided into communities by the row sets that the party was told, and each "
        "community is given its most frequent label. Blindly: all rows are given the most frequent label. At most: no "
        "division by these row sets has a larger V-measure. What the party's own columns add is not counted."
    )
    return _Part(
        title="What was told to other parties",
        about="This party has the labels, and attacked what it sent. The labels and these figures stay here.",
        tables=(ReportTable(caption="Guesses of the training rows' labels", header=header, rows=rows, note=note),),
    )


def _known(record: PartyRecord, seen: ViewSummary | None) -> _Part | None:
    """Return what a passive party could make of its view."""
    if seen is None or seen.known is None:
        return None
    known = seen.known
    rows = (
        ("training rows", count(known.rows)),
        ("trees in which this party took part", count(known.trees)),
        ("groups of rows that these trees tell apart", count(known.groups)),
        ("rows that are alone in their group", count(known.alone)),
        ("rows of the largest group", count(known.largest)),
    )
    return _Part(
        title="What this party could know",
        about=f"The view of {record.party} holds no label, gradient or leaf weight. It tells which training rows the "
        "trees keep together, and rows of one group tend to have one label. How much that gives away, only the label "
        "holder can measure; labelward attack shows what this party itself could guess.",
        tables=(ReportTable(caption="Row sets in the view", header=("item", "number"), rows=rows),),
    )


def _traffic(seen: ViewSummary | None, attempts: int) -> _Part | None:
    if seen is None:
        return None
    names = {"sent": "sent", "received": "received", "observed": "computed from its own secrets", "applied": "applied"}
    rows = tuple(
        (names[kind], name, count(number), data_size(size))
        for (kind, name), (number, size) in sorted(seen.counts.items())
        if kind in names
    )
    caption = f"Records by type, of all {attempts} attempts" if attempts > 1 else "Records by type"
    table = ReportTable(caption=caption, header=("direction", "record", "number", "size"), rows=rows, words=2)
    about = "The view holds all that this party sent, received and computed. It can be audited and attacked."
    return _Part(title="Traffic", about=about, tables=(table,))


def _queries(seen: ViewSummary | None) -> _Part | None:
    if seen is None or not seen.queries:
        return None
    rows = tuple(
        (
            each.asker,
            count(each.predictions),
            count(each.refused),
            count(each.answers),
            count(each.rows),
            count(each.repeated),
            count(each.most),
        )
        for each in seen.queries
    )
    header = ("asked by", "predictions", "refused", "answers", "rows", "rows asked again", "most for one row")
    about = "Where a defense draws noise for an answer, repeated questions about one row average it out."
    return _Part(
        title="Predictions",
        about=about,
        tables=(ReportTable(caption="Questions about rows", header=header, rows=rows),),
    )


def _meter(seen: ViewSummary | None) -> _Part | None:
    """Return the curves of the leakage meter, which only the active party's view has."""
    images = tuple(
        _curve(party, [each.trees for each in readings], [each.v_measure for each in readings])
        for party, readings in (seen.readings if seen is not None else {}).items()
        if readings
    )
    about = "V-measure between the true labels and the communities of rows that each party could find in its view."
    return _Part(title="Leakage to other parties", about=about, images=images) if images else None


def _curve(party: str, trees: Sequence[int], values: Sequence[float]) -> Image:
    line = [Spread.of([value]) for value in values]
    return curves(f"Known to {party}", list(trees), {"this run": line}, "trees", "V-measure of the communities")
