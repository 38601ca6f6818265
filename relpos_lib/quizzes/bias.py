"""Questions on additive biases."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "A table has maximum distance K = 3. While decoding, one query meets 6 keys. "
        "Which row does key 0 read?",
        wrong(
            "Row 3",
            "Row 3 is the centre, for offset 0. The one query stands on the last key, "
            "not on the first.",
        ),
        wrong(
            "Row −2",
            "−5 + 3 is −2, but the clip is missing. PyTorch counts negative rows from "
            "the end, so this would silently read the row of a key ahead.",
        ),
        right(
            "Row 0",
            "The query stands at position 5, so the offset is −5. Clipped it is −3, "
            "and −3 + 3 is row 0, the edge.",
        ),
        wrong(
            "Row 6",
            "Row 6 is for keys ahead. The offset is key minus query: 0 − 5 points "
            "back.",
        ),
    ),
    ask(
        "A query sees 10 keys with equal scores. The key at offset −1 gets a bias of "
        "ln 3, the others get 0. Which share of the weight does it have?",
        right(
            "3/12 = 0.25",
            "The bias multiplies one weight by 3 before all are divided by their sum, "
            "3 + 9 · 1 = 12.",
        ),
        wrong(
            "3/10 = 0.3",
            "The key counts three times, but the sum grows with it: 3 + 9, not 10.",
        ),
        wrong(
            "ln 3 / 10 ≈ 0.11",
            "The bias is added to the score, before the exponential. So the weight is "
            "multiplied by e^(ln 3) = 3.",
        ),
        wrong(
            "3/4 = 0.75",
            "That is its share against a single other key. Here nine others share in "
            "the sum, and each more makes it smaller.",
        ),
    ),
    ask(
        "An index adds `length - 1` where it should add `max_len - 1`. A head learned "
        "to look one back, at length 16 with `max_len = 16`. What does it do at length "
        "12?",
        wrong(
            "It stops with an error: the rows are not there.",
            "For shorter inputs every row exists. Only beyond `max_len` does this "
            "index leave the table.",
        ),
        wrong(
            "It still looks one back, since offsets do not depend on the length.",
            "Offsets do not, but this shift does: the centre of the table is looked "
            "for in another place at each length.",
        ),
        wrong(
            "It looks at random places.",
            "Each offset reads one row, only not its own. The answers are as "
            "consistent as before, to another question.",
        ),
        right(
            "It looks three ahead, without a complaint.",
            "Offset −1 was learned in row 14. At length 12 row 14 is read by the "
            "offset 14 − 11 = 3.",
        ),
    ),
    ask(
        "Even symbols should look one back, odd symbols two ahead. Why can one head "
        "with a learned bias not do it for every input?",
        right(
            "What it adds to the preference for −1 over +2 is the same for all "
            "queries.",
            "The difference b[−1] − b[+2] holds no query, so the symbol cannot turn it "
            "around. Two heads, or a vector for each offset, can.",
        ),
        wrong(
            "A bias cannot tell left from right.",
            "ALiBi cannot, without a mask. A learned table has one row for −1 and "
            "another for +1.",
        ),
        wrong(
            "Its table has too few rows.",
            "With K = 3 each of the two offsets has a row of its own. More rows would "
            "still be read by all queries alike.",
        ),
        wrong(
            "The bias is added after the softmax, when it is too late.",
            "It is added before the softmax, and it does change the weights. But it "
            "changes the ratio of two weights by the same factor for every query.",
        ),
    ),
)
