"""`latentry import`: explanations and scores of others, to be scored again and compared."""

from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from latentry.errors import ParamsError
from latentry.params import Params, load_params
from latentry.records import NO_EXPLAINER
from latentry.sections import Name

_FORMATS = ("neuronpedia", "delphi", "saebench", "rows")
"""Each is read by a file of the room `exchange`."""
_WANTED = "small letters, digits, - and _, beginning with a letter or digit, at most 60: it names a folder and an explainer"


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

    params = load_params()
    width, out = params.named("saes", sae).n_latents, Path("imports", _free(_checked(name), params))
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
        raise ParamsError("--name", [f"is {name!r}; {_WANTED}"]) from None


def _free(name: str, params: Params) -> str:
    """A name that can be pasted as an explainer's: not that of rows without one, nor of an explainer that is another."""
    explainer = params.explainers.get(name)
    is_own = explainer is not None and Path("imports", name) in Path(getattr(explainer, "path", "")).parents
    if name == NO_EXPLAINER:
        found = "is what scores without an explanation stand under"
    elif explainer is not None and not is_own:
        found = f"is an explainer of params.yaml already, of kind {explainer.kind}, and not this import"
    else:
        return name
    raise ParamsError("--name", [f"{name!r} {found}; choose another: {_WANTED}"])


def _chosen(where: tuple[str, ...]) -> dict[str, str]:
    if faults := [f"is {one!r}; LABEL=VALUE is wanted, such as layer=6-res-jb" for one in where if "=" not in one]:
        raise ParamsError("--where", faults)
    return dict(one.split("=", 1) for one in where)
