"""The job file: what to train, on whose data, against which attacks, as frozen dataclasses."""

from labelward.job._validators import is_table_path, split_address
from labelward.job.components import ComponentSpec, Variant
from labelward.job.job import Job
from labelward.job.parse import load_job, parse_job
from labelward.job.sections import (
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
)
from labelward.job.template import template

__all__ = [
    "ComponentSpec",
    "DataSection",
    "EncryptionSection",
    "Job",
    "LeakageSection",
    "NetworkSection",
    "PartySection",
    "RunSection",
    "Variant",
    "is_table_path",
    "load_job",
    "parse_job",
    "split_address",
    "template",
]
