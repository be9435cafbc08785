"""Which browser the tests drive: prints the path of a Chromium, installing one where that is possible.

In this order: `GPULAYER_CHROMIUM`; one that is installed; as root on Debian or Ubuntu the distribution's; else the one of the
npm package `@sparticuz/chromium`. Where none of these works, it says what to do and ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGE = "@sparticuz/chromium@^147.0.0"


def main() -> int:
    """Print the path; returns the exit code."""
    for find in (named, installed, from_distribution, from_npm):
        path = find()
        if path and works(path):
            print(path)
            return 0
    print(
        "No Chromium was found, and none could be installed.\n"
        "On Debian or Ubuntu: apt-get install chromium. Elsewhere install Chromium or Chrome,"
        " and name it: GPULAYER_CHROMIUM=/path/to/chromium make test",
        file=sys.stderr,
    )
    return 1


def named() -> str | None:
    """The one that a person has named."""
    return os.environ.get("GPULAYER_CHROMIUM")


def installed() -> str | None:
    """The first on PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def from_distribution() -> str | None:
    """As root, Debian's."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    print("Installing chromium with apt-get ...", file=sys.stderr)
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        done = subprocess.run(command, stdout=sys.stderr, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        if done.returncode != 0:
            return None
    return installed()


def from_npm() -> str | None:
    """Where nothing can be installed for everybody: a browser in a folder of this checkout."""
    folder = HERE / ".browser"
    if shutil.which("npm") is None:
        return None
    print(f"Installing {PACKAGE} into {folder} ...", file=sys.stderr)
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["npm", "install", "--prefix", folder, "--no-save", PACKAGE], stdout=sys.stderr)
    if done.returncode != 0:
        return None
    script = "import('@sparticuz/chromium').then(async chromium => console.log(await chromium.default.executablePath()))"
    found = subprocess.run(
        ["node", "--input-type=module", "-e", script], cwd=folder, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True
    )
    return found.stdout.strip() or None


def works(path: str) -> bool:
    """Whether it starts: a library that is missing shows here, not in every test."""
    try:
        done = subprocess.run([path, "--version", "--no-sandbox"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{path} can't be used: {error}", file=sys.stderr)
        return False
    if done.returncode != 0:
        print(f"{path} can't be used: {done.stderr[-500:]}", file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
