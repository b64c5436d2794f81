"""The notebook runs, and shows what is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import nbformat
import pytest
from made import Made
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebooks/crash.ipynb"


def test_the_notebook_runs(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTWORDS_INPUT", str(made.folder))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    shown = [
        output.get("text") or output["data"]["text/plain"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    assert "lastwords.Recording" in shown[0]
    assert "trace: unknown" in shown[1] or "unknown: the input has events" in shown[1]
    assert "axxb" in shown[2]
    counts = Counter(row[3] for row in made.rows)
    truth = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert eval(shown[3]) == truth
    assert "shape: (5, " in shown[4]
