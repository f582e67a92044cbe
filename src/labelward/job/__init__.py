"""The job file: what to train, on whose data, against which attacks, as frozen dataclasses."""

from .kinds import Kind, Variant
from .model import Job
from .network import NetworkSection, split_address
from .parse import load_job, parse_job
from .sections import DataSection, EncryptionSection, LeakageSection, PartySection, RunSection
from .template import template

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
