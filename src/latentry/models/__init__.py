"""Weights from wherever they may be had, checked and converted once to a local folder; one file per kind of source."""
