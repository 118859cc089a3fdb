"""Pages in a real browser: headless Chromium, where there is one."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")


def visited(address: str, profile: Path, seconds: int = 60) -> tuple[str, list[str]]:
    """The text that a page puts into its element ``seen``, and what the browser complained of."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", f"--virtual-time-budget={1000 * seconds}"]
    command += ["--window-size=1400,1000", "--hide-scrollbars", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[:2000] + done.stderr[-2000:]
    return html.unescape(found[1]), [line for line in done.stderr.splitlines() if "CONSOLE" in line]
