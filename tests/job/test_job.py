"""The job file: what is refused and how the message reads, defaults, sweeps, and the round trip through TOML."""

import math
import pickle
import string
from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from labelward.errors import JobError
from labelward.job import (
    DataSection,
    EncryptionSection,
    Job,
    Kind,
    LeakageSection,
    PartySection,
    RunSection,
    Variant,
    load_job,
    parse_job,
    template,
)

SMALL = {"data": {"table": "breast_cancer"}, "parties": {"active": 0.5, "telco": 0.5}}


def with_section(section: str, **values: object) -> dict:
    return {**SMALL, section: {**SMALL.get(section, {}), **values}}


def refusal(tables: object) -> str:
    with pytest.raises(JobError) as caught:
        parse_job(tables)
    return str(caught.value)


def test_defaults_are_those_of_the_contract():
    job = parse_job(SMALL)
    assert job.data == DataSection(table="breast_cancer", label="label", test_size=0.2, split="random")
    assert job.model == Kind("secureboost")
    assert job.encryption == EncryptionSection(engine="paillier", bits=2048, insecure=False)
    assert job.run.seeds == (1,)
    assert job.leakage == LeakageSection(label_bins=4)
    assert (job.data.task, job.data.weight, job.data.validation_size) == (None, None, 0.0)
    assert (job.data.categories, job.data.monotone) == ("native", {})
    assert job.attacks == ()
    assert job.variants() == (Variant(),)


def test_the_job_of_the_contract_parses():
    job = parse_job(template())
    assert job.model.params["trees"] == 5
    assert [variant.slug for variant in job.variants()] == ["none", *(f"id-lmid-xi-{xi}" for xi in (0.1, 0.3, 0.5))]
    assert [attack.kind for attack in job.attacks] == ["id2graph", "clustering"]
    assert job.run.seeds == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (with_section("data", tabel="x.csv"), ["[data] unknown key 'tabel'", "did you mean 'table'?"]),
        ({**SMALL, "modle": {}}, ["unknown section 'modle'", "did you mean 'model'?"]),
        (with_section("encryption", bit=2048), ["[encryption] unknown key 'bit'", "did you mean 'bits'?"]),
        (
            with_section("data", test_size=1.5),
            ["[data] test_size: must lie strictly between 0 and 1 but got 1.5"],
        ),
        (with_section("data", test_size=math.nan), ["[data] test_size", "nan"]),
        (with_section("data", test_size=True), ["[data] test_size: must be a number but got True"]),
        (with_section("data", split="refrence"), ["[data] split", "'refrence'", "did you mean 'reference'?"]),
        (with_section("data", overlap="yes"), ["[data] overlap: must be true or false but got 'yes'"]),
        (with_section("data", table="rows.csv"), ["[data] label: required", "rows.csv"]),
        (with_section("data", table="rows.xlsx"), ["[data] table", "rows.xlsx", ".parquet"]),
        (with_section("data", table=3), ["[data] table", "3"]),
        (with_section("data", task="regresion"), ["[data] task", "'regresion'", "did you mean 'regression'?"]),
        (with_section("data", task=None, weight=3), ["[data] weight: must be a text that is not empty but got 3"]),
        (with_section("data", weight="label"), ["[data] weight: 'label' is the label column"]),
        (with_section("data", id="i", weight="i"), ["[data] weight: 'i' is the id column"]),
        (
            with_section("data", validation_size=1.0),
            ["[data] validation_size: must be at least 0 and below 1 but got 1.0"],
        ),
        (with_section("data", validation_size=-0.1), ["[data] validation_size", "-0.1"]),
        (with_section("data", validation_size="0.1"), ["[data] validation_size: must be a number but got '0.1'"]),
        (with_section("data", categories="dummy"), ["[data] categories", "'dummy'", "did you mean 'dummies'?"]),
        (with_section("data", monotone=["a"]), ["[data] monotone: must be a table such as", "['a']"]),
        (with_section("data", monotone={"a": 2}), ["[data] monotone: must be 1 or -1 for column 'a' but got 2"]),
        (with_section("data", monotone={"a": 1.0}), ["[data] monotone: must be 1 or -1 for column 'a' but got 1.0"]),
        (with_section("data", monotone={"a": True}), ["[data] monotone", "'a' but got True"]),
        (with_section("data", monotone={"label": 1}), ["[data] monotone: 'label' is the label column"]),
        (with_section("data", weight="w", monotone={"w": 1}), ["[data] monotone: 'w' is the weight column"]),
        (
            {"data": {"table": "digits", "weight": "w"}, "parties": {"active": ["a"], "telco": ["w"]}},
            ["[parties] telco: column 'w' is the weight column"],
        ),
        (with_section("leakage", label_bin=4), ["[leakage] unknown key 'label_bin'", "did you mean 'label_bins'?"]),
        (with_section("leakage", label_bins=1), ["[leakage] label_bins: must lie between 2 and 100 but got 1"]),
        (with_section("leakage", label_bins=4.0), ["[leakage] label_bins: must be a whole number but got 4.0"]),
        ({**SMALL, "leakage": 4}, ["[leakage]: must be a section"]),
        (with_section("data", id="label"), ["[data] id", "'label' is the label column"]),
        ({"parties": SMALL["parties"]}, ["[data] table: required"]),
        ({"data": SMALL["data"]}, ["[parties]: required"]),
        ({**SMALL, "data": 3}, ["[data]: must be a section"]),
        ({**SMALL, "parties": {"active": 1}}, ["at least one passive party"]),
        ({**SMALL, "parties": {"bank": 0.5, "telco": 0.5}}, ["none of them is the active party"]),
        ({**SMALL, "parties": {"active": 0.6, "telco": 0.5}}, ["shares must not exceed 1", "1.1"]),
        ({**SMALL, "parties": {"active": 0.6, "telco": 0}}, ["telco", "must hold at least one column"]),
        ({**SMALL, "parties": {"active": ["a"], "telco": []}}, ["telco", "must hold at least one column"]),
        ({**SMALL, "parties": {"active": 0.5, "telco": 1.5}}, ["telco", "between 0 and 1 but got 1.5"]),
        ({**SMALL, "parties": {"active": 0.5, "telco": True}}, ["telco", "True"]),
        ({**SMALL, "parties": {"active": 0.5, "telco": ["a"]}}, ["not a mixture"]),
        ({**SMALL, "parties": {"active": ["a"], "telco": ["a"]}}, ["telco", "'a' is given to 'active' already"]),
        ({**SMALL, "parties": {"active": ["a", "a"], "telco": ["b"]}}, ["active", "'a' is listed twice"]),
        ({**SMALL, "parties": {"active": ["a"], "telco": ["label"]}}, ["telco", "'label' is the label column"]),
        ({**SMALL, "parties": {"active": 0.5, "no/slash": 0.5}}, ["no/slash", "name"]),
        ({**SMALL, "parties": {"active": 0.5, "Active": 0.5}}, ["Active: it and 'active' differ only in case"]),
        (with_section("encryption", bits=1024), ["[encryption] bits", "at least 2048 but got 1024", "insecure"]),
        (with_section("encryption", bits=2048.0), ["[encryption] bits: must be a whole number but got 2048.0"]),
        (with_section("encryption", engine="plain"), ["[encryption] engine: 'plain'", "insecure = true"]),
        (with_section("encryption", precision=31), ["[encryption] precision", "between 16 and 30 but got 31"]),
        (with_section("run", seeds=[]), ["[run] seeds"]),
        (with_section("run", seeds=[1, 2, 1]), ["[run] seeds: 1 is listed twice"]),
        (with_section("run", seeds=[-1]), ["[run] seeds", "-1"]),
        (with_section("model", depth={"a": 1}), ["[model] depth of 'secureboost'"]),
        (with_section("model", rate=math.inf), ["[model] rate of 'secureboost'", "finite", "inf"]),
        ({**SMALL, "defense": {"kind": "x"}}, ["[[defense]]", "double brackets"]),
        ({**SMALL, "defense": [{"kind": "x"}, {"xi": 1}]}, ["[[defense]] 2 kind: required"]),
        ({**SMALL, "defense": [{"kind": "x", "xi": []}]}, ["[[defense]] 1 xi", "empty list"]),
        ({**SMALL, "defense": [{"kind": "x", "xi": [1, 1]}]}, ["'x (xi 1)' is given twice"]),
        ({**SMALL, "defense": [{"kind": "x", "xi": [1.0, 1]}]}, ["'x (xi 1)' is given twice"]),
        ({**SMALL, "defense": [{"chain": [{"kind": "x"}], "xi": 1}]}, ["[[defense]] 1 xi", "beside chain"]),
        ({**SMALL, "defense": [{"chain": []}]}, ["[[defense]] 1 chain", "at least one defense"]),
        ({**SMALL, "defense": [{"chain": [{"chain": [{"kind": "x"}]}]}]}, ["chain: member 1"]),
        ({**SMALL, "attack": [{"kind": "x"}, {"kind": "x"}]}, ["[[attack]]", "'x' is given twice"]),
        ({**SMALL, "attack": [{"alpha": 3}]}, ["[[attack]] 1 kind: required"]),
    ],
)
def test_bad_input_is_refused_with_its_place_and_value(tables, words):
    message = refusal(tables)
    assert message.startswith("job.toml: ")
    for word in words:
        assert word in message


def test_a_column_may_be_given_twice_where_overlap_is_allowed():
    tables = {"data": {"table": "digits", "overlap": True}, "parties": {"active": ["a"], "telco": ["a", "b"]}}
    assert parse_job(tables).passive[0].columns == ("a", "b")


def test_the_active_party_may_hold_nothing_and_comes_first():
    job = parse_job({**SMALL, "parties": {"telco": 0.4, "bank": 0.6, "active": 0}})
    assert [party.name for party in job.parties] == ["active", "telco", "bank"]
    assert job.shared()["parties"] == ["active", "telco", "bank"]


OWN = {
    "telco": {"table": "t.parquet", "id": "who", "columns": ["minutes"]},
    "bank": {"table": "b.csv", "id": "customer", "label": "churned", "columns": []},
}


def test_parties_with_their_own_tables():
    job = parse_job({"data": {"id": "who"}, "parties": {**OWN, "shop": {"table": "s.csv"}}}, base="/jobs")
    assert job.active == PartySection(name="bank", table="/jobs/b.csv", id="customer", label="churned", columns=())
    assert [party.id for party in job.passive] == ["who", "who"]
    assert job.passive[1].columns is None
    assert parse_job(job.to_toml()) == job


@pytest.mark.parametrize(
    ("data", "parties", "words"),
    [
        ({}, {"telco": OWN["telco"], "active": {"table": "a.csv", "id": "i"}}, "[parties.active] label: required"),
        ({}, {**OWN, "active": {"table": "a.csv", "id": "i"}}, "held by another party than 'active'"),
        ({}, {**OWN, "shop": {**OWN["bank"]}}, "'bank' holds the labels already"),
        ({}, {**OWN, "shop": {"table": "s.csv"}}, "[parties.shop] id: required"),
        ({}, {**OWN, "shop": {"id": "s"}}, "[parties.shop] table: required"),
        ({}, {**OWN, "shop": 0.2}, "[parties.shop] table: required"),
        ({}, {**OWN, "shop": {"table": "s.csv", "id": "i", "colums": []}}, "did you mean 'columns'?"),
        ({}, {**OWN, "shop": {"table": "s.csv", "id": "i", "columns": ["i"]}}, "'i' is the id column"),
        ({}, {**OWN, "shop": {"table": "digits", "id": "i"}}, "[parties.shop] table: must be the path"),
        ({}, {**OWN, "shop": {"table": "s.csv", "id": "i", "columns": []}}, "at least one column"),
        ({"table": "digits"}, OWN, "[data] table: not beside parties"),
        ({"table": "rows.csv"}, OWN, "[data] table: not beside parties"),
        ({"label": "y"}, OWN, "[data] label: not beside parties"),
        (
            {"weight": "w"},
            OWN,
            "[data] weight: not beside parties that have their own tables; write it in [parties.NAME]",
        ),
        ({"monotone": {"x": 1}}, OWN, "[data] monotone: not beside parties that have their own tables; write it in"),
        ({}, {**OWN, "shop": {"table": "s.csv", "id": "i", "weight": "w"}}, "[parties.shop] weight: only beside label"),
        ({}, {**OWN, "bank": {**OWN["bank"], "weight": "churned"}}, "weight: 'churned' is the label column"),
        ({}, {**OWN, "bank": {**OWN["bank"], "weight": "w", "columns": ["w"]}}, "columns: 'w' is the weight column"),
        ({}, {**OWN, "bank": {**OWN["bank"], "monotone": {"customer": 1}}}, "monotone: 'customer' is the id column"),
        (
            {},
            {**OWN, "shop": {"table": "s.csv", "id": "i", "monotone": {"a": 0}}},
            "[parties.shop] monotone: must be 1 or",
        ),
        ({"partition": "importance"}, OWN, "'importance' needs parties with shares"),
    ],
)
def test_bad_sections_of_parties_with_own_tables(data, parties, words):
    assert words in refusal({"data": data, "parties": parties})


def test_the_keys_of_one_s_own_table():
    bank = {**OWN["bank"], "weight": "w", "columns": ["a", "b c"], "monotone": {"b c": -1, "a": 1}}
    job = parse_job({"data": {"task": "regression", "validation_size": 0.1}, "parties": {**OWN, "bank": bank}})
    assert job.active.weight == "w"
    assert job.active.monotone == {"a": 1, "b c": -1}
    assert job.passive[0].monotone == {}
    assert parse_job(job.to_toml()) == job
    assert pickle.loads(pickle.dumps(job)) == job
    with pytest.raises(JobError, match=r"\[parties.x\] table: required beside id, label, weight and monotone"):
        PartySection(name="x", columns=("a",), monotone={"a": 1})


def test_lists_are_swept_and_chains_composed():
    chain = [{"kind": "local-trees", "mode": "add", "count": 1}, {"kind": "id-lmid", "xi": [0.5, 1.0]}]
    job = parse_job({**SMALL, "defense": [{"kind": "a", "p": [1, 2], "q": ["u", "v"]}, {"chain": chain}]})
    assert [variant.slug for variant in job.variants()] == [
        "none",
        "a-p-1-q-u",
        "a-p-1-q-v",
        "a-p-2-q-u",
        "a-p-2-q-v",
        "local-trees-count-1-mode-add+id-lmid-xi-0.5",
        "local-trees-count-1-mode-add+id-lmid-xi-1.0",
    ]
    last = job.defenses[-1]
    assert last.label == "local-trees (mode add, count 1) + id-lmid (xi 1.0)"
    assert last.as_list() == [
        {"kind": "local-trees", "mode": "add", "count": 1},
        {"kind": "id-lmid", "xi": 1.0},
    ]


def test_slugs_are_folder_names_and_differ_where_parameters_do():
    awkward = [Variant((Kind("k", {"p": value}),)).slug for value in ("a/b", "a b", "..", "a+b", "é", True, "x" * 500)]
    assert len(set(awkward)) == len(awkward)
    assert all(len(slug) <= 120 and "/" not in slug and slug not in {".", ".."} for slug in awkward)
    assert Variant((Kind("k", {"p": "x" * 499 + "y"}),)).slug != awkward[-1]


def test_kinds_are_frozen_hashable_and_travel_between_processes():
    kind = Kind("m", {"layers": [8, 4], "rate": 0.1})
    assert kind == Kind("m", {"rate": 0.1, "layers": (8, 4)})
    assert hash(kind) == hash(Kind("m", {"rate": 0.1, "layers": (8, 4)}))
    assert kind.as_dict() == {"kind": "m", "layers": [8, 4], "rate": 0.1}
    assert pickle.loads(pickle.dumps(kind)) == kind
    with pytest.raises(TypeError):
        kind.params["rate"] = 0.2


def test_the_shared_part_holds_what_all_must_agree_on_and_nothing_of_ones_own():
    job = parse_job(
        {
            "data": {"table": "/secret/rows.csv", "label": "y"},
            "parties": {"active": ["a"], "telco": ["b"]},
            "model": {"depth": 6},
            "defense": [{"kind": "id-lmid", "xi": 1}],
        }
    )
    assert job.shared() == {
        "model.kind": "secureboost",
        "model.depth": 6,
        "encryption.engine": "paillier",
        "encryption.bits": 2048,
        "encryption.insecure": False,
        "encryption.precision": 30,
        "parties": ["active", "telco"],
    }


def test_paths_count_from_the_folder_of_the_job_file(tmp_path: Path):
    file = tmp_path / "jobs" / "one.toml"
    file.parent.mkdir()
    file.write_text('[data]\ntable = "../rows.csv"\nlabel = "y"\n[parties]\nactive = 0.5\ntelco = 0.5\n')
    assert load_job(file).data.table == str(tmp_path / "rows.csv")


def test_a_byte_order_mark_is_no_part_of_the_job(tmp_path: Path):
    file = tmp_path / "one.toml"
    file.write_bytes(b"\xef\xbb\xbf" + template().encode())
    assert load_job(file) == parse_job(template())


def test_a_parameter_without_a_value_is_left_out_of_the_file():
    text = parse_job({**SMALL, "attack": [{"kind": "x", "eta": None, "alpha": 3}]}).to_toml()
    assert parse_job(text).attacks == (Kind("x", {"alpha": 3}),)
    chain = [{"kind": "x", "p": None}, {"kind": "y"}]
    assert parse_job(parse_job({**SMALL, "defense": [{"chain": chain}]}).to_toml()).variants()[1].label == "x + y"


def test_variants_know_their_entry_in_the_file():
    job = parse_job({**SMALL, "defense": [{"kind": "a"}, {"kind": "b", "p": [1, 2]}, {"chain": [{"kind": "c"}]}]})
    assert [variant.entry for variant in job.variants()] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such job file"),
        (b"[data\n", "not valid TOML"),
        (b"\xff\xfe", "not a text file in UTF-8"),
        (b"[data]\nsplits = 1\n", "one.toml: [data] unknown key 'splits' (did you mean 'split'?)"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, words):
    file = tmp_path / "one.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(JobError, match=r"one\.toml") as caught:
        load_job(file)
    assert words in str(caught.value)


def test_a_job_made_in_python_is_checked_too():
    parties = (PartySection(name="telco", share=0.5), PartySection(name="active", share=0.5))
    job = Job(data=DataSection(table="digits"), parties=parties, run=RunSection(seeds=[3, 4]))
    assert job.active.name == "active"
    assert hash(job) == hash(parse_job(job.to_toml()))
    with pytest.raises(JobError, match="needs either a share"):
        PartySection(name="telco", share=0.5, columns=("a",))


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
word = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
scalar = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), text)
names = st.lists(word.map(lambda tail: "p" + tail), min_size=1, max_size=4, unique_by=str.lower)
kinds = st.builds(
    lambda kind, params: {"kind": kind, **params},
    word,
    st.dictionaries(text.filter(lambda key: key not in {"kind", "chain"}), scalar, max_size=3),
)
defenses = st.one_of(kinds, st.lists(kinds, min_size=1, max_size=3).map(lambda chain: {"chain": chain}))


@st.composite
def jobs(draw):
    passive = draw(names)
    if draw(st.booleans()):
        parties = {name: 1 / (len(passive) + 1) for name in ["active", *passive]}
    else:
        columns = draw(st.lists(text.filter(lambda c: c != "label"), min_size=len(passive), unique=True))
        parties = {name: [column] for name, column in zip(passive, columns, strict=False)}
        parties["active"] = columns[len(passive) :]
    data = {"table": draw(word), "test_size": draw(st.floats(0.01, 0.99)), "overlap": draw(st.booleans())}
    data["validation_size"] = draw(st.floats(0, 0.99))
    data["task"] = draw(st.sampled_from(["classification", "regression"]))
    data["categories"] = draw(st.sampled_from(["native", "dummies"]))
    data["monotone"] = draw(st.dictionaries(text.filter(lambda c: c != "label"), st.sampled_from([1, -1]), max_size=3))
    return {
        "data": data,
        "parties": parties,
        "model": {"kind": draw(word), **draw(st.dictionaries(word, st.one_of(scalar, st.lists(scalar)), max_size=3))},
        "encryption": {"bits": draw(st.integers(2048, 4096)), "workers": draw(st.integers(0, 8))},
        "defense": draw(st.lists(defenses, max_size=3)),
        "attack": draw(st.lists(kinds, max_size=2)),
        "leakage": {"label_bins": draw(st.integers(2, 100))},
        "run": {"seeds": draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4, unique=True))},
    }


@pytest.mark.parametrize(
    ("given_limit", "read"),
    [(0, 0), (1 << 33, 1 << 33), ("4 GB", 4 * 10**9), ("512MiB", 1 << 29), ("1.5 kB", 1500), ("7 B", 7)],
)
def test_memory_limits(given_limit, read):
    section = EncryptionSection(memory_limit=given_limit)
    assert section.memory_limit == read
    assert EncryptionSection(memory_limit=section.memory_limit) == section


@pytest.mark.parametrize("limit", ["4", "GB", "-1 GB", "4 EB", "4 iB", "", 1.5, True, -1, "1e3 B"])
def test_memory_limits_that_are_none(limit):
    with pytest.raises(JobError, match=r"\[encryption\] memory_limit: must "):
        EncryptionSection(memory_limit=limit)


def test_a_memory_limit_is_a_matter_of_one_party():
    one, two = (parse_job(with_section("encryption", memory_limit=limit)) for limit in ("1 GB", "2 GB"))
    assert one.shared() == two.shared()
    assert parse_job(one.to_toml()) == one
    assert "memory_limit = 1000000000" in one.to_toml()


@given(jobs())
def test_a_completed_job_file_parses_to_the_same_job(tables):
    try:
        job = parse_job(tables)
    except JobError as error:
        if "is given twice" not in str(error):  # the one clash that the generator may make
            raise
        reject()
    again = parse_job(job.to_toml())
    assert again == job
    assert again.to_toml() == job.to_toml()
