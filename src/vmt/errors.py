"""The one exception that means: the input is wrong, and this sentence says what to do."""


class InputError(ValueError):
    """Bad input from the user: a file, an argument or a value.

    The message is one sentence that names the offender and the remedy. The command line prints it alone, without
    a traceback, and exits with code 2.
    """
