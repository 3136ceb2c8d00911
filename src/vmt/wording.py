"""Small parts of sentences."""


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
