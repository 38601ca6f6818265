"""Questions on sinusoidal codes."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "You shuffle the tokens of an input. There are no positions and no mask. What "
        "do the outputs of an attention layer do?",
        wrong(
            "They stay as they are, in the same order.",
            "That would be invariance. A token takes its query along when it moves, so "
            "its output moves with it.",
        ),
        wrong(
            "They change, because softmax meets the keys in another order.",
            "Softmax divides by a sum, and a weighted mean is a sum, too. Neither "
            "minds in which order the keys come.",
        ),
        right(
            "They are shuffled in the same way, and otherwise equal.",
            "This is permutation equivariance: to such a layer a sentence is a bag of "
            "words. Order has to be brought in from outside.",
        ),
    ),
    ask(
        "A code has width 4 and base 10000, so its two hands turn by 1 and by 0.01 "
        "from each position to the next. What is the dot product of the codes of "
        "positions 7 and 9?",
        right(
            "cos 2 + cos 0.02 ≈ 0.58",
            "Each hand adds the cosine of the angle that it turns over the offset 2. "
            "The places 7 and 9 have dropped out.",
        ),
        wrong(
            "cos 16 + cos 0.16 ≈ 0.03",
            "sin a · sin b + cos a · cos b is the cosine of the difference of the two "
            "angles. With their sum, the product would depend on the place.",
        ),
        wrong(
            "2, since each of the two hands adds 1",
            "That is the product of a code with itself, the peak of the curve. Over "
            "two positions the fast hand has turned by 2, and its cosine is below "
            "zero.",
        ),
        wrong(
            "0.58, but another number if 9 comes first",
            "The number is right, but a cosine is the same for +2 and −2. This product "
            "tells how far another position is, and not on which side.",
        ),
    ),
    ask(
        "You choose `W_Q W_Kᵀ = R(−2)ᵀ`. Which key does the position-with-position "
        "score of query 10 prefer?",
        wrong(
            "Key 12, because transposing a rotation turns it back",
            "The code stands on the left as a row, and `code[i] R(d)ᵀ` is `code[i + "
            "d]`. With d = −2 the query looks back, not ahead.",
        ),
        right(
            "Key 8",
            "`code[10] R(−2)ᵀ` is `code[8]`, and its product with `code[j]` peaks at j "
            "= 8. So a sinusoid can express an offset, in a matrix of its own.",
        ),
        wrong(
            "Keys 8 and 12 alike, because the product knows no side",
            "That holds for two codes with nothing between them. The rotation in "
            "between moves the peak from offset 0 to offset −2.",
        ),
        wrong(
            "Key 10, its own place",
            "The peak is at offset 0 if nothing stands between the codes. Here a "
            "rotation by −2 does.",
        ),
    ),
    ask(
        "A model with sinusoids was trained on lengths up to 16. What happens at "
        "position 60?",
        wrong(
            "An error: there is no code for position 60.",
            "That is how a learned table ends. A sine has a value at every position.",
        ),
        wrong(
            "It works: moving by an offset is the same rotation everywhere.",
            "The code has this property. The trained matrices need not use it, and in "
            "the experiment they did not: accuracy fell beyond the training length.",
        ),
        right(
            "It is mostly wrong there: its matrices never met these angles.",
            "The fast hands come round again, but the slow ones now stand where they "
            "never stood in training. Defined at every position is not usable at every "
            "position.",
        ),
    ),
)
