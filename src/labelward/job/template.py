"""The commented job file that ``labelward init`` writes."""

from __future__ import annotations

from labelward.job.table_formats import listed_suffixes

__all__ = ["template"]

_TEMPLATE = """\
# A rehearsal on one machine: train across the parties, let each passive party attack what it saw, and compare
# defenses.
# Run it with:  labelward audit job.toml --out audit

[data]
table = "breast_cancer"        # a name of the catalogue (labelward list), or a {formats} file
label = "label"                # the label column; required for a file
# id = "customer"              # the column of row ids, if rows have ids
# task = "regression"          # labels are quantities; else classes
# weight = "exposure"          # the column of row weights, if rows count differently
test_size = 0.2                # share of the rows that are tested on
validation_size = 0.0          # share of the others that early stopping watches
split = "random"               # or "reference": the splits of the published reference figures
partition = "random"           # or "importance": passive parties get the most telling columns
overlap = false                # true: a column may be given to two parties
categories = "native"          # or "dummies": a column of 0 and 1 for each category of a text
# monotone = {income = 1}      # predictions may only rise (1) or fall (-1) with the column

[parties]                      # the party called "active" holds the labels; at least one other party
active = 0.5                   # a share of the columns, or a list of their names; may be 0 or empty
telco = 0.5                    # for all parties a share, or for all parties a list

# Parties with a table each, matched by row ids, instead of [parties] above and `table`, `label` in [data]:
# [parties.bank]
# table = "bank.csv"
# id = "customer"
# label = "churned"            # whose section has the label is the active party
# [parties.telco]
# table = "telco.parquet"
# id = "customer"
# columns = ["minutes", "roaming"]    # all columns if left out
#
# Over a network each company has such a file, with a table in its own section only; the others' sections are empty:
# [parties.bank]
# role = "active"              # where no label column here says who is active
# [network]                    # then: labelward party job.toml --as telco
# address = "bank.example:7443"

[model]
kind = "secureboost"           # boosted trees; or "forest". labelward list shows their parameters
trees = 5
depth = 6
learning_rate = 0.3
feature_fraction = 0.8
bins = 32
candidates = "global"          # or "node"
# objective = "count:poisson"  # boosted trees; left out: what fits the labels
# early_stopping_rounds = 10   # boosted trees; needs validation_size in [data]
# row_fraction = 0.8           # share of the rows of each tree; a forest needs it below 1, or replace = true

[encryption]
engine = "paillier"            # or "plain", which encrypts nothing and needs insecure = true
bits = 2048                    # length of the key; less needs insecure = true
insecure = false
workers = 0                    # processes for heavy arithmetic; 0: as many as there are cores
precision = 30                 # binary digits after the point, 16 to 30
# memory_limit = "4 GB"        # of encrypted rows in memory; the others lie in a temporary file

# Every [[defense]] is run beside the undefended run; a list is swept, one run for each value.
[[defense]]
kind = "id-lmid"
xi = [0.1, 0.3, 0.5]           # in nats; two classes have at most 0.69 to tell

# [[defense]]                  # several defenses at once
# chain = [{kind = "local-trees", count = 1, mode = "add"}, {kind = "id-lmid", xi = 0.5}]

[[attack]]
kind = "id2graph"

[[attack]]
kind = "clustering"

[leakage]
label_bins = 4                 # in regression attacks guess the label's bin, among so many of equal size
# budget = 0.3                 # tell no passive party what lifts the V-measure of its communities above this

[run]
seeds = [1, 2, 3, 4, 5]        # each seed deals out rows and columns anew; the report gives mean and spread
"""


def template() -> str:
    """Return the text of a commented job file that parses and runs as it stands."""
    return _TEMPLATE.replace("{formats}", listed_suffixes())
