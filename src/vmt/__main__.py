"""``python -m vmt`` is the command ``vmt``."""

import sys


def main() -> int:
    """The command, from its first import on: Ctrl-C ends it in a line."""
    try:
        from vmt.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("vmt: interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
