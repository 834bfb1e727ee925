"""A conversation as plain text, for models that only continue one: base models, in process or behind an endpoint.

Turns are paragraphs: a question, the answer on the next line, an empty line. Worked turns show a base model what to do.
"""

from collections.abc import Sequence

from latentry.records import Message

END = "\n\n"
"""Where an answer ends: whatever the model writes after it is the next question, made up."""


def transcript(messages: Sequence[Message]) -> str:
    """The text whose continuation is the answer to the last turn."""
    parts = []
    for message in messages:
        content = message.content.replace(END, "\n")
        parts.append(content + (END if message.role in ("system", "assistant") else "\n"))
    return "".join(parts)
