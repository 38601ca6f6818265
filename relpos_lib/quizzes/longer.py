"""Questions on inputs that are longer than those of training."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "A favoured key stands ln 50 above n others, which all have the same score. "
        "Among how many others does it keep a third of the weight?",
        wrong(
            "50",
            "Among 50 it keeps a half: 50 / (50 + 50).",
        ),
        right(
            "100",
            "50 / (50 + n) = 1/3 gives n = 100. The reach grows like e^gap: a gap that "
            "is higher by ln 2 serves twice as many.",
        ),
        wrong(
            "150",
            "150 is the whole sum, 50 + n. Of this, 50 belong to the favoured key.",
        ),
        wrong(
            "3 · ln 50 ≈ 12",
            "Weights are exponentials of scores. So it is 50 that is compared with n, "
            "and not its logarithm.",
        ),
    ),
    ask(
        "A model with a clipped bias was trained on the task switch up to length 32, "
        "and at 1024 it is lost. You hide all keys farther away than 15 and train "
        "nothing. What happens?",
        wrong(
            "Nothing changes: it has never learned long inputs.",
            "All rows that it reads are trained. What is new is the number of far "
            "keys, and hiding them takes that away.",
        ),
        wrong(
            "It gets worse, since it now sees less.",
            "The far keys held nothing that this task needs. Each got little weight, "
            "and together they got nearly all of it.",
        ),
        right(
            "Most of its accuracy comes back.",
            "It knew the task and was drowned out: this is dilution. A query now sees "
            "no more keys than in training.",
        ),
    ),
    ask(
        "From length 128 to 1024 the perplexity of a model falls in pieces that do not "
        "overlap, and stays flat in sliding windows. What does it gain from longer "
        "text?",
        right(
            "Nothing that the sliding windows show.",
            "In long pieces fewer characters stand at the beginning, where there is "
            "little to look back to. That alone makes the first curve fall.",
        ),
        wrong(
            "It uses the text: the first curve measures it, the second hides it.",
            "It is the other way round. The first curve falls even for a model that "
            "never looks back farther than 64 characters.",
        ),
        wrong(
            "It has learned the test text by heart.",
            "Then both curves would be low. Two ways to measure one model differ only "
            "in how much of the text each character has before it.",
        ),
    ),
    ask(
        "Two schemes have four seeds each, and every result of one is better than "
        "every result of the other. In which share of all splits does the permutation "
        "test find a difference as large?",
        wrong(
            "1/70",
            "There are 70 splits, but the mirror image, with the two names exchanged, "
            "is as extreme as ours.",
        ),
        wrong(
            "1/16",
            "That is four coins in a row. The test splits all eight results into two "
            "groups of four, which can be done in 70 ways.",
        ),
        wrong(
            "2/20",
            "That is the case of three seeds each, with 20 splits. It is 0.1, so three "
            "seeds can never show a difference.",
        ),
        right(
            "2/70",
            "Eight results can be split in 70 ways, and two of them are as extreme. "
            "2/70 ≈ 0.03 is below one in twenty, so four seeds can show a difference.",
        ),
    ),
)
