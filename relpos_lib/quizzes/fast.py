"""Questions on fast relative attention."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "For one query, group A has a sum of exponentials of 3 and the average 10, "
        "group B has the sum 2 and the average 2. Now ln 2 is added to every score of "
        "group A. What is the merged average?",
        wrong(
            "6.8",
            "This mixes by 3 and 2, as if nothing had been added. The constant doubles "
            "the sum of group A.",
        ),
        wrong(
            "15.5",
            "Here the average was doubled, too. A constant that a whole group shares "
            "changes no proportion inside it, so its average stays 10.",
        ),
        wrong(
            "6",
            "This is the plain mean of 10 and 2. Groups are mixed by their sums of "
            "exponentials.",
        ),
        right(
            "8",
            "The sum of A becomes 6 and its average stays 10: (6 · 10 + 2 · 2) / 8. "
            "This is why far keys need no table inside the kernel.",
        ),
    ),
    ask(
        "All keys of a group are hidden, and the kernel reports a log-sum-exp of 0 for "
        "it. What does the merge do?",
        wrong(
            "Nothing: zero means no weight.",
            "No weight is a sum of 0, and its logarithm is −∞. A log-sum-exp of 0 is a "
            "sum of e^0 = 1.",
        ),
        right(
            "It mixes the empty group in, and nobody is told.",
            "The group counts like a sum of 1, so the other weights come out too "
            "small. No shape and no NaN tells; a comparison with the definition does.",
        ),
        wrong(
            "It returns NaN.",
            "NaN would come from −∞ − (−∞), if all groups said −∞. With a 0 all "
            "numbers stay finite, which is what makes the fault hard to see.",
        ),
    ),
    ask(
        "K = 16 and tiles of 128 queries stay. The length doubles from 2048 to 4096. "
        "What happens to the share of near pairs, and to the number of kernel calls?",
        right(
            "The share halves, and there are four more calls.",
            "A tile's band keeps its 158 keys while the row gets twice as long. One "
            "more level of rectangles is all that is added.",
        ),
        wrong(
            "The share stays, and the calls double.",
            "The number of near keys of a query stays, but there are twice as many "
            "keys in all. And rectangles of one size go into one call.",
        ),
        wrong(
            "Both double.",
            "The near pairs double, but all pairs quadruple. So the price over plain "
            "attention falls with the length.",
        ),
    ),
    ask(
        "You switch on gradient checkpointing in a model with a single attention "
        "layer. What does the largest amount of memory do?",
        wrong(
            "It falls to about a half.",
            "The forward pass does hold less. But the peak comes in the backward pass, "
            "when the layer is computed again as a whole.",
        ),
        wrong(
            "It grows like the length, no longer like its square.",
            "The layer still builds its (L, L) tensors, only later. What must not be "
            "kept can be forgotten, what must be built takes its room.",
        ),
        right(
            "Hardly anything.",
            "In the backward pass the layer computes all its tensors again, and they "
            "are there at once. The gain comes from depth: one layer at a time.",
        ),
    ),
)
