"""The model that is interpreted: loaded from a local folder, run to a hookpoint, patched there."""
