"""Questions on checking claims."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "Take a model that is right at all positions up to 32, and beyond them guesses "
        "one of 16 symbols. A claim says that it loses 15 to 20% past the "
        "training length. At which length is that true?",
        wrong(
            "At every length beyond 32",
            "The longer the input, the larger the part that is guessed. So the loss "
            "belongs to a test length, and a claim without it says little.",
        ),
        wrong(
            "At 64",
            "There half of the positions are guessed, and 47% are lost.",
        ),
        right(
            "Near 40",
            "8 of 40 positions are guessed, and 15 in 16 of these are lost: "
            "18.75%. At 48 it is 31% already.",
        ),
        wrong(
            "At none: such a model loses everything at once",
            "It is still right at the first 32 positions. Accuracy is a mean over "
            "positions and falls step by step.",
        ),
    ),
    ask(
        "Shaw et al. (2018) report, for sinusoids and for relative positions, BLEU of "
        "26.5 and 26.8 (English–German, base model), 27.9 and 29.2 (big model), 38.2 "
        "and 38.7 (English–French, base model), 41.2 and 41.5 (big model). What does "
        "this say about a claimed gain of 1.8 to 2.4?",
        wrong(
            "It confirms it: from 26.8 to 29.2 are 2.4.",
            "These are two models with relative positions, a base one and a big one. "
            "The gain is that of the size.",
        ),
        right(
            "None of the four gains is as large.",
            "They are 0.3, 1.3, 0.5 and 0.3. A gain has to be taken with everything "
            "else equal.",
        ),
        wrong(
            "It shows that relative positions do not help in translation.",
            "All four gains are above zero. They are smaller than claimed, which is "
            "another matter.",
        ),
        wrong(
            "Nothing, for BLEU cannot be compared.",
            "Within a pair the data and the size of the model are the same, so the two "
            "can be compared. From one pair to another they cannot.",
        ),
    ),
    ask(
        "Two settings were trained with five seeds each, and the permutation test "
        "calls it a tie. What has been shown?",
        wrong(
            "That both are equally good",
            "A small difference can hide in the spread. A tie is no proof of equality.",
        ),
        wrong(
            "That the one with the higher mean is better, if only by a little",
            "With other seeds the order of the means could be the other one. That is "
            "what the test found.",
        ),
        right(
            "That the spread over seeds alone could make such a difference",
            "More seeds might show that there is one. Until then the cheaper of the "
            "two is a good choice.",
        ),
    ),
    ask(
        "“Clipping lets Shaw's scheme take inputs of any length.” What is true of it?",
        right(
            "Every pair finds a row. Whether the answers are right is another "
            "question.",
            "No row is missing, and with a small K none is untrained. How far a "
            "trained model stays right depends on the gap between near rows and edge "
            "rows.",
        ),
        wrong(
            "It is true, and the answers stay as good as at the training length.",
            "They stay good for long, and not for ever: the far keys become more, and "
            "their share of the weight grows.",
        ),
        wrong(
            "It is false: offsets beyond K have no row.",
            "They read the edge row. That is what clipping means.",
        ),
    ),
)
