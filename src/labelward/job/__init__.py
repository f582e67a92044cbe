"""The job file: what to train, on whose data, against which attacks, as frozen dataclasses."""

from labelward.job.kinds import Kind, Variant
from labelward.job.model import Job
from labelward.job.network import NetworkSection, split_address
from labelward.job.parse import load_job, parse_job
from labelward.job.sections import DataSection, EncryptionSection, LeakageSection, PartySection, RunSection
from labelward.job.template import template

__all__ = [
    "DataSection",
    "EncryptionSection",
    "Job",
    "Kind",
    "LeakageSection",
    "NetworkSection",
    "PartySection",
    "RunSection",
    "Variant",
    "load_job",
    "parse_job",
    "split_address",
    "template",
]
