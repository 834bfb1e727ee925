"""The comparison as a whole: from the grid's folders to the tables of `data/comparison`.

What the `compare` stage calls; `summary.py` then writes the numbers that stand in git.
"""

import pyarrow as pa

from latentry.comparison.cells import CELLS_TABLE, PAIRS_TABLE, cells_table, pairs_table
from latentry.comparison.explainer_pairs import EXPLAINER_PAIRS_TABLE, explainer_pairs_table
from latentry.comparison.grid import Grid
from latentry.comparison.tables import LATENTS_TABLE, SAES_TABLE, contrast_sources, latents_table, saes_table


def compare(grid: Grid) -> dict[str, pa.Table]:
    """The tables of the comparison, by file name. Missing cells are shown as such, and the others compared.

    Raises:
        ContractError: a folder that is there is damaged, of another version, or cannot be compared with the others.
    """
    latents, contrasts = latents_table(grid), contrast_sources(grid)
    return {
        LATENTS_TABLE: latents,
        SAES_TABLE: saes_table(grid),
        CELLS_TABLE: cells_table(grid, latents, contrasts),
        PAIRS_TABLE: pairs_table(grid, latents, contrasts),
        EXPLAINER_PAIRS_TABLE: explainer_pairs_table(grid, latents, contrasts),
    }
