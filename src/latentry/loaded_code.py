"""Which code a result follows from: what this process has loaded of latentry, and the stage that it is."""

import sys
from pathlib import Path


def loaded_files() -> dict[str, Path]:
    """Latentry's files that this process has loaded, by module, the stage's script among them; where shards are made is no part."""
    loaded = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "latentry"}
    loaded = {name: module for name, module in loaded.items() if not name.startswith("latentry.engines")}
    files = {name: Path(module.__file__) for name, module in loaded.items() if module.__file__}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script and Path(script).parent.name == "stages":
        files["__main__"] = Path(script)
    return dict(sorted(files.items()))
