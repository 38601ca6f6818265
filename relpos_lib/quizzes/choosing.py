"""Questions on choosing K, and the rest."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "One layer must single out the offsets −3 and +1 in sequences of 100 tokens. "
        "What is the smallest K?",
        wrong(
            "3",
            "With K = 3 the row of −3 is the edge row, and −4, −5 and all beyond read "
            "it, too.",
        ),
        right(
            "4",
            "The farthest offset needs a row that nobody else reads: K ≥ |d| + 1. The "
            "length plays no part.",
        ),
        wrong(
            "25, a quarter of the length",
            "It would do, but it is far from the smallest. The task sets the least K.",
        ),
        wrong(
            "99, since only then is nothing clipped",
            "What is clipped are offsets that this task need not tell apart. Clipping "
            "hurts only if it reaches the offsets that count.",
        ),
    ),
    ask(
        "A layer has 8 heads of width 64, which share one table for the keys and one "
        "for the values, with K = 16. How many numbers do the tables hold?",
        wrong(
            "2112",
            "That is one side, 33 · 64. The values have a table, too.",
        ),
        wrong(
            "33,792",
            "That is a pair of tables for each of the 8 heads. Here they share one "
            "pair.",
        ),
        wrong(
            "4096",
            "2 · 32 · 64 leaves out the offset 0. There are 2K + 1 = 33 rows.",
        ),
        right(
            "4224",
            "2 sides · 33 rows · 64. The number of heads does not enter, and neither "
            "does the length.",
        ),
    ),
    ask(
        "A task needs the offset +2. With K = 2, two layers trained on lengths 8 to 12 "
        "do better at 12 than one layer can. What do you expect at length 96?",
        wrong(
            "The same: two steps of +1 make a +2 at any length.",
            "Such a stack exists. But training need not find it, and in the experiment "
            "what it found did not hold at 96.",
        ),
        right(
            "The lead need not last: the detour may hold at the training lengths only.",
            "Layers can lean on something that only the trained lengths have, such as "
            "how many keys there are. A row of its own, from K = 3, held at 96.",
        ),
        wrong(
            "An error, as most offsets lie beyond K.",
            "Offsets beyond K are clipped and read the edge row. Nothing stops, "
            "whatever the length.",
        ),
    ),
    ask(
        "Shaw's vectors with K = 32 are trained on lengths 8 to 32 and used at 512. "
        "Why are they worse there than those with K = 4?",
        right(
            "Most pairs read edge rows that training never touched.",
            "In 32 tokens no two are 32 places apart. At 512 the two rows of −32 and "
            "+32 serve most of the pairs.",
        ),
        wrong(
            "They are not: more rows can only help.",
            "A row helps if training reads it. Inside the training lengths K = 32 does "
            "no harm, beyond them it does.",
        ),
        wrong(
            "With K = 32 the layer cannot tell near offsets apart.",
            "It tells more of them apart than K = 4 does. The trouble lies in the two "
            "rows at the edge.",
        ),
        wrong(
            "K = 32 should have been 128 to 256, a quarter to a half of 512.",
            "Then even more rows would be untrained. What counts from above is what "
            "training showed, not the length of use.",
        ),
    ),
)
