"""Write the prompts of benchmarks/generation.py: 100 openings of stories, and 30 short chats.

    python benchmarks/generation_prompts.py

Ten openings, written for this purpose, are each filled in ten times with other names, animals, things and places, so
every one of them has four or five sentences, of which the last is unfinished. The chats are 10 questions about a short
text, 10 about two documents (one of which has the answer), and 10 requests without a text. The order is fixed by a
seed, so the first n prompts are a mixture.
"""

import json
from pathlib import Path
from random import Random

DATA = Path(__file__).parent / "data"

GIRLS = ("Lily", "Mia", "Anna", "Sue", "Emma", "Zoe", "Lucy", "Amy", "Nora", "Eva")
BOYS = ("Tom", "Ben", "Sam", "Max", "Tim", "Jack", "Leo", "Dan", "Finn", "Bob")
ANIMALS = ("dog", "cat", "rabbit", "duck", "bird", "mouse", "frog", "pony", "bear", "squirrel")
THINGS = ("ball", "kite", "boat", "doll", "drum", "hat", "car", "balloon", "book", "bike")
COLOURS = ("red", "blue", "green", "yellow", "pink", "white", "black", "orange", "brown", "purple")
PLACES = ("park", "garden", "forest", "beach", "farm", "pond", "river", "hill", "yard", "lake")
FOODS = ("cake", "soup", "bread", "apples", "cookies", "carrots", "cheese", "berries", "nuts", "honey")

OPENINGS = (
    "{girl} had a {colour} {thing}. She took it to the {place} every day. One morning, it was gone. Her friend {boy} "
    "had seen a {animal} with it. So {girl} and {boy} went to look for the",
    "Once there was a {animal} who lived near the {place}. He loved {food} more than anything. A boy named {boy} gave "
    "him some. The {animal} was so happy that he",
    "{boy} and {girl} were playing in the {place}. It started to rain. They hid under a big tree. There they met a wet "
    '{animal}. {girl} said, "You can come',
    "Mom made {food} for dinner. {girl} did not want to eat. Her little {animal} looked at the plate. {girl} laughed "
    "and gave the {animal} some of the",
    "{boy} was afraid of the dark. His sister {girl} gave him a {colour} {thing}. She said it was magic. That night "
    "{boy} held the {thing} and was not",
    "The {animal} could not sleep. It was too loud in the {place}. He asked his friend {girl} for help. {girl} told "
    "everyone to be",
    "It was {boy}'s birthday. Dad gave him a {colour} {thing}. {boy} wanted to share it with {girl}. But {girl} was "
    "sick and had to stay in",
    "A {colour} {animal} found a {thing} in the {place}. She did not know what it was. {boy} came and showed her. Now "
    "the {animal} plays with the",
    "{girl} wanted to cook {food}. She went to the {place} with a basket. On the way she met {boy}. He was sad because "
    'he lost his {animal}. {girl} said, "I will help you find your',
    "Every day {boy} fed the {animal} at the {place}. One day the {animal} did not come. {boy} called and called. Then "
    "he heard a sound from behind the",
)

TEXTS = (  # a text and a question about it
    (
        "Mara sells bread in the morning. Her brother Olaf repairs bikes. On Sundays they both sing in a choir.",
        "What does Olaf do?",
    ),
    (
        "The museum opens at ten. It is closed on Mondays. Tickets cost five euros. Children pay nothing.",
        "How much is a ticket?",
    ),
    (
        "The red bus goes to the harbour. The green bus goes to the airport. Both leave every hour.",
        "Which bus goes to the airport?",
    ),
    (
        "Ivan planted beans in April. The tomatoes came in May. A storm broke the tomatoes in June.",
        "What did the storm break?",
    ),
    (
        "The bridge was built in 1904. It burned down in 1950. A new one of steel followed in 1956.",
        "When did the bridge burn down?",
    ),
    ("Our cat is called Pepper. She is grey. The neighbour's dog Bruno is afraid of her.", "Who is afraid of Pepper?"),
    (
        "The lake is forty metres deep. Trout live in it. Swimming is allowed in summer only.",
        "Which fish live in the lake?",
    ),
    (
        "Nadia moved to Porto for a job. She works as a nurse. At night she writes short stories.",
        "Where did Nadia move?",
    ),
    (
        "Wool keeps you warm when it is wet. Cotton does not. For the mountains, take wool.",
        "What should I wear in the mountains?",
    ),
    (
        "The first talk is about bees. The second is about maps. After lunch there is a walk.",
        "What is the second talk about?",
    ),
)
PAIRS = (  # two documents and a question
    (
        "The tower in Velm is 80 metres tall. It has a clock.",
        "The tower in Karst is 60 metres tall. It has bells.",
        "How tall is the tower in Karst?",
    ),
    ("Rosa is a dentist. She lives in Turin.", "Pavel is a baker. He lives in Prague.", "What is Pavel's job?"),
    (
        "The north trail is steep and short.",
        "The south trail is flat and long. It passes a farm.",
        "Which trail passes a farm?",
    ),
    ("Basil needs sun and much water.", "Mint grows in the shade. It spreads fast.", "Where does mint grow?"),
    (
        "The old printer is slow. It has no colour.",
        "The new printer is fast. It is in room 12.",
        "Where is the new printer?",
    ),
    ("Lena speaks Dutch and French.", "Omar speaks Arabic and Spanish.", "Which languages does Lena speak?"),
    (
        "The blue paint dries in an hour.",
        "The white paint dries in a day. It is cheaper.",
        "How long does the white paint take to dry?",
    ),
    ("Train 7 leaves at noon from track 2.", "Train 9 leaves at six from track 4.", "When does train 9 leave?"),
    ("The cake needs three eggs and sugar.", "The bread needs flour, salt and yeast.", "What does the bread need?"),
    ("Mr Hale teaches music.", "Ms Ortiz teaches chemistry. Her lab is upstairs.", "Who teaches chemistry?"),
)
REQUESTS = (
    "I am going to Norway in winter. I have never skied. Name one thing to pack.",
    "My plant has yellow leaves. I water it every day. What is wrong?",
    "Write one sentence about the sea. Use the word silver.",
    "I slept badly. I drank coffee at night. Give me a tip.",
    "Translate to French: Good morning. My name is Paul.",
    "I have eggs, rice and peas. I have no oven. What can I cook?",
    "Name the capital of Italy. Then name its river.",
    "My dog barks at the postman. He is young. How can I teach him?",
    "Explain rain to a child. Use short words.",
    "I run twice a week. My knee hurts. Should I run today?",
)


def main() -> None:
    DATA.mkdir(exist_ok=True)
    write("stories", [{"prompt": text} for text in stories()])
    write("chats", chats())


def stories() -> list[str]:
    source, made = Random(0), []
    for opening in OPENINGS:
        lists = (GIRLS, BOYS, ANIMALS, THINGS, COLOURS, PLACES, FOODS)
        shuffled = [source.sample(words, len(words)) for words in lists]
        names = ("girl", "boy", "animal", "thing", "colour", "place", "food")
        made += [opening.format(**dict(zip(names, words, strict=True))) for words in zip(*shuffled, strict=True)]
    return source.sample(made, len(made))


def chats() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"messages": _user(f"{text} {question}")} for text, question in TEXTS]
    rows += [{"messages": _user(question), "documents": [one, two]} for one, two, question in PAIRS]
    rows += [{"messages": _user(text)} for text in REQUESTS]
    return Random(0).sample(rows, len(rows))


def _user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def write(name: str, rows: list[dict[str, object]]) -> None:
    lines = [json.dumps({"id": f"{name}-{number}", **row}) + "\n" for number, row in enumerate(rows)]
    (DATA / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
