"""Template of a commented job file, written by ``labelward init``."""

from __future__ import annotations

from labelward.job.table_formats import listed_suffixes

_TEMPLATE = """\
# A simulation on one machine: train across the parties, attack what each passive party saw, and compare defenses.
# Run it with:  labelward audit job.toml --out audit

[data]
table = "breast_cancer"        # catalogue name (labelward list tables), or path of a {formats} file
label = "label"                # label column; required for a file
# id = "customer"              # column of row ids, if any
# task = "regression"          # default: classification
# weight = "exposure"          # column of row weights
test_size = 0.2                # fraction of the rows held out for testing
validation_size = 0.0          # fraction of the other rows used for early stopping only
split = "random"               # or "reference": the split of the published reference figures
partition = "random"           # or "importance": passive parties get the most important columns
overlap = false                # true: a column may be given to two parties
categories = "native"          # text columns; or "dummies": one-hot encoded
# monotone = {income = 1}      # predictions may only increase (1) or decrease (-1) with the column

[parties]                      # the party called "active" holds the labels; at least one passive party
active = 0.5                   # fraction of the columns, or a list of their names; may be 0 or empty
telco = 0.5                    # fractions for all parties, or lists for all parties

# Parties with a table each, matched by row ids, instead of [parties] above and `table`, `label` in [data]:
# [parties.bank]
# table = "bank.csv"
# id = "customer"
# label = "churned"            # the party with the label column is the active party
# [parties.telco]
# table = "telco.parquet"
# id = "customer"
# columns = ["minutes", "roaming"]    # default: all columns
#
# Over a network each company has such a file with its own table only; the sections of the others are empty:
# [parties.bank]
# role = "active"              # needed where no label column says who is active
# [network]                    # then: labelward party job.toml --as telco
# address = "bank.example:7443"

[model]
kind = "secureboost"           # boosted trees; or "forest", "splitnn". Parameters: labelward list models
trees = 5
depth = 6
learning_rate = 0.3
feature_fraction = 0.8
bins = 32
candidates = "global"          # or "node"
# objective = "count:poisson"  # boosted trees; default: chosen by the labels
# early_stopping_rounds = 10   # boosted trees; needs validation_size in [data]
# row_fraction = 0.8           # fraction of the rows for each tree; a forest needs it below 1, or replace = true

[encryption]
engine = "paillier"            # or "plain": no encryption; needs insecure = true
bits = 2048                    # key length; less needs insecure = true
insecure = false
workers = 0                    # processes for heavy arithmetic; 0: one for each core
precision = 30                 # fractional bits of encrypted values, 16 to 30
# memory_limit = "4 GB"        # encrypted rows kept in memory; the rest goes to a temporary file

# Every [[defense]] is compared with the undefended run; a list is swept, one run for each value.
[[defense]]
kind = "id-lmid"
xi = [0.1, 0.3, 0.5]           # bound in nats; the label of two classes has at most 0.69

# [[defense]]                  # several defenses composed
# chain = [{kind = "local-trees", count = 1, mode = "add"}, {kind = "id-lmid", xi = 0.5}]

# All attacks on trees: which is the strongest differs from table to table.
[[attack]]                     # own columns averaged over the rows that share leaves
kind = "leaf-smoothing"

[[attack]]                     # eigenvectors of the graph of shared leaves, beside own columns
kind = "spectral-clustering"

[[attack]]                     # communities of that graph, beside own columns
kind = "id2graph"

[[attack]]                     # a mixture model of leaves and own columns
kind = "latent-classes"

[[attack]]                     # eigenvectors alone, of the CMOSB paper
kind = "instance-clustering"

[[attack]]                     # what these agree on
kind = "consensus"

[[attack]]                     # rows that share any leaf
kind = "union"

[[attack]]                     # the same, beside own columns
kind = "union-clustering"

[[attack]]                     # own columns alone, without the view
kind = "clustering"

[leakage]
label_bins = 4                 # regression: attacks infer the label's bin among this many of equal size
# budget = 0.3                 # upper limit of the V-measure of any passive party's communities

[run]
seeds = [1, 2, 3, 4, 5]        # each seed divides rows and columns anew; the report gives mean and spread
"""


def template() -> str:
    """Return the text of a commented job file that parses and runs as it stands."""
    return _TEMPLATE.replace("{formats}", listed_suffixes())
