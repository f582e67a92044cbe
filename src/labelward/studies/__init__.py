"""Studies: tables and figures of papers, run again and compared with what the papers print.

A new one is one module and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from labelward.errors import InputError, unknown_name

if TYPE_CHECKING:
    from labelward.studies.spec import Study

__all__ = ["find_study", "load_studies"]

_STUDIES = (
    "id2graph:ID2GRAPH",
    "instance_clustering:INSTANCE_CLUSTERING",
    "cmosb:CMOSB",
    "label_inference:LABEL_INFERENCE",
    "id2graph_ablations:ID2GRAPH_ABLATIONS",
    "pivodl:PIVODL",
    "lpsc:LPSC",
)
"""``"module:STUDY"``, relative to this package; a module is imported only when studies are asked for."""


def load_studies() -> dict[str, Study]:
    """Return all studies by name, in the order of the list."""
    pairs = (entry.split(":") for entry in _STUDIES)
    studies: tuple[Study, ...] = tuple(getattr(import_module(f".{module}", __name__), name) for module, name in pairs)
    return {study.name: study for study in studies}


def find_study(name: str) -> Study:
    """Return the study of a name; :class:`InputError` for an unknown one."""
    studies = load_studies()
    if name not in studies:
        raise InputError(unknown_name("study", name, studies), code="unknown", value=name)
    return studies[name]
