"""Small parts of sentences."""

from collections.abc import Iterable
from difflib import get_close_matches


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def perhaps(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that is not known.

    >>> perhaps("vadda", ["vada", "vmt"]), perhaps("other", ["vada", "vmt"])
    (' (perhaps vada?)', '')
    """
    near = get_close_matches(name, list(known), n=1)
    return f" (perhaps {near[0]}?)" if near else ""
