"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import subprocess

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def require_chromium() -> str:
    """Return the path of Chromium; installs Debian's as root if there is none."""
    if path := _found():
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *arguments], check=True, stdout=subprocess.DEVNULL, timeout=900)
    path = _found()
    assert path, "the tests of the pages need Chromium: apt-get install chromium"
    return path


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)
