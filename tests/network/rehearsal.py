"""Parties in threads of one process, connected over gRPC, beside the same run without a network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from companies import Case, Companies, defended, sections, silent, together

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.errors import LabelwardError
from labelward.federation.connect import connect
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import load_job
from labelward.party.view import View


class Network:
    """Parties whose shares are of one class; the working directory must be the folder."""

    def __init__(self, folder: Path, case: Case, share: Any) -> None:
        self.folder, self.case, self.made, self._share = folder, case, Companies(folder, case), share

    def train(self, party: str, **options: Any) -> Any:
        path, run = self.made.job(party), self.made.run(party)
        variant = defended(path) if "[[defense]]" in path.read_text() else None
        join = partial(connect, folder=run)
        return train_as_party(load_job(path), party, run, seed=1, join=join, variant=variant, log=silent, **options)

    def predict(self, party: str) -> Any:
        out = self.folder / "there.parquet" if party == self.case.parties[0] else None
        rows, run = self.folder / f"{party}.csv", self.made.run(party)
        return predict_as_party(
            load_job(self.made.job(party)), party, run, rows, out, join=partial(connect, folder=run), log=silent
        )

    def share(self, party: str) -> Any:
        """Return a party's share, without what names the run."""
        return self._shared(self.made.run(party) / party)

    def train_both(self) -> dict[str, Any]:
        """Train over the network and without; return the parties' records of the former.

        Shares and views must be the same.
        """
        records = together(self.case.parties, self.train)
        assert not [each for each in records.values() if isinstance(each, LabelwardError)], records
        everything = self.folder / "all.toml"
        everything.write_text(sections(self.case, self.case.parties))
        train_variant(load_job(everything), self.folder / "one", seed=1)
        for party in self.case.parties:
            here, there = self.made.run(party) / party, self.folder / "one" / party
            assert self._shared(here) == self._shared(there)
            assert View.load(here / "view").digest() == View.load(there / "view").digest()
        return records

    def predict_both(self, but: frozenset[str] = frozenset()) -> None:
        """Predict the parties' tables over the network and without; all columns ``but`` these must be the same."""
        assert Path.cwd().samefile(self.folder)
        assert together(self.case.parties, self.predict) == dict.fromkeys(self.case.parties, self.case.rows)
        tables = {party: self.folder / f"{party}.csv" for party in self.case.parties}
        predict_table(self.folder / "one", tables, self.folder / "here.parquet")
        here, there = (pq.read_table(self.folder / f"{name}.parquet") for name in ("here", "there"))
        assert here.column_names == there.column_names
        for name in {*here.column_names} - but:
            np.testing.assert_array_equal(here[name], there[name])

    def _shared(self, folder: Path) -> Any:
        return msgspec.structs.replace(self._share.load(folder / "model"), model="", evidence=None)
