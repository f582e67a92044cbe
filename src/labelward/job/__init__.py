"""The job file: what to train, on whose data, against which attacks, as frozen dataclasses."""

from labelward.job._validators import check_unique, is_table_path, split_address
from labelward.job.components import ComponentSpec, Variant
from labelward.job.job import Job, as_job
from labelward.job.parse import load_job, network_job, parse_job
from labelward.job.sections import (
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
    TableKeys,
)
from labelward.job.template import template
from labelward.job.tuning import UNITS, TuneSection, TuneVariable

__all__ = [
    "UNITS",
    "ComponentSpec",
    "DataSection",
    "EncryptionSection",
    "Job",
    "LeakageSection",
    "NetworkSection",
    "PartySection",
    "RunSection",
    "TableKeys",
    "TuneSection",
    "TuneVariable",
    "Variant",
    "as_job",
    "check_unique",
    "is_table_path",
    "load_job",
    "network_job",
    "parse_job",
    "split_address",
    "template",
]
