"""``python -m vmt`` is the command ``vmt``."""

import sys


def main() -> int:
    """Run the command. Ctrl-C ends it with one line, even while its modules are being imported."""
    try:
        from vmt.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("vmt: interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
