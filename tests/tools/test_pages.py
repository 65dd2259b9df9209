"""The pages made from files are what the files say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_page_is_current() -> None:
    command = [sys.executable, ROOT / "tools/pages.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}run `make docs`"
