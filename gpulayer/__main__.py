"""`python -m gpulayer`: the same as the command `gpulayer`, for an interpreter whose scripts are not on the path."""

from __future__ import annotations

from gpulayer.cli.main import main

if __name__ == "__main__":
    main()
