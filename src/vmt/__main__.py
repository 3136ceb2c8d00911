"""``python -m vmt`` is the command ``vmt``."""

import sys

from vmt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
