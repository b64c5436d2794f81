"""The package says its types, and they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lastwords
import lastwords._native


def test_mypy_finds_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        "-p",
        "lastwords",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_stub_has_what_the_library_has() -> None:
    import ast

    stub = ast.parse((Path(lastwords.__file__).parent / "_native.pyi").read_text())
    for kind in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        own = getattr(lastwords._native, kind.name)
        there = {
            name for name in vars(own) if callable(getattr(own, name)) and not name.startswith("__")
        }
        said = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
        assert {name for name in said if not name.startswith("__")} == there, kind.name
        assert all(hasattr(own, name) for name in said), kind.name


def test_everything_public_is_documented() -> None:
    for name in lastwords.__all__:
        own = getattr(lastwords, name)
        if callable(own):
            assert own.__doc__, name
            for member, value in vars(own).items() if isinstance(own, type) else ():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert value.__doc__, f"{name}.{member}"
