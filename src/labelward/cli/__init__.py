"""The command line: results on stdout, progress and messages on stderr.

Exit codes: 0 done; 2 what was given cannot be used, or an interrupt; 3 a conversation between parties went wrong;
1 anything else.
Whatever is heavy is imported inside the commands, so that ``labelward --help`` answers at once.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line on this process's arguments; an interrupt while it starts ends in one line, too."""
    try:
        from labelward.cli.app import app

        app(prog_name="labelward")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was begun\n")
        sys.exit(2)
