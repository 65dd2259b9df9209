"""Lets tests import quantize_served.py by its name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
