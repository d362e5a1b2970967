"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def require_chromium() -> str:
    """Return the path of Chromium; installs Debian's as root if there is none."""
    if path := _found():
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    path = _found()
    assert path, "the tests of the pages need Chromium: apt-get install chromium"
    return path


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a headless browser; until it ends, no other event loop can run in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


def serious_problems(page: Page) -> list[dict[str, Any]]:
    """Return what makes a complete page inaccessible: the serious and critical violations that axe finds."""
    # A part that is asked for is faint, and so it is for a while after its answer.
    page.wait_for_load_state("networkidle")
    page.wait_for_function("document.getAnimations().length === 0")
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    return [violation for violation in found["violations"] if violation["impact"] in ("serious", "critical")]


def _install() -> None:
    """Install Chromium, unless another process of the tests does so first."""
    with (Path(tempfile.gettempdir()) / "calve-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _found():
            return
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *arguments], check=True, stdout=subprocess.DEVNULL, timeout=900)


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)
