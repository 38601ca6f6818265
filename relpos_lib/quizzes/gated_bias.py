"""Questions on gated biases."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "A head has gate 0 and log-scale ln 4, and its table holds 3 at offset −1. "
        "What does it add there?",
        wrong(
            "0, because the gate is zero",
            "The gate passes through the logistic function, and σ(0) = 0.5. To close "
            "it, the parameter has to become very negative.",
        ),
        right(
            "6",
            "The strength is σ(0) · e^(ln 4) = 0.5 · 4 = 2, and 2 · 3 = 6. A plain "
            "table could hold this 6 itself.",
        ),
        wrong(
            "12",
            "That is the scale alone, 4 · 3. The gate multiplies by 0.5.",
        ),
        wrong(
            "about 2.1",
            "That is 0.5 · ln 4 · 3. The scale enters as an exponential, e^(ln 4) = 4, "
            "so that it is never negative.",
        ),
    ),
    ask(
        "The table starts at zero, the gate parameter at 1, the log-scale at 0. Which "
        "of them get a gradient at the first step?",
        wrong(
            "All three",
            "Gate and scale multiply a table of zeros. Moving them changes nothing, so "
            "their gradients are exactly zero.",
        ),
        wrong(
            "None, since everything is multiplied by zero",
            "The table is multiplied by the strength, 0.731, which is not zero. So the "
            "table does get a gradient.",
        ),
        right(
            "Only the table",
            "Its gradient carries the factor 0.731. From the next step on the table is "
            "no longer zero, and gate and scale wake up.",
        ),
        wrong(
            "The gate and the table: only the scale waits",
            "Gate and scale are in the same place: both multiply the table, which is "
            "zero. Both gradients are sums over products with its entries.",
        ),
    ),
    ask(
        "At one learning rate a gated table beats a plain one in every seed. What do "
        "you do before you say that gates help?",
        wrong(
            "Run more seeds.",
            "Seeds tell whether the lead is luck. They cannot tell where it comes "
            "from.",
        ),
        right(
            "Give the plain table other learning rates.",
            "A gate and a scale make a table move faster as they grow, like a larger "
            "learning rate. In the experiment nothing of the lead survived this test.",
        ),
        wrong(
            "Look whether the trained gates have opened.",
            "They will have: Adam moves any number whose gradient keeps its sign by "
            "about steps times learning rate. That does not show that they are of use.",
        ),
    ),
    ask(
        "Three scores are 2, 0 and −2, and the bias of their offsets is 0.5. What does "
        "the scheme make of them that multiplies and then adds, `x + x · b`?",
        right(
            "3, 0 and −3",
            "It sharpens: high scores go up, low ones go down, and where the content "
            "says nothing it says nothing either. So it is no table.",
        ),
        wrong(
            "2.5, 0.5 and −1.5",
            "That is the additive scheme, `x + b`: the same 0.5 for each. What the "
            "text of a tutorial promises and what its code does differ in just this "
            "way.",
        ),
        wrong(
            "1, 0 and −1",
            "These are the products `x · b`. They are added to the scores and do not "
            "replace them.",
        ),
    ),
)
