"""Reports: HTML pages of stored results, and the summary figures that they share with the command line."""
