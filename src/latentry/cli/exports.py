"""`latentry export`: results in the formats of others."""

import click


@click.group()
def export() -> None:
    """Write results for others: upload batches of Neuronpedia, a dataset in Parquet, or one file that holds all."""
