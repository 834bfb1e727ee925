"""Where the runs are: the address of the tracker, the command that serves its pages, and the link to them."""

import os
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

HOST = "127.0.0.1"
PORT = 5123
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""With MLflow's own retries a server that is down blocks for four minutes."""


def quiet_environment() -> None:
    """Set telemetry off, few retries and short timeouts, where the user set nothing; before mlflow is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def tracking_uri(root: Path) -> str:
    """`MLFLOW_TRACKING_URI`, else a SQLite file at the root: absolute, so that experiments in temporary folders share it."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve() / 'mlflow.db'}"


def artifact_location(root: Path, uri: str) -> str | None:
    """Where a new experiment keeps its files: beside a SQLite file; a server decides for itself (None)."""
    return (root.resolve() / "mlartifacts").as_uri() if uri.startswith("sqlite:") else None


def shown_uri(uri: str) -> str:
    """The address without user and password, fit for logs."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else uri


def ui_command(root: Path, port: int = PORT) -> list[str]:
    """The command that serves the runs of a SQLite file on loopback, with one worker."""
    artifacts = (root.resolve() / "mlartifacts").as_posix()
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    return [*command, "--backend-store-uri", tracking_uri(root), "--artifacts-destination", artifacts]


def ui_link(uri: str, experiment_id: str, view: str, port: int = PORT) -> str:
    """The page that opens on a saved view, in the page's mode for model training (its other mode opens empty)."""
    base = shown_uri(uri).rstrip("/") if uri.startswith("http") else f"http://{HOST}:{port}"
    query = f"workflowType=machine_learning&viewStateShareKey={quote(view)}&compareRunsMode=CHART"
    return f"{base}/?workflowType=machine_learning#/experiments/{experiment_id}/runs?{query}"
