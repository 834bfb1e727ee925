"""Twelve planted latents, each firing on ten nouns of one concept, in sentences that a real model can read; and faulty explanations.

Three concepts share a parent. A latent fires more strongly on later nouns: noun i makes decile i + 1. Its hard contrasts
are its siblings' windows, as those of neighbouring latents would be; of its random ones few hold a sibling's noun.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from latentry.records import Example, Explanation, Status
from planted_windows import window

NOUNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "animals": {
        "birds": ["sparrow", "eagle", "owl", "robin", "crow", "falcon", "heron", "swallow", "pigeon", "raven"],
        "fish": ["trout", "salmon", "herring", "cod", "pike", "carp", "tuna", "eel", "perch", "sardine"],
        "insects": ["beetle", "moth", "wasp", "ant", "bee", "hornet", "cricket", "grasshopper", "mosquito", "butterfly"],
    },
    "plants": {
        "fruits": ["apple", "pear", "plum", "peach", "cherry", "lemon", "grape", "mango", "melon", "apricot"],
        "vegetables": ["carrot", "onion", "cabbage", "turnip", "potato", "leek", "radish", "celery", "spinach", "lettuce"],
        "trees": ["oak", "elm", "pine", "birch", "maple", "willow", "cedar", "beech", "poplar", "spruce"],
    },
    "man-made things": {
        "musical instruments": ["violin", "piano", "flute", "drum", "trumpet", "cello", "harp", "guitar", "clarinet", "banjo"],
        "tools": ["hammer", "chisel", "wrench", "drill", "shovel", "pliers", "axe", "screwdriver", "rake", "spade"],
        "vehicles": ["wagon", "truck", "tram", "bicycle", "carriage", "tractor", "bus", "van", "motorcycle", "car"],
    },
    "places": {
        "buildings": ["church", "barn", "castle", "warehouse", "library", "museum", "cottage", "hotel", "theatre", "chapel"],
        "bodies of water": ["river", "lake", "ocean", "pond", "stream", "creek", "lagoon", "brook", "sea", "bay"],
        "landforms": ["valley", "cliff", "canyon", "hill", "glacier", "mountain", "desert", "island", "plateau", "ridge"],
    },
}
CONCEPTS = {concept: nouns for of_parent in NOUNS.values() for concept, nouns in of_parent.items()}
PARENTS = {concept: parent for parent, of_parent in NOUNS.items() for concept in of_parent}
LATENTS = dict(enumerate(CONCEPTS))
"""Concept by latent."""
FEW = (0, 1, 3, 4, 6, 7)
"""Two of each of three parents."""
NEUTRAL = ["question", "idea", "mistake", "reason", "delay", "rumour", "promise", "plan", "secret", "doubt"]
SENTENCES = (
    "all through the long evening the talk went back to the {} until it grew late",
    "nobody could say with any certainty where the {} had come from that morning",
    "in the second half she spoke only of the {} and of nothing else",
    "he waited for some time and then thought again about the {} of that day",
    "it was the {} that was remembered most when the year was over",
    "later it was said in passing that the {} would be there again soon",
    "afterwards a few of them asked once more about the {} and how it began",
    "she described the {} from memory and added little to what was known",
    "for the third time that week the {} was mentioned without any cause given",
    "when at last the {} came up again the answer had not changed much",
)
RANDOM, HARD = "random", "hard"
N_ACTIVATING, N_RANDOM, N_HARD = 20, 40, 20
WINDOW_FRACTION = 0.02
"""Share of all windows in which a latent fires: a sibling's noun stands in twice as many random windows (2 of 40)."""

EXPLAINERS = ("true", "narrow", "broad", "shuffled", "empty")


def true_text(concept: str) -> str:
    """What the latent fires on, no more and no less."""
    return f"names of {concept}"


def rules() -> dict[str, frozenset[str]]:
    """The nouns that each explanation is about; the empty one is about nothing that can be told."""
    true = {true_text(concept): frozenset(nouns) for concept, nouns in CONCEPTS.items()}
    narrow = {_narrow(concept): frozenset([nouns[-1]]) for concept, nouns in CONCEPTS.items()}
    broad = {_broad(parent): frozenset(noun for nouns in of.values() for noun in nouns) for parent, of in NOUNS.items()}
    return true | narrow | broad


def _narrow(concept: str) -> str:
    return f'the word "{CONCEPTS[concept][-1]}"'


def _broad(parent: str) -> str:
    return f"names of {parent}"


def explanations(latents: Sequence[int]) -> list[Explanation]:
    """Every latent explained rightly and in four wrong ways; `shuffled` gives it the text of one with another parent."""
    made = []
    for latent in latents:
        concept = LATENTS[latent]
        other = LATENTS[(latent + 3) % len(LATENTS)]
        texts = (true_text(concept), _narrow(concept), _broad(PARENTS[concept]), true_text(other), "")
        made += [_explanation(latent, explainer, text) for explainer, text in zip(EXPLAINERS, texts, strict=True)]
    return made


def _explanation(latent: int, explainer: str, text: str) -> Explanation:
    return Explanation(
        latent=latent, explainer=explainer, text=text, status=Status.OK, detail="", prompt_digest="", reply=None, reply_key=None
    )


def held_out(latent: int, *, only_top: bool = False) -> tuple[Example, ...]:
    """A latent's held-out windows, each prefix even over the deciles and siblings; `only_top`: activating ones of decile 10 alone."""
    nouns = CONCEPTS[LATENTS[latent]]
    places = [9] * 10 if only_top else [3 * number % 10 for number in range(N_ACTIVATING)]
    fires = [
        _window(latent, number, nouns[place], (place + number + number // 10) % 10, decile=place + 1) for number, place in enumerate(places)
    ]
    return (*fires, *_random(latent), *_hard(latent))


def _random(latent: int) -> list[Example]:
    """Silent windows as they come: a quarter hold a noun of another parent, one in twenty a sibling's."""
    siblings = _siblings(latent)
    strangers = [noun for concept, nouns in CONCEPTS.items() if PARENTS[concept] != PARENTS[LATENTS[latent]] for noun in nouns]
    made = []
    for number in range(N_RANDOM):
        noun = NEUTRAL[number % 10]
        if number % 20 == 7:
            noun = CONCEPTS[LATENTS[siblings[number // 20]]][number % 10]
        elif number % 4 == 2:
            noun = strangers[(7 * number + latent) % len(strangers)]
        made.append(_window(latent, number, noun, (number + number // 10) % 10, contrast=RANDOM))
    return made


def _hard(latent: int) -> list[Example]:
    made = []
    for number in range(N_HARD):
        supplier = _siblings(latent)[number % 2]
        noun = CONCEPTS[LATENTS[supplier]][number // 2]
        made.append(_window(latent, number, noun, (3 * number + 1) % 10, contrast=HARD, supplier=supplier))
    return made


def _siblings(latent: int) -> list[int]:
    parent = PARENTS[LATENTS[latent]]
    return [other for other, concept in LATENTS.items() if PARENTS[concept] == parent and other != latent]


def _window(
    latent: int, number: int, noun: str, sentence: int, *, decile: int = 0, contrast: str = "", supplier: int | None = None
) -> Example:
    """A sentence with one noun; the latent fires on it, as strongly as its decile says, or not at all."""
    made = window(latent, number, noun if decile else None, contrast=contrast, text=SENTENCES[sentence].format(noun))
    levels = tuple(float(decile) if fires else 0.0 for fires in made.activations)
    example_id = f"{latent}/{contrast or 'windows'}/{number}"
    return replace(made, activations=levels, decile=decile, rank=number, supplier=supplier, example_id=example_id)
