"""The exit codes of the command; the package's docstring says what those of every command stand for."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_OUTCOME_UNKNOWN = 4
EXIT_INCOMPLETE = 5
"""Part of what was named does not exist, was not in the state for it, or could not be read."""

EXIT_TIMED_OUT = 124
"""As of timeout(1)."""

EXIT_INTERRUPTED = 130
