"""Stage `tokens`: the corpus as rows of tokens that know their place in the text."""

from pathlib import Path

import click

from latentry.contracts import TOKENS
from latentry.corpora.tokenise import load_tokenizer, rows_of
from latentry.params import load_params
from latentry.registry import variant
from latentry.runtime import run_stage
from latentry.store import work


@click.command()
def main() -> None:
    """Tokenise the corpus with the subject's tokenizer."""
    params = load_params()
    model = Path("data/models", params.subject.model)
    declared = params.slice("corpus", "tokens", "subject.model")
    corpus = variant("corpora", params.corpus.kind).build(params.corpus)
    with work(Path("data/tokens"), TOKENS, cell="tokens", params=declared, inputs=[model]) as making:
        if not making:
            return
        tokenizer = load_tokenizer(model)
        rows = rows_of(corpus.documents(), tokenizer, **params.tokens.model_dump())
        names = ("tokens", "document", "text_start", "text_end", "special")
        making.write_arrays("tokens.safetensors", {name: getattr(rows, name) for name in names})
        documents = [{"document": number, "name": one.name, "text": one.text} for number, one in enumerate(rows.documents)]
        making.write_table("documents.parquet", documents)
        tokenizer.save_pretrained(making.path("tokenizer"))
        n_special = int(rows.special.sum())
        making.counts.update(n_contexts=len(rows.tokens), n_tokens=rows.tokens.size, n_special=n_special, n_documents=len(documents))
        click.echo(
            f"tokens: {rows.tokens.size:,} in {len(rows.tokens):,} contexts from {len(documents):,} documents, {n_special:,} special"
        )


if __name__ == "__main__":
    run_stage(main)
