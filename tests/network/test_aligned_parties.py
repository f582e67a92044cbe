"""Companies whose tables hold different ids align them, and train on what they have in common."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from companies import Case, Companies, companies

pytestmark = pytest.mark.network

TWO = Case(parties=("bank", "telco"), rows=80)
LACKS = {"bank": range(6), "telco": range(3, 12), "shop": range(70, 74)}
"""Of each company the rows that its table does not have."""


def common(case: Case) -> list[str]:
    lacking = {row for party in case.parties for row in LACKS[party]}
    return [f"c{row:05d}" for row in range(case.rows) if row not in lacking]


def remove_rows(made: Companies) -> None:
    for party in made.case.parties:
        table = pa.csv.read_csv(made.folder / f"{party}.csv")
        kept = [int(each.as_py()[1:]) not in LACKS[party] for each in table["id"]]
        pa.csv.write_csv(table.filter(pa.array(kept)), made.folder / f"{party}.csv")


def start(made: Companies, party: str, *more: str) -> None:
    made.start(party, "--align", f"{party}.csv", "--to", f"{party}.parquet", *more)


def start_both(made: Companies) -> None:
    for party in TWO.parties:
        start(made, party)


@pytest.mark.parametrize("case", [TWO, pytest.param(Case(rows=80), marks=pytest.mark.slow)])
def test_other_ids_are_aligned_and_trained_on(tmp_path: Path, case: Case) -> None:
    with companies(tmp_path / "run", case) as made:
        remove_rows(made)
        for party in case.parties:
            start(made, party)
        made.ended(**dict.fromkeys(case.parties, 0))
        for party in case.parties:
            before, after = (
                pa.csv.read_csv(made.folder / f"{party}.csv"),
                pq.read_table(made.folder / f"{party}.parquet"),
            )
            assert after["id"].to_pylist() == common(case)  # sorted, whatever the order of the table
            rows = {row["id"]: row for row in before.to_pylist()}
            assert after.to_pylist() == [rows[each] for each in common(case)]
            made.edit(f"{party}.toml", f'"{party}.csv"', f'"{party}.parquet"')
        made.start_all()
        made.ended(**dict.fromkeys(case.parties, 0))
        assert "Traceback" not in made.told()


@pytest.mark.slow
def test_a_party_that_dies_before_ids_are_compared_comes_back(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        remove_rows(made)
        for party in TWO.parties:
            made.run(party).mkdir()  # for its log, on which it stops
        made.stop_at("telco", "attempt")
        start_both(made)
        made.stopped("telco").kill()
        start(made, "telco")
        made.ended(bank=0, telco=0)
        assert pq.read_table(made.folder / "telco.parquet")["id"].to_pylist() == common(TWO)


@pytest.mark.slow
@pytest.mark.parametrize("party", TWO.parties)
def test_nobody_compares_twice_in_one_start(tmp_path: Path, party: str) -> None:
    """A party that is killed in the middle and comes back, perhaps with other ids, ends both."""
    other = "telco" if party == "bank" else "bank"
    with companies(tmp_path / "run", TWO) as made:
        for each in TWO.parties:
            made.run(each).mkdir()  # for its log, on which it stops
        made.stop_at(party, "ids")
        start_both(made)
        made.stopped(party).kill()
        start(made, party)
        said = made.ended(**{party: 3, other: 2})
        assert f"{party!r}" in said[other]
        assert "start again" in said[other]
        assert not [*made.folder.glob("*.parquet")]


@pytest.mark.slow
def test_a_party_that_missed_the_end_is_told(tmp_path: Path) -> None:
    """It was killed when the others had finished, and before its own file was in its place."""
    with companies(tmp_path / "run", TWO) as made:
        for each in TWO.parties:
            made.run(each).mkdir()
        made.stop_at("telco", "finished")
        start_both(made)
        made.stopped("telco").kill()
        start(made, "telco")
        said = made.ended(bank=0, telco=2)
        assert "start again" in said["telco"]
        assert [path.name for path in made.folder.glob("*.parquet")] == ["bank.parquet"]


@pytest.mark.slow
def test_nobody_finishes_where_one_cannot_write(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        start(made, "bank")
        made.start("telco", "--align", "telco.csv", "--to", "telco.parquet", largest=1000)
        said = made.ended(bank=2, telco=2)
        assert "telco.parquet" in said["telco"]
        assert not [*made.folder.glob("*.parquet")]


@pytest.mark.slow
def test_what_goes_wrong(tmp_path: Path) -> None:
    """Too many ids, no common id, an id twice: both end, neither has written anything, and no id is told."""
    with companies(tmp_path / "run", TWO) as made:
        start(made, "bank", "--most-ids", "79")
        start(made, "telco")
        said = made.ended(bank=2, telco=2)
        assert "'telco'" in said["bank"]
        assert "80 ids" in said["bank"]
        made.edit("telco.csv", "c000", "C000")
        start_both(made)
        said = made.ended(bank=2, telco=2)
        assert "in lower case" in said["bank"]
        assert "in lower case" in said["telco"]
        made.edit("telco.csv", "C00017", "C00018")
        start_both(made)
        said = made.ended(bank=3, telco=2)
        assert "table (code 'values')" in said["bank"]
        assert "c000" not in made.told()
        assert "labels are alike" not in made.told()
        text = (made.folder / "bank.csv").read_text().replace(",0\n", ",1\n")
        (made.folder / "bank.csv").write_text(text)
        start_both(made)
        made.ended(bank=3, telco=2)
        assert "labels are alike" in made.told()
        assert not [*made.folder.glob("*.parquet")]
        assert "Traceback" not in made.told()
