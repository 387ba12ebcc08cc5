"""`python -m msgconsole.cli`: the command line without its script on the PATH."""

from __future__ import annotations

from msgconsole.cli.entry import main

if __name__ == "__main__":
    main()
