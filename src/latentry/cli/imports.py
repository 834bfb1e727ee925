"""`latentry import`: explanations and scores of others, to be scored again and compared."""

from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from latentry.errors import ParamsError
from latentry.params import load_params
from latentry.sections import Name

_FORMATS = ("neuronpedia", "delphi", "saebench", "rows")
"""Each is read by a file of the room `exchange`."""


@click.command("import")
@click.argument("form", metavar="FORMAT", type=click.Choice(_FORMATS))
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="What to call it: the folder under imports/, and the explainer's name.")
@click.option("--sae", required=True, help="Name under `saes` of the SAE whose latents these are.")
@click.option("--where", multiple=True, metavar="LABEL=VALUE", help="Which rows, where there are several kinds of them; may be repeated.")
@click.option("--force", is_flag=True, help="Replace an import of that name.")
def import_(form: str, path: Path, name: str, sae: str, where: tuple[str, ...], force: bool) -> None:
    """Read explanations and scores that others made, as files that params.yaml can name.

    FORMAT is one of neuronpedia (the folder of a source of a bulk export), delphi (a folder of results), saebench (the JSON of its
    autointerp evaluation) and rows (CSV, JSON, JSON lines or Parquet).
    """
    from latentry.exchange.import_folder import make_import, params_block, summary
    from latentry.explainers.fixed import Config
    from latentry.safe_text import harmless

    width, out = load_params().named("saes", sae).n_latents, Path("imports", _checked(name))
    taken, told = make_import(out, form, path, sae=sae, width=width, where=_chosen(where), force=force)
    for line in summary(taken, told):
        click.echo(harmless(line))
    click.echo(f"wrote {out.as_posix()}; put this into params.yaml, then run `latentry check`:\n")
    for line in params_block(taken, told, out.as_posix(), Config.model_fields["max_chars"].default):
        click.echo(line)


def _checked(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError:
        wanted = "small letters, digits, - and _, beginning with a letter or digit, at most 60: it names a folder and an explainer"
        raise ParamsError("--name", [f"is {name!r}; {wanted}"]) from None


def _chosen(where: tuple[str, ...]) -> dict[str, str]:
    if faults := [f"is {one!r}; LABEL=VALUE is wanted, such as layer=6-res-jb" for one in where if "=" not in one]:
        raise ParamsError("--where", faults)
    return dict(one.split("=", 1) for one in where)
