"""Stage `tokens`: the corpus as rows of tokens that know their place in the text."""

from pathlib import Path

import click

from latentry.atomic import told_when_full
from latentry.contracts import TOKENS
from latentry.corpora.token_shards import write_tokens
from latentry.corpora.tokenise import load_tokenizer
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
    how = {"shard_contexts": params.run.shard_contexts, "corpus": corpus.digest()}
    with work(Path("data/tokens"), TOKENS, cell="tokens", params=declared, inputs=[model], how=how) as making:
        if not making:
            return
        tokenizer = load_tokenizer(model)
        with told_when_full(making.path("tokenizer")):
            tokenizer.save_pretrained(making.path("tokenizer"))
        write_tokens(corpus.documents(), tokenizer, params.tokens, making, shard_contexts=params.run.shard_contexts)
        n = making.counts
        click.echo(
            f"tokens: {n['n_tokens']:,} in {n['n_contexts']:,} contexts from {n['n_documents']:,} documents, {n['n_special']:,} special"
        )


if __name__ == "__main__":
    run_stage(main)
