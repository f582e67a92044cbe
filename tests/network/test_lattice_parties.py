"""Companies under the lattice engine: the trees of a training without encryption, also where a party was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from companies import Case, companies
from undisturbed import Undisturbed, differences, end_of

pytestmark = pytest.mark.network

ENCRYPTION = 'engine = "lattice"\nworkers = 1\n\n[encryption.lattice]\nreencrypt = "{}"'
CASE = Case(model="trees = 12\ndepth = 3", encryption=ENCRYPTION.format("never"))
AGAIN = replace(CASE, encryption=ENCRYPTION.format("4"))


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASE, AGAIN], ids=["once", "again"])
@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed"])
def test_trees_over_the_network_are_those_of_plain(
    tmp_path: Path, undisturbed: Undisturbed, case: Case, killed: bool
) -> None:
    """Three companies, with a key of 9 MB; one is killed after two trees, and resumes with the others.

    Rows are encrypted once for a tree, or again for every level.
    """
    with companies(tmp_path / "run", case) as made:
        if killed:
            made.stop_at("telco", "trees", count=3)
        made.start_all()
        if killed:
            process = made.stopped("telco")
            process.kill()
            made.processes.remove(process)
            made.start("telco")
        made.ended(**dict.fromkeys(case.parties, 0))
        found = end_of(made)
        assert not differences(found, undisturbed.of(case)), made.told()
        assert found.shares == undisturbed.of(replace(case, encryption=Case.encryption)).shares
        assert any(each.get("resume") for each in made.events("telco")) == killed
