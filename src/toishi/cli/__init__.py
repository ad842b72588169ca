"""The command line: words a person types. Each command parses, calls one function of the library, and prints.

Decisions:
1. Nothing heavy is imported before a command needs it: `toishi --help` answers at once.
2. Exit code 0 only if the command did what it said; 1 for an error that toishi explains; 2 for a command that cannot be read;
   130 after Ctrl-C; 141 when whoever read the output went away before its end.
3. Results go to stdout, errors to stderr. `--json` prints one JSON document and nothing else on stdout: {"error": ...} when the
   command failed. What a reward or a library prints meanwhile goes to stderr.
"""

from toishi.cli.app import main

__all__ = ["main"]
