"""Inputs of the tests.

LASTWORDS is the program to compare with (by default, that in `target/debug`). LASTWORDS_CASES is a
folder of crash dumps; without it, their tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from made import Made, sample

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def program() -> str:
    """The program `lastwords`."""
    built = ROOT / "target/debug/lastwords"
    found = os.environ.get("LASTWORDS") or (
        str(built) if built.exists() else shutil.which("lastwords")
    )
    assert found, "no program lastwords: set LASTWORDS"
    return found


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A trace with all types and hostile names."""
    return sample(tmp_path_factory.mktemp("made") / "trace")


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions of programs that were killed."""
    folder = tmp_path_factory.mktemp("sessions")
    stored = ROOT / "crates/cli/tests/stored-0.1/sessions.tar.zst"
    subprocess.run(["tar", "--zstd", "-xf", stored, "-C", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Crash dumps of real kernels, by name."""
    place = os.environ.get("LASTWORDS_CASES")
    if not place:
        pytest.skip("LASTWORDS_CASES is not set")
    folder = tmp_path_factory.mktemp("cases")
    found = {}
    for name, file in (
        ("ftrace", "ftrace-6.12-basic/memory.elf.zst"),
        ("lttng", "lttng-6.12-live/vmcore.elf.zst"),
    ):
        found[name] = folder / f"{name}.elf"
        command = ["zstd", "-q", "-d", "--long=27", Path(place, file), "-o", found[name]]
        subprocess.run(command, check=True)
    truth = folder / "truth"
    truth.mkdir()
    archive = Path(place, "lttng-6.12-snapshot-stopped/truth.tar.zst")
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", truth], check=True)
    found["ctf"] = truth
    return found


@pytest.fixture(scope="session", params=["made", "sessions", "ftrace", "lttng", "ctf"])
def source(request: pytest.FixtureRequest) -> Path:
    """Each input."""
    match request.param:
        case "made":
            return request.getfixturevalue("made").folder
        case "sessions":
            return request.getfixturevalue("sessions")
        case name:
            return request.getfixturevalue("cases")[name]
