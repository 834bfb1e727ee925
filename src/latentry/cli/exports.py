"""`latentry export`: results in the formats of others."""

from pathlib import Path

import click

HERE = Path()
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def export() -> None:
    """Write results for others: upload batches of Neuronpedia, a dataset in Parquet, or one file that holds all.

    Each names where every label comes from, is written whole or not at all, and is refused where results are missing, changed or not
    of params.yaml as it stands.
    """


@export.command()
@click.argument("names", nargs=-1, metavar="SAE | --check FILE...")
@click.option("--out", type=_FOLDER, help="Folder to write; needed but for --check.")
@click.option("--explainer", help="Whose labels; needed where params.yaml has several.")
@click.option("--model-id", help="The subject's id on Neuronpedia; else its name on the hub, or in params.yaml.")
@click.option("--source", help="{layer}-{set}; else the hookpoint's layer and the SAE's name.")
@click.option("--method", help="Neuronpedia's name of the explanation method, where params do not tell.")
@click.option("--explainer-model", help="The public name of the model that explained, where params do not tell.")
@click.option("--also-known", multiple=True, help="A method or explainer model that your Neuronpedia knows beside those listed here.")
@click.option(
    "--activations", type=click.IntRange(min=1), default=20, show_default=True, help="Windows of each latent, the strongest first."
)
@click.option("--logits/--no-logits", default=True, help="Promoted tokens with their values, for which the subject is loaded.")
@click.option("--leave-out", is_flag=True, help="Leave out latents that break a limit, and name them; else nothing is written.")
@click.option("--check", is_flag=True, help="Check files of upload batches against every limit, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
def neuronpedia(
    names: tuple[str, ...],
    out: Path | None,
    explainer: str | None,
    model_id: str | None,
    source: str | None,
    method: str | None,
    explainer_model: str | None,
    also_known: tuple[str, ...],
    activations: int,
    logits: bool,
    leave_out: bool,
    check: bool,
    force: bool,
) -> None:
    """Write upload batches of one SAE's labels for Neuronpedia, or check some."""
    from latentry.exchange.neuronpedia import Asked, export_neuronpedia
    from latentry.exchange.neuronpedia_limits import told
    from latentry.exchange.neuronpedia_names import Given, check_sae, explainer_of, names_of
    from latentry.params import load_params

    if check:
        _check(names, also_known)
        return
    if len(names) != 1 or out is None:
        raise click.UsageError("name one SAE and --out FOLDER, or --check and files")
    params, sae = load_params(), names[0]
    check_sae(params, sae)
    explainer = explainer_of(params, explainer)
    given = Given(model=model_id, source=source, method=method, explainer_model=explainer_model)
    asked = Asked(
        sae=sae,
        explainer=explainer,
        names=names_of(params, sae, explainer, given),
        n_activations=activations,
        also_known=also_known,
        with_logits=logits,
        leave_out=leave_out,
    )
    done = export_neuronpedia(HERE, params, asked, out, force=force)
    for breach in told(done.breaches):
        click.echo(f"left out: {breach}", err=True)
    click.echo(f"{done.n_latents:,} latents, batches: {done.n_batches:,}, {done.n_scores:,} scores beside them: {out}")
    click.echo(f"as model {asked.names.model}, source {asked.names.source}, by {asked.names.method} with {asked.names.explainer_model}")
    click.echo(f"left out: {', '.join(f'{n:,} {why}' for why, n in sorted(done.left_out.items())) or 'none'}")


def _check(files: tuple[str, ...], also_known: tuple[str, ...]) -> None:
    from latentry.errors import ExchangeError
    from latentry.exchange.neuronpedia_limits import KNOWN_NAMES, breaches_of_files

    if not files:
        raise click.UsageError("--check wants files of upload batches")
    found = list(breaches_of_files([Path(name) for name in files], also_known))
    if found:
        names = f"; {KNOWN_NAMES}" if any("Name: " in breach for breach in found) else ""
        raise ExchangeError("\n".join([*found, f"Neuronpedia would refuse these batches{names}"]))
    click.echo(f"{len(files):,} {'batch keeps' if len(files) == 1 else 'batches keep'} every limit known here")


@export.command()
@click.option("--out", type=_FOLDER, required=True, help="Folder to write.")
@click.option("--licence", help="As Hugging Face names it, such as cc-by-4.0; else the card says that none is stated.")
@click.option(
    "--examples", is_flag=True, help="Also the windows of text, with tokens and activations: only where the corpus may be passed on."
)
@click.option("--force", is_flag=True, help="Replace an earlier export.")
def parquet(out: Path, licence: str | None, examples: bool, force: bool) -> None:
    """Write a dataset in Parquet with its card, as Hugging Face expects it."""
    from latentry.exchange.dataset import export_dataset
    from latentry.params import load_params

    done = export_dataset(HERE, load_params(), out, licence=licence, with_examples=examples, force=force)
    click.echo(f"{out}: {', '.join(f'{n:,} {table}' for table, n in done.n_rows.items())}")


@export.command()
@click.option("--out", type=_FILE, required=True, help="The zip to write; `latentry verify` checks one.")
@click.option("--force", is_flag=True, help="Replace an earlier bundle.")
def bundle(out: Path, force: bool) -> None:
    """Write report, tables, manifests and what reproduces them as one zip with checksums."""
    from latentry.exchange.bundle import export_bundle
    from latentry.params import load_params

    done = export_bundle(HERE, load_params(), out, force=force)
    click.echo(f"{out}: {done.n_files:,} files, {done.n_bytes / 1e6:,.1f} MB before packing")
    click.echo(f"sha256 {done.digest}; of the list of checksums {done.content_digest}")
    click.echo(f"made at {done.made_at}")
