"""What costs a reading of all events is done once, and only when it is asked for."""

from __future__ import annotations

from pathlib import Path

import lastwords
from made import Made


def test_columns_that_need_no_end_cost_no_second_reading(made: Made, tmp_path: Path) -> None:
    """The files are gone when the events are to be read: only what was read before is known."""
    folder = tmp_path / "trace"
    folder.mkdir()
    for file in made.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    recording = lastwords.open(folder)
    whole = list(recording.events())
    end = made.rows[-1][0]
    assert [row["before_end_ns"] for row in whole] == [end - row[0] for row in made.rows]
    assert {row["crash_id"] for row in whole} == {recording.crash.crash_id}
    for file in folder.iterdir():
        file.unlink()
    # The facts about the crash are known still.
    assert recording.crash.crash_id == whole[0]["crash_id"]
    assert repr(recording).startswith("<lastwords.Recording ")


def test_columns_have_the_same_values_alone_and_together(made: Made) -> None:
    recording = lastwords.open(made.folder)
    whole = list(recording.events())
    for columns in (["ts"], ["crash_id"], ["before_end_ns"], ["trace", "time"], ["name", "fields"]):
        fresh = lastwords.open(made.folder)
        alone = list(fresh.events(columns=columns))
        assert alone == [{name: row[name] for name in columns} for row in whole], columns
