"""Questions on Shaw's relative position representations."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "Three tokens, D = 1, K = 1. The last query is ln 2, the keys are 0, 1, 0, and "
        "the key vectors are 1, 0, 2 for the offsets −1, 0, +1. Which weight does the "
        "last query give to key 0?",
        wrong(
            "1/6",
            "This takes the key without any vector, because its offset −2 is beyond K. "
            "Such offsets read the edge row, here that of −1.",
        ),
        wrong(
            "4/13",
            "These are the vectors of +1. The offset is key minus query, so both "
            "earlier keys read the row of −1.",
        ),
        right(
            "2/7",
            "Key 0 has the offset −2, clipped to −1. The powers are 2^(0+1), 2^(1+1) "
            "and 2^(0+0), that is 2, 4 and 1.",
        ),
        wrong(
            "1/3",
            "That would be equal scores. With keys and vectors they are ln 2 times 1, "
            "2 and 0.",
        ),
    ),
    ask(
        "A layer has H = 8 heads of width D = 64, L = 1000 tokens and K = 16. How many "
        "position scores does the form with a gather compute for the keys before it "
        "spreads them over the pairs?",
        right(
            "8 · 1000 · 33 = 264,000",
            "Each query meets 2K + 1 = 33 vectors in each head. Keys that read one row "
            "share one product.",
        ),
        wrong(
            "1000 · 1000 · 64 = 64,000,000",
            "That is the (L, L, D) tensor of the naive form. It repeats 33 vectors a "
            "million times.",
        ),
        wrong(
            "33 · 64 = 2112",
            "That is the table itself. The products with it differ from query to query "
            "and from head to head.",
        ),
        wrong(
            "8 · 1000 · 32 = 256,000",
            "The offsets run from −16 to 16, and 0 is one of them: 2K + 1 rows.",
        ),
    ),
    ask(
        "`q` has the shape (B, H, L, D) = (2, 3, 5, 7). Somebody writes `q.reshape(5, "
        "6, 7)` to bring L to the front. What comes out?",
        wrong(
            "An error, because the axes are in another order",
            "The number of entries fits, and `reshape` asks for nothing else.",
        ),
        right(
            "The wanted shape, with numbers in wrong places",
            "`reshape` never moves an axis: it cuts the entries anew in their order. "
            "The first slice mixes positions and heads. `permute` has to come first.",
        ),
        wrong(
            "The same as `q.permute(2, 0, 1, 3)` with B and H merged",
            "Only `permute` moves axes. Shapes agree here and numbers do not, so a "
            "test needs numbers that tell where they come from.",
        ),
    ),
    ask(
        "With a cache, one query meets 6 keys, and nothing is masked. An "
        "implementation numbers the queries from 0 and the keys from 0. What does the "
        "model see?",
        wrong(
            "The right thing: offsets are differences, so any numbering will do",
            "Only if queries and keys are numbered alike. The new query is token 5, "
            "and here it is called 0.",
        ),
        wrong(
            "An error as soon as there are more keys than K",
            "Far offsets are clipped, so nothing stops. The numbers are wrong in "
            "silence.",
        ),
        right(
            "Its past as if it were its future",
            "The offsets become 0 to 5 in place of −5 to 0, so the query takes the "
            "first key for itself. It has to stand on the last one.",
        ),
    ),
)
