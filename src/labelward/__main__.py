"""``python -m labelward`` is the command line."""

from labelward.cli import main

main()
