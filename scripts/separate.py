"""Separate recordings: ``python scripts/separate.py FILE… --checkpoint X [--out DIR]``.

The same as the installed command ``convtasnet separate``.
"""

import sys

from convtasnet.cli import main

if __name__ == "__main__":
    main(["separate", *sys.argv[1:]])
