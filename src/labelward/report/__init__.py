"""Stored results → one HTML page; and the figures that page and command line share."""
