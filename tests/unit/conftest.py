"""What many unit tests need: a project of their own to write into."""

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project: its caches are its own, and it is the current folder."""
    root = tmp_path / "project"
    (root / ".dvc").mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(root))
    monkeypatch.chdir(root)
    return root
