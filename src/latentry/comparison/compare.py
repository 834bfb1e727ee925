"""The comparison as a whole: from the grid's folders to the tables of `data/comparison`.

What the `compare` stage calls; `summary.py` then writes the numbers that stand in git.
"""

import pyarrow as pa

from latentry.comparison.cells import CELLS_TABLE, cells_table, headlines
from latentry.comparison.correlations import CORRELATIONS_TABLE, correlations_table
from latentry.comparison.deciles import DECILES_TABLE, deciles_table
from latentry.comparison.explainer_pairs import EXPLAINER_PAIRS_TABLE, explainer_pairs_table
from latentry.comparison.grid import Grid
from latentry.comparison.imported import IMPORTED_TABLE, imported_table
from latentry.comparison.jacobians import jacobian_tables
from latentry.comparison.judges import JUDGES_TABLE, judges_table
from latentry.comparison.matches import Decoders, match_tables
from latentry.comparison.sae_pairs import PAIRS_TABLE, pairs_table
from latentry.comparison.tables import LATENTS_TABLE, SAES_TABLE, contrast_sources, latents_table, saes_table


def compare(grid: Grid, decoders: Decoders) -> dict[str, pa.Table]:
    """The tables of the comparison, by file name. Missing cells are shown as such, and the others compared.

    Raises:
        ContractError: a folder that is there is damaged, of another version, or cannot be compared with the others.
        ParamsError: a file of imported scores is not there, or is not the one stated.
    """
    latents, contrasts, saes = latents_table(grid), contrast_sources(grid), saes_table(grid)
    return {
        LATENTS_TABLE: latents,
        SAES_TABLE: saes,
        CELLS_TABLE: cells_table(grid, latents, contrasts),
        DECILES_TABLE: deciles_table(grid, latents),
        PAIRS_TABLE: pairs_table(grid, latents, contrasts),
        EXPLAINER_PAIRS_TABLE: explainer_pairs_table(grid, latents, contrasts),
        CORRELATIONS_TABLE: correlations_table(latents, grid.saes, grid.explainers, headlines(latents, grid.scorers), grid.seed),
        JUDGES_TABLE: judges_table(grid),
        IMPORTED_TABLE: imported_table(grid, latents, contrasts),
        **match_tables(grid, latents, saes, contrasts, decoders),
        **jacobian_tables(grid),
    }
