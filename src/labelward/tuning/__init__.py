"""Search for the settings that no other setting beats in utility, cost and leakage."""
