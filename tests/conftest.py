"""Its being here puts `tests` on the import path: fakes and planted corpora are imported by their names."""
