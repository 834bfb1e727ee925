"""`latentry import`: explanations and scores of others, to be scored again and compared."""

import click


@click.group("import")
def import_() -> None:
    """Read explanations and scores that others made, as a file that an explainer of kind `fixed` takes."""
