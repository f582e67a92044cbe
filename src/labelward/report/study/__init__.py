"""The page of a study: our figures, those that the paper prints, and those of an independent implementation."""

from labelward.report.study.page import StudyReport, write_study

__all__ = ["StudyReport", "write_study"]
