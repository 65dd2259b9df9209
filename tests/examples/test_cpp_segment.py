"""The C++ example compiles against declarations of the calls it makes, and against real headers where CPP_HEADERS
names their folders (with `:` between them)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/cpp/segment"
COMPILER = shutil.which("g++") or shutil.which("c++")


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_it_compiles_against_the_published_calls() -> None:
    assert COMPILER is not None
    words = [COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    real = [folder for folder in os.environ.get("CPP_HEADERS", "").split(":") if folder]
    words += [word for folder in (*real, EXAMPLE / "stub") for word in ("-I", folder)]
    done = subprocess.run([*words, EXAMPLE / "segment.cpp"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_waits_before_it_reads() -> None:
    text = (EXAMPLE / "segment.cpp").read_text().partition("int main")[2]
    places = [
        text.index(word)
        for word in ("enqueueV3(", "cudaMemcpyDeviceToHost", "cudaStreamSynchronize(stream)", "std::printf")
    ]
    assert places == sorted(places)
