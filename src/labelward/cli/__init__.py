"""Command line: results on stdout, progress and messages on stderr.

Exit codes: 0 success; 2 invalid input, or an interrupt; 3 failed communication between parties; 1 any other error.
Slow imports are inside the commands, so that ``labelward --help`` is fast.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line on the arguments of this process; an interrupt during imports is reported as well."""
    try:
        from labelward.cli.app import app

        app(prog_name="labelward")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was started\n")
        sys.exit(2)
