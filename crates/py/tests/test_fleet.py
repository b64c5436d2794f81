"""The command of a fleet, without a cluster: `cargo xtask python --fleet` runs it on one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lastwords import fleet
from made import Made


def test_the_entries_of_folders_are_inputs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    for name in ("c.dump", ".hidden", "alone"):
        (tmp_path / name).write_text("x")
    (tmp_path / "a" / "within").write_text("x")
    found = fleet.entries([tmp_path, tmp_path / "alone"])
    assert found == [str(tmp_path / name) for name in ("a", "alone", "b", "c.dump", "alone")]


def test_batches_have_all_inputs_once() -> None:
    assert fleet.batches(["a", "b", "c"], 2) == [["a", "b"], ["c"]]
    assert fleet.batches([], 2) == []


def test_a_task_adds_its_inputs_and_lists_what_cannot_be_read(
    program: str, made: Made, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "metadata").write_text("/* CTF 1.8 */ trace { ")
    (damaged / "stream_0").write_bytes(b"\xc1\x1f\xfc\xc1" * 16)
    run = fleet.task(program, tmp_path / "set")
    assert run([str(made.folder), str(damaged)]) > 1 << 20
    assert len(list(tmp_path.glob("set/v1/crashes/*/part-*.parquet"))) == 1
    (dead,) = (tmp_path / "set/dead-letters.jsonl").read_text().splitlines()
    assert json.loads(dead)["path"] == str(damaged)
    assert fleet.dead_letters(tmp_path / "set") == 1


def test_a_task_fails_if_the_data_set_cannot_be_written(
    program: str, made: Made, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="status 1: .*file"):
        fleet.task(program, tmp_path / "file")([str(made.folder)])


def test_without_spark_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    # Nothing but the package is found.
    hide = "import sys; sys.modules['pyspark'] = None; from lastwords.fleet import main; sys.exit(main())"
    command = [sys.executable, "-c", hide, tmp_path, "--into", tmp_path / "set"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "pip install pyspark" in ran.stderr, ran.stderr
