"""``labelward study``: a table and a page with our figures and the paper's; refusals are one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from small_jobs import Call, refused

from labelward.studies import load_studies
from labelward.studies.spec import Study


@pytest.mark.slow
def test_a_study_ends_in_a_page(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    asked = ("--table", 2, "--datasets", "breast_cancer,pucrio", "--seeds", 1, "--out", out)
    result = call("study", "id2graph", *asked)
    assert result.exit_code == 0, result.output
    assert "Pucrio is missing" in result.stderr
    assert f"page: {out / 'study.html'}" in result.stdout
    page = (out / "study.html").read_text(encoding="utf-8")
    assert '<span class="ours">0.634</span><span class="other">paper 0.554 ± 0.084</span>' in page  # CL of seed 1
    assert "paper 0.751 ± 0.106" in page
    assert "Pucrio" in page
    again = call("study", "id2graph", *asked, "--quiet")
    assert again.exit_code == 0
    assert again.stdout == result.stdout


def test_bad_requests_are_refused(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    refused(call("study", "id2graph", "--table", 9, "--out", out), "table 9", "table 2")
    refused(call("study", "ica", "--figure", 4, "--out", out), "figure 4")
    refused(call("study", "ica", "--datasets", "synthetic3", "--out", out), "synthetic3", "synthetic1")
    twice = ("--table", "criteo=one.csv", "--table", "criteo=two.csv")
    refused(call("study", "label-inference", *twice, "--out", out), "--table", "'criteo'", "twice")
    assert call("study", "ica", "--seeds", 0, "--out", out).exit_code == 2
    assert not out.exists()


def test_a_study_without_any_data_ends_with_2(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    result = call("study", "label-inference", "--datasets", "cifar100,bhi", "--out", out)
    assert result.exit_code == 2
    assert "CIFAR-100 is missing" in result.stderr
    assert "nothing ran" in result.stderr


def test_a_part_is_named_in_three_ways(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(study: Study, out: Path, *, parts: Sequence[str], **_: object) -> None:
        asked.append((study.name, *parts))
        raise KeyboardInterrupt

    monkeypatch.setattr("labelward.studies.run.run_study", run)
    out = ("--out", tmp_path / "study")
    call("study", "label-inference", "--part", "second step", "--table", 2, "--table", 3, "--figure", 5, *out)
    call("study", "label-inference", "--appendix", "--budget", "paper", *out)
    assert asked == [
        ("label-inference", "second step", "table 2", "table 3", "figure 5"),
        ("label-inference-full", "appendix e", "second step"),
    ]


def test_studies_are_listed_with_their_parts(call: Call) -> None:
    listed = call("study").stdout
    for study in load_studies().values():
        assert study.name in listed
        assert all(part.name in listed for part in study.parts)
        asked_for = [[part.name for part in study.parts if part.on_request is asked] for asked in (False, True)]
        assert all("; ".join(names) in listed for names in asked_for)  # names hold commas


def test_options_that_a_study_lacks_are_refused(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    refused(call("study", "ica", "--budget", "paper", "--out", out), "--budget", "'ica'")
    refused(call("study", "ica", "--appendix", "--out", out), "'appendix'", "figure 3")
    refused(call("study", "id2grap", "--out", out), "'id2graph'?")
    refused(call("study", "ica"), "--out")
    refused(call("study", "--out", out), "NAME")
    assert not out.exists()


def test_an_interrupted_study_says_how_to_go_on(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("labelward.studies.run.run_study", stop)
    result = call("study", "ica", "--out", tmp_path / "study")
    assert result.exit_code == 2
    assert "interrupted: " in result.stderr
    assert str(tmp_path / "study") in result.stderr
