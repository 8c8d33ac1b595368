"""Plain English sentences put together from word lists, for the demo corpus."""

from __future__ import annotations

import random

PEOPLE = (
    "the farmer", "my neighbor", "an old sailor", "the young teacher", "our doctor", "her brother",
    "the baker", "a tired driver", "the gardener", "his daughter", "the captain", "a quiet student",
    "their uncle", "the night guard", "a famous painter", "the postman", "your cousin",
    "the new manager", "a patient nurse", "the shopkeeper", "my grandmother", "the carpenter",
)  # fmt: skip
ACTIONS = (
    "carried", "found", "forgot", "painted", "repaired", "sold", "borrowed", "counted", "hid",
    "washed", "measured", "ordered", "dropped", "collected", "photographed", "wrapped", "polished",
    "moved", "weighed", "described", "lost", "bought",
)  # fmt: skip
COUNTS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "fifteen", "twenty", "thirty", "some", "several", "a few", "many", "all the", "most of the",
)  # fmt: skip
LOOKS = (
    "heavy", "yellow", "broken", "wooden", "shiny", "narrow", "purple", "ancient", "cheap",
    "smooth", "dusty", "round", "bitter", "frozen", "silver", "gentle", "curious", "green",
)  # fmt: skip
THINGS = (
    "baskets", "letters", "apples", "chairs", "bottles", "umbrellas", "keys", "blankets", "candles",
    "bicycles", "lamps", "boxes", "shoes", "pictures", "flowers", "books", "stones", "hats",
    "cups", "ropes", "maps", "clocks", "spoons", "pumpkins",
)  # fmt: skip
PLACES = (
    "near the station", "behind the church", "under the bridge", "on the kitchen table",
    "at the edge of the forest", "in a small village", "beside the river", "above the garage",
    "across the street", "inside the museum", "along the coast", "outside the bakery",
    "by the open window", "between two hills", "in the corner of the yard", "on the top shelf",
)  # fmt: skip
TIMES = (
    "before the rain began", "on a cold morning in March", "last Thursday", "after a long journey",
    "shortly before midnight", "while everyone was asleep", "during the summer holidays",
    "as soon as the bell rang", "twice in one week", "when the music stopped",
    "early in the evening", "until the lights went out", "without saying a word",
    "because the road was closed", "in less than an hour", "although nobody had asked",
)  # fmt: skip
PATTERNS = (
    "{person} {action} {count} {look} {things} {place} {time}.",
    "{time}, {person} {action} {count} {things} and {count2} {look} {things2}.",
    "{place}, {person} {action} {count} {look} {things}, {time}.",
    "Did {person} see the {look} {things} {place}, or only the {things2}?",
    "{person} said that {person2} {action} {count} {things} {place}.",
    "There were {look} {things} {place}, and {person} {action} {count} {look2} {things2}.",
    "{person} and {person2} {action} the {look} {things} {time}.",
)


def sentence(rng: random.Random) -> str:
    """A sentence of 8 to 25 words, drawn from ``rng``.

    Example:
        >>> one, other = (sentence(random.Random(seed)) for seed in (1, 2))
        >>> one == sentence(random.Random(1)), one == other, 8 <= len(one.split()) <= 25
        (True, False, True)
    """
    person, person2 = rng.sample(PEOPLE, 2)
    count, count2 = rng.sample(COUNTS, 2)
    look, look2 = rng.sample(LOOKS, 2)
    things, things2 = rng.sample(THINGS, 2)
    text = rng.choice(PATTERNS).format(
        person=person, person2=person2, action=rng.choice(ACTIONS), count=count, count2=count2,
        look=look, look2=look2, things=things, things2=things2, place=rng.choice(PLACES),
        time=rng.choice(TIMES),
    )  # fmt: skip
    return text[0].upper() + text[1:]
