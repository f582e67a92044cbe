"""A way to call the command line in this process, a small job, and a finished audit of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_jobs import Call, write_job, write_table
from typer.testing import CliRunner, Result

from labelward.cli.app import app


@pytest.fixture(scope="session")
def call() -> Call:
    """Run one command; options follow as they would on a command line."""
    runner = CliRunner()

    def run(*arguments: object) -> Result:
        return runner.invoke(app, [str(each) for each in arguments], prog_name="labelward")

    return run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of four short trainings, with its table."""
    write_table(tmp_path / "table.csv")
    return write_job(tmp_path)


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """The folder of a finished audit; tests only read it."""
    folder = tmp_path_factory.mktemp("audited")
    write_table(folder / "table.csv")
    result = call("audit", write_job(folder), "--out", folder / "audit", "--quiet")
    assert result.exit_code == 0, result.output
    return folder / "audit"
