"""What the tests of clients share: a pool on a loopback server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentry.clients.openai_compatible import Config
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.sections import Budget
from loopback import Run


@pytest.fixture
def pool_at(tmp_path: Path) -> Callable[..., ClientPool]:
    """A new pool, as a new process would make it, on the test's one store."""

    def pool(url: str | None, *, budget: Budget | None = None, config: dict[str, Any] | None = None, **run: Any) -> ClientPool:
        return ClientPool(
            {"judge": Config(kind="openai_compatible", model="asked-model", **config or {})},
            {"judge": Run(base_url=url, **run)},
            budget=budget,
            models=tmp_path / "models",
            store=ReplyStore(tmp_path / "replies"),
            first_wait_s=0.01,
        )

    return pool
