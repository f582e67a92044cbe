"""Template of a commented job file, written by ``labelward init``."""

from importlib import resources

from labelward.job.table_formats import listed_suffixes


def template() -> str:
    """Return the text of a commented job file that parses and runs as it stands."""
    text = (resources.files("labelward.job") / "template.toml").read_text(encoding="utf-8")
    return text.replace("{formats}", listed_suffixes())
