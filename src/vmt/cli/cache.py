"""``vmt cache``: show what the cache holds, or remove it."""

import argparse
import json
import time

from vmt.cache import KINDS, cache_folder, entries, remove
from vmt.disk import DAY
from vmt.errors import size_of

EXAMPLES = """examples:
  vmt cache                        what is there, where, and how large it is
  vmt cache --remove               remove all of it
  vmt cache --remove pictures      only the decoded pictures

Everything in the cache can be computed again, so nothing but time is lost. Decoded pictures and features that have not
been used for 30 days are removed automatically. If they exceed 8 GiB, the least recently used ones are removed earlier.
The environment variable VMT_CACHE names another folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--remove",
        nargs="*",
        metavar="KIND",
        help=f"remove everything, or only these kinds: {', '.join(KINDS)}",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run, needs_torch=False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.remove is not None:
        removed = remove(arguments.remove or KINDS)
        freed = sum(entry.size for entry in removed)
        if arguments.json:
            print(json.dumps({"removed": len(removed), "bytes": freed}))
        else:
            print(f"Removed {size_of(freed)} from the cache.")
        return 0
    found = {kind: entries(kind) for kind in KINDS}
    if arguments.json:
        print(
            json.dumps(
                {
                    kind: {
                        "folder": str(cache_folder(kind)),
                        "entries": len(each),
                        "bytes": sum(entry.size for entry in each),
                    }
                    for kind, each in found.items()
                }
            )
        )
        return 0
    for kind, each in found.items():
        size = size_of(sum(entry.size for entry in each))
        last = f", last used {(time.time() - each[0].used) / DAY:.0f} days ago" if each else ""
        print(f"{kind:<9} {size:>9}  {KINDS[kind]}{last}\n{'':<9} {'':>9}  {cache_folder(kind)}")
    return 0
