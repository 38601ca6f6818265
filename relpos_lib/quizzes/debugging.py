"""Questions on finding faults by their symptoms."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "A head should find the key one before. It has a bias and K = 3, and its loss, "
        "minus the logarithm of the weight of that key, stops at 1.10. What do you "
        "suspect?",
        wrong(
            "A lost sign: one before and one after share a row",
            "Two candidates would stop it at ln 2 ≈ 0.69. Here e^1.10 ≈ 3 keys share "
            "the weight.",
        ),
        right(
            "Three keys that its rows cannot tell apart",
            "1.10 is ln 3. Let every row hold its own number, and look which three "
            "pairs of a query read one row.",
        ),
        wrong(
            "A learning rate that is too small",
            "That would make it slow. A loss that stops at the logarithm of a whole "
            "number says that so many candidates are left.",
        ),
    ),
    ask(
        "All rows of a value table are ones, and the weights of each query sum to 1. "
        "One output is 0.67. What does it tell?",
        right(
            "A third of the weight read no row.",
            "Whatever row is read, it adds its weight times 1. Far pairs that should "
            "read the edge row read nothing.",
        ),
        wrong(
            "A third of the weight read a wrong row.",
            "All rows are equal here, so a wrong row would not show. For that, let "
            "every row hold its own number.",
        ),
        wrong(
            "The softmax is wrong.",
            "The weights were given, and they sum to 1. Something happened to them on "
            "the way to the table.",
        ),
    ),
    ask(
        "Places are counted in bfloat16, which holds eight significant bits. From "
        "which length on are rows wrong?",
        wrong(
            "From 2049 on",
            "That is float16, with eleven significant bits. bfloat16 spends bits on "
            "its exponent.",
        ),
        wrong(
            "From K + 1 on, where offsets are clipped",
            "Clipping is exact. The rounding happens before, when two places become "
            "one number.",
        ),
        right(
            "From 258 on, when place 257 is needed",
            "All whole numbers up to 256 exist, and 257 does not. Places run from 0, "
            "so a length of 258 is the first with a place 257.",
        ),
        wrong(
            "Never, since offsets are small",
            "Offsets are differences of places. If a place is rounded, so is the "
            "offset, however small it is.",
        ),
    ),
    ask(
        "A causal model guesses random symbols better than chance. What do you try "
        "first?",
        wrong(
            "Another seed, for it may be luck",
            "New random symbols are drawn at each step, so luck does not last. A "
            "result that cannot be needs a way in.",
        ),
        right(
            "Change the last symbol, and see which outputs move",
            "In a causal model only the last one may. An earlier one that moves leads "
            "to the place where the future enters.",
        ),
        wrong(
            "Test the attention with a causal mask",
            "It may be right: the leak can lie behind it, in a reshape that mixes "
            "places. Test the whole model.",
        ),
        wrong(
            "Look at the gradient of each row of the table",
            "That finds rows that do not learn. This model learns too much.",
        ),
    ),
)
