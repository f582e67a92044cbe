"""The page: self-contained, escaped, complete, and refused for damaged input."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from stored_audit import JOB, LOCAL, make_leakage, make_row, make_run, write_audit

from labelward.errors import Code, DependencyError, FileFormatError, OutputError
from labelward.installation import install_command
from labelward.report.load import read_audit
from labelward.report.metrics import format_metric
from labelward.report.narrative import constraint_notice
from labelward.report.page import write_report
from labelward.report.run_tables import defense_table
from labelward.runs.schema import RESULTS_FILE, EngineInfo, append_row, run_folder, write_run
from refusals import refused

VOID = {"meta", "br", "hr", "img", "link", "input", "use", "path"}


class Page(HTMLParser):
    """Collects what the tests ask for, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(write_audit(tmp_path_factory.mktemp("audit"))).read_text(encoding="utf-8")


def test_nothing_is_fetched(text: str) -> None:
    page = Page(text)
    assert not {"link", "iframe", "object", "embed", "base", "form"} & page.tags.keys()
    fetching = ("src", "srcset", "href", "xlink:href", "action", "poster", "data", "background")
    references = [value for _, name, value in page.attributes if name in fetching]
    assert references
    assert all(value.startswith("#") for value in references)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= namespaces


def test_the_policy_admits_the_script_of_the_page_and_no_other(text: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text
    assert not re.search(r"innerHTML|eval|fetch|import|XMLHttp|outerHTML|document\.write", script)


def test_every_message_of_a_family_has_a_purpose() -> None:
    from labelward.messages import codec  # noqa: F401
    from labelward.messages.base import Message, wire_name
    from labelward.report.formatting import NOTHING
    from labelward.report.message_purposes import message_purpose

    kinds = [kind for kind in _all_of(Message) if kind.__module__.startswith("labelward.messages.")]
    assert len(kinds) > 30
    assert not [wire_name(kind) for kind in kinds if message_purpose(wire_name(kind)) == NOTHING]


def _all_of(kind: type) -> list[type]:
    return [each for child in kind.__subclasses__() for each in (child, *_all_of(child))]


def test_every_id_is_there_once_and_every_reference_has_one(text: str) -> None:
    page = Page(text)
    ids = Counter(value for _, name, value in page.attributes if name == "id")
    assert [name for name, number in ids.items() if number > 1] == []
    links = {value[1:] for _, name, value in page.attributes if name in ("href", "xlink:href")}
    links |= set(re.findall(r"url\(#([^)]*)\)", text))
    assert links <= ids.keys()


def test_the_page_can_be_read_without_eyes(text: str) -> None:
    page = Page(text)
    assert page.tags["svg"] == 4  # a plot and its legend for each attacker
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == 2
    assert labels[0].startswith("Leakage to telco against")
    assert page.tags["caption"] == page.tags["table"] > 10
    assert all(value in ("col", "row") for tag, name, value in page.attributes if tag == "th" and name == "scope")
    assert sum(tag == "th" and name == "scope" for tag, name, _ in page.attributes) == page.tags["th"]
    assert ("html", "lang", "en") in page.attributes
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_each_defense_has_its_mark_with_a_title(text: str) -> None:
    for plot in (0, 1):
        titles = re.findall(rf'<g id="plot-1-{plot}-defense-\d"><title>(.*?): AUC [\d.]+ ± [\d.]+, leakage', text)
        assert titles == [
            *("no defense", "id-lmid (xi 0.1)", "id-lmid (xi 0.5)", "id-lmid (xi 1.0)", "id-lmid (xi 2.0)"),
            "local-trees (count 2, mode add)",
        ]
    for line in ("at best without the view", "of the active party alone", "of centralized training"):
        assert len(re.findall(rf"(leakage|utility) {line}</text>", text)) == 2
    assert text.count("leakage by chance: 0.002, below the plot</text>") == 2


def test_chance_is_drawn_where_it_lies_near_the_marks(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    append_row(tmp_path, make_row(leakage=make_leakage(0.7, 0.1)))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "leakage by chance</text>" in text


def test_marks_of_a_kind_differ_in_their_fill(text: str) -> None:
    marks = re.findall(r'<g id="plot-1-0-defense-([1-4])">.*?</defs>.*?<use ([^>]*)', text, re.DOTALL)
    fills = [re.findall(r"fill-opacity: ([\d.]+)|fill: none", each) for _, each in marks]
    assert [number for number, _ in marks] == ["1", "2", "3", "4"]
    assert len({str(fill) for fill in fills}) == 4


def test_narrow_screens_have_each_figure_beside_its_name(text: str) -> None:
    page = Page(text)
    labels = [value for tag, name, value in page.attributes if tag == "td" and name == "data-label"]
    assert len(labels) == page.tags["td"]
    assert {"V-measure", "without the view", "chance", "AUC"} <= set(labels)
    roles = Counter(value for _, name, value in page.attributes if name == "role")
    assert roles["cell"] == page.tags["td"]  # said in full: as cards they are no table to the browser
    assert roles["columnheader"] + roles["rowheader"] == page.tags["th"]


def test_details_that_are_missing_are_told(audit: Callable[..., Path]) -> None:
    folder, told = audit(seeds=1), list[str]()
    write_report(folder, warn=told.append)
    assert told == []
    shutil.rmtree(folder / "runs")
    page = write_report(folder, warn=told.append).read_text(encoding="utf-8")
    assert len(told) == 1
    assert "all 6 runs" in told[0]
    assert f'<p class="banner caution" role="status">{told[0]}</p>' in page
    Page(page)


def test_tallies_that_a_defense_cannot_have_are_left_out(text: str) -> None:
    assert "hidden splits 31" in text
    assert "Hidden splits: " in text
    assert "given up splits" not in text
    assert "Given up splits" not in text


def test_an_attack_that_never_opens_the_view_has_no_plot(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    for seed in (1, 2):
        append_row(tmp_path, make_row(seed=seed, attack={"kind": "clustering"}, leakage=make_leakage(0.5, 0.5)))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "clustering" in text
    assert "<svg" not in text
    assert "Leakage to telco" not in text


def test_no_number_is_missing(text: str) -> None:
    body = text.partition("<body>")[2]
    assert not re.search(r"\b(nan|NaN|inf|None|undefined)\b", body)


@pytest.mark.parametrize(
    "content",
    [
        "9f3a 61c0 4be2 d758",
        "gmpy2 2.2.1 (GMP 6.3.0)",
        "classes = 2",
        "hidden splits 31",
        "refused candidates 815",
        "AMD EPYC 9V74, 2 cores",
        "labelward 0.1.0",
        "xi = [0.1, 0.5, 1.0, 2.0]",
        "semi-honest",
    ],
)
def test_what_the_page_must_say(text: str, content: str) -> None:
    assert content in text


def test_a_complete_secure_audit_has_no_banner(text: str) -> None:
    assert 'class="banner' not in text


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    (tmp_path / "job.toml").write_text(JOB + f"# {evil}\n")
    attack = {"kind": "id2graph", "note": "'\"><img src=x onerror=alert(1)> --> ]]> $x_1$ <title>"}
    append_row(tmp_path, make_row(dataset=evil, party=evil, attack=attack, versions={evil: evil}))
    append_row(tmp_path, make_row(dataset=evil, party=evil, attack=attack, defense=({"kind": evil, "x": "$a_b^"},)))
    seen = {evil: make_run().seen["telco"]}
    write_run(tmp_path, make_run(processor=evil, seen=seen, phases={evil: {evil: 1.0}}, applied=({"kind": evil},)))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    assert (page.tags["script"], page.tags["img"]) == (1, 0)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_a_single_row_is_enough(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    append_row(tmp_path, make_row())
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "1 of 30 runs" in text
    assert not re.search(r"\d ±", text)
    Page(text)


def test_without_any_attack(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    append_row(tmp_path, make_row(attack=None, leakage=None, party=None))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "No attack on labels was run" in text
    assert "<svg" not in text


def test_an_insecure_run_says_so_on_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    engine = EngineInfo(name="plain", bits=0, insecure=True, security_level=0)
    append_row(tmp_path, make_row(engine=engine))
    body = write_report(tmp_path).read_text(encoding="utf-8").partition("<body>")[2]
    assert body.lstrip().startswith('<p class="banner alarm" role="alert">')


def test_a_metric_inside_and_outside_the_training_rows_is_explained_once(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    leakage = make_leakage(0.7, 0.5)
    for figures in (leakage, leakage["chance"], leakage["without_view"]):
        figures |= {"balanced_accuracy": 0.5, "outside_balanced_accuracy": 0.5}
    append_row(tmp_path, make_row(leakage=leakage))
    assert write_report(tmp_path).read_text(encoding="utf-8").count("Balanced accuracy: ") == 1


def test_two_models_have_a_section_each(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    for trees, leak in ((5, 0.7), (10, 0.8)):
        model = {"kind": "secureboost", "trees": trees}
        append_row(tmp_path, make_row(model=model, leakage=make_leakage(leak, 0.5)))
        append_row(tmp_path, make_row(model=model, leakage=make_leakage(leak - 0.1, 0.5), defense=LOCAL))
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.tags["h1"] == 2
    assert page.tags["svg"] == 4


def test_writing_twice_gives_the_same_page(audit: Callable[..., Path]) -> None:
    folder = audit(seeds=2)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert not list(folder.glob("*.partial"))


def test_a_page_that_cannot_be_written_leaves_nothing_behind(audit: Callable[..., Path]) -> None:
    """The part that fitted on a full disk stayed beside the results."""
    folder = audit(seeds=1)
    (folder / "report.html").mkdir()
    before = sorted(folder.iterdir())
    with refused(OutputError, "unwritable", field=str(folder / "report.html")):
        write_report(folder)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["job.toml", RESULTS_FILE, "run.json"])
@pytest.mark.parametrize("damage", [b"{]\n", b"\xff\xfe\n", b'{"format": 9}\n'])
def test_damaged_input_is_refused(audit: Callable[..., Path], name: str, damage: bytes) -> None:
    folder = audit(seeds=1)
    path = run_folder(folder, LOCAL, 1) / name if name == "run.json" else folder / name
    path.write_bytes(damage)
    with pytest.raises(FileFormatError) as caught:
        write_report(folder)
    later = damage.startswith(b'{"') and name != "job.toml"
    assert caught.value.code in (("format-version",) if later else ("damaged", "unreadable"))
    assert str(path) in (caught.value.field.partition(",")[0], caught.value.value)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(("name", "code"), [("job.toml", "unreadable"), (RESULTS_FILE, "incomplete")])
def test_missing_input_is_refused(audit: Callable[..., Path], name: str, code: Code) -> None:
    folder = audit(seeds=1)
    (folder / name).unlink()
    with refused(FileFormatError, code, value=str(folder / name if name == "job.toml" else folder)):
        write_report(folder)


def test_a_training_has_no_report(audit: Callable[..., Path]) -> None:
    folder = audit(seeds=1)
    job = (folder / "job.toml").read_text(encoding="utf-8")
    (folder / "job.toml").write_text(
        f"# Written by labelward train: the job, completed with defaults.\n\n{job}", "utf-8"
    )
    with refused(FileFormatError, "foreign", value=str(folder)):
        write_report(folder)


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_missing_library_is_named(audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    folder = audit(seeds=1)
    monkeypatch.setitem(sys.modules, library, None)
    with refused(DependencyError, "dependency", value=library) as caught:
        write_report(folder)
    assert caught.value.reason.endswith(install_command("report"))


@pytest.mark.parametrize(
    ("name", "figure"),
    [("r2", -0.25), ("r2", 0.25), ("rmse", 1.2346e-7), ("rmse", 91234.0), ("rmse", -12.5), ("mae", 9.87654e140)],
)
def test_tables_are_sorted_by_the_figures_that_they_print(name: str, figure: float) -> None:
    """The pattern of the page's script, which Python reads as well, on what pages print."""
    script = files("labelward.report").joinpath("page.js").read_text(encoding="utf-8")
    minus = re.search(r'replaceAll\("\\u2212", "(.)"\)', script)
    pattern = re.search(r"= /(.*)/\.exec", script)
    assert minus is not None
    assert pattern is not None
    for text in (format_metric(name, figure), format_metric(name, figure, abs(figure))):
        found = re.search(pattern[1], text.replace("\N{MINUS SIGN}", minus[1]))
        assert found is not None
        assert float(found[1].replace(",", "")) == pytest.approx(figure, rel=0.01)


def test_constraints_are_remarked(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, seeds=1)
    assert not read_audit(folder).constrained
    (folder / "job.toml").write_text(JOB.replace("test_size = 0.2", 'test_size = 0.2\nmonotone = {"mean radius" = 1}'))
    (notice,) = constraint_notice(read_audit(folder).constrained, ())
    assert notice in write_report(folder).read_text(encoding="utf-8")


_ADDS, _READS, _TELLS = "add ciphertexts", "reads all embeddings", "says what is hidden"


@pytest.mark.parametrize(
    ("kind", "engine", "words"),
    [
        ("secureboost", "paillier", _ADDS),
        ("secureboost", "plain", _TELLS),
        ("splitnn", "none", _READS),
        ("federboost", "none", _TELLS),
        ("logistic", "paillier", _TELLS),
    ],
)
def test_fixed_paragraphs_fit_the_model(tmp_path: Path, kind: str, engine: str, words: str) -> None:
    """What a passive party reads differs by model; a coalition that attacks is no longer outside of the report."""
    (tmp_path / "job.toml").write_text(JOB)
    used = EngineInfo(name=engine, bits=0, insecure=engine == "plain", security_level=0)
    for more in ({}, {"party": "telco+bank", "coalition": ("telco", "bank")}):
        append_row(tmp_path, make_row(model={"kind": kind}, engine=used, **more))
    write_run(tmp_path, make_run())
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert [each in text for each in (_ADDS, _READS, _TELLS)] == [each == words for each in (_ADDS, _READS, _TELLS)]
    assert ("owner of each split" in text) == (kind == "secureboost")
    assert ("embeddings of their bottom models" in text) == (kind == "splitnn")
    assert ("decrypted sums and" in text) == (words == _ADDS)
    assert "other parties that combine their views" in text


def test_a_defense_without_an_account_of_its_actions_is_listed() -> None:
    hidden = {"kind": "min-bin-rows", "party": "telco", "rows": 5}
    counted = {"kind": "id-lmid", "xi": 0.5}
    account = {**counted, "hidden_splits": 3}
    (first, second) = defense_table({"both": [make_run(defense=(counted, hidden), applied=(account,))]}).rows
    assert first == ("both", "id-lmid", "xi 0.5, hidden splits 3")
    assert second[1] == "min-bin-rows"
    assert "party telco, rows 5" in second[2]
    assert "not counted" in second[2]
