"""MLflow: results are read from disk and upserted as runs; nothing else in latentry talks to a tracker."""
