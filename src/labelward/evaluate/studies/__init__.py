"""Studies: the tables and figures of a paper as jobs, run and read again; what the paper prints stands beside."""
