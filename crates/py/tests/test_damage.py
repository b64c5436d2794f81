"""Damage costs what it damages, is reported, and stops no reader."""

from __future__ import annotations

import random
from pathlib import Path

import lastwords
import pyarrow
import pytest
from made import ORIGIN, Made

# Bytes of a packet before its events.
HEAD = 8 + 44


def copied(made: Made, folder: Path) -> Path:
    folder.mkdir()
    for file in made.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_fault_has_file_offset_and_value(made: Made, tmp_path: Path) -> None:
    folder = copied(made, tmp_path / "trace")
    file = folder / "stream_1"
    data = bytearray(file.read_bytes())
    # The id of the first event of the second packet: no such event.
    size = int.from_bytes(data[24:32], "little") // 8
    at = size + HEAD
    data[at : at + 2] = (0x7777).to_bytes(2, "little")
    file.write_bytes(data)
    events = lastwords.open(folder).events(columns=["ts", "cpu"])
    found = {(row["ts"] - ORIGIN, row["cpu"]) for row in events}
    lost = {row[:2] for row in made.rows} - found
    assert found < {row[:2] for row in made.rows}
    assert len(lost) == made.packet_events and {cpu for _, cpu in lost} == {1}
    (fault,) = events.faults
    assert isinstance(fault, lastwords.ReadError)
    assert (fault.path, fault.value) == (str(file), 0x7777)
    assert at <= fault.offset <= at + 2
    assert "stream_1" in str(fault)


def test_strict_ends_with_the_fault(made: Made, tmp_path: Path) -> None:
    folder = copied(made, tmp_path / "trace")
    file = folder / "stream_0"
    data = file.read_bytes()
    file.write_bytes(data[:HEAD] + b"\x77\x77" + data[HEAD + 2 :])
    recording = lastwords.open(folder)
    with pytest.raises(lastwords.ReadError) as error:
        list(recording.events(strict=True))
    assert error.value.path == str(file)
    with pytest.raises((OSError, pyarrow.ArrowInvalid), match="stream_0"):
        pyarrow.table(recording.events(strict=True))
    assert len(list(recording.events())) < len(made.rows)


def test_a_loss_is_known_before_events_are_read(made: Made, tmp_path: Path) -> None:
    folder = copied(made, tmp_path / "trace")
    file = folder / "stream_0"
    file.write_bytes(file.read_bytes()[:-5])
    recording = lastwords.open(folder)
    (loss,) = recording.losses
    assert (loss.is_loss, loss.cause, loss.events) == (True, "undecoded", None)
    assert recording.crash.has_losses and recording.traces[0].lost_events is None
    assert lastwords.open(made.folder).losses == []


def test_a_file_cut_anywhere_keeps_what_is_before(made: Made, tmp_path: Path) -> None:
    folder = copied(made, tmp_path / "trace")
    file = folder / "stream_0"
    whole = file.read_bytes()
    own = [row[0] for row in made.rows if row[1] == 0]
    before = -1
    for length in [*range(0, 300, 7), *range(300, len(whole), 331), len(whole)]:
        file.write_bytes(whole[:length])
        try:
            rows = [
                row["ts"] - ORIGIN
                for row in lastwords.open(folder).events(cpus=[0], columns=["ts"])
            ]
        except lastwords.Error:
            rows = []
        assert rows == own[: len(rows)]
        assert len(rows) >= before
        before = len(rows)
    assert before == len(own)


def test_bytes_that_are_changed_end_no_process(made: Made, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    folder = copied(made, tmp_path / "trace")
    for name in ("metadata", "stream_0", "stream_1"):
        whole = (folder / name).read_bytes()
        for _ in range(40):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 9)):
                data[chance.randrange(len(data))] = chance.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]
                )
            (folder / name).write_bytes(data)
            try:
                recording = lastwords.open(folder)
                assert len(list(recording.events())) <= 10 * len(made.rows)
                for event in recording.event_names[:3]:
                    pyarrow.table(recording.table(event))
            except (lastwords.Error, pyarrow.ArrowInvalid, OSError):
                pass
        (folder / name).write_bytes(whole)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(lastwords.OpenError, match="nowhere") as error:
        lastwords.open(tmp_path / "nowhere")
    assert isinstance(error.value, OSError)
    assert [failure.severity for failure in error.value.failures] == ["error"]
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(lastwords.OpenError, match="text"):
        lastwords.open(tmp_path / "text")
    with pytest.raises(lastwords.ArgumentError):
        lastwords.open()


def test_one_of_two_that_cannot_be_opened_is_a_failure(made: Made, tmp_path: Path) -> None:
    recording = lastwords.open(made.folder, tmp_path / "nowhere")
    (failure,) = recording.failures
    assert failure.severity == "error" and "nowhere" in failure.why
    assert len(list(recording.events())) == len(made.rows)


def test_a_text_with_a_surrogate_in_its_path(tmp_path: Path, made: Made) -> None:
    folder = copied(made, tmp_path / "tr\udcffce")
    assert len(list(lastwords.open(folder).events())) == len(made.rows)
