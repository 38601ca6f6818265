"""Questions on implementing Shaw's attention."""

from relpos_lib.quizzes.question import ask, right, wrong

QUESTIONS = (
    ask(
        "A query has the weights 1/2, 1/4 and 1/4 on keys at the offsets −2, −1 and 0. "
        "K is 1. Which bins do they fill?",
        wrong(
            "1/2, 1/4 and 1/4",
            "That would give each key a bin of its own. Offset −2 is clipped to −1, so "
            "two keys share one.",
        ),
        wrong(
            "1/4, 1/4 and 0",
            "This is `scatter`: of two weights that fall into one bin, only one is "
            "kept. The bins of a query must sum to 1.",
        ),
        right(
            "3/4, 1/4 and 0",
            "Offsets −2 and −1 read the first row, 0 the middle one, and nothing lies "
            "ahead. Bins add up what falls into them.",
        ),
        wrong(
            "0, 1/4 and 3/4",
            "Left and right are exchanged: the first row belongs to −K, to the keys "
            "before the query.",
        ),
    ),
    ask(
        "Hidden keys get −1e9 in place of their scores. A query sees no key at all. "
        "What does it answer, in float32?",
        wrong(
            "Zero, since every weight is tiny",
            "Only differences between scores count in a softmax. All its scores are "
            "equal, so all its weights are, too.",
        ),
        wrong(
            "NaN",
            "That is what −∞ gives, or float16, which cannot hold −1e9. In float32 "
            "nothing looks wrong.",
        ),
        right(
            "The mean of all that it must not see",
            "Equal scores give equal weights. Fill the weights of hidden keys with 0 "
            "after the softmax, and the row is zero.",
        ),
    ),
    ask(
        "In float16 you hide keys first, with the lowest score there is, −65504, and "
        "add the bias afterwards. What can happen?",
        right(
            "A query that sees nothing gets NaN.",
            "With a bias of −20 the sum leaves the format and becomes −∞, and a row of "
            "−∞ has no softmax. Add everything first, and hide last.",
        ),
        wrong(
            "Nothing: a sum does not depend on the order.",
            "Hiding replaces a score, it does not add to it. What is added later moves "
            "the score that you chose, and it may leave the format.",
        ),
        wrong(
            "A bias of 20 brings hidden keys back.",
            "Beside a key that is seen they stay hidden: about −65484 is as far below "
            "as before. It takes a milder number than −65504, such as −20.",
        ),
        wrong(
            "The bias is not trained, because masked scores have no gradient.",
            "The scores that are seen still send a gradient to the bias. The trouble "
            "is with those that should not be seen.",
        ),
    ),
    ask(
        "A step of decoding is tested. Which output is it held against?",
        wrong(
            "That of a full pass over the new token alone",
            "A token alone sees nothing but itself. This would pass for a cache that "
            "is never read.",
        ),
        right(
            "The same row of one full causal pass",
            "Both must see the same keys at the same offsets. A wrong alignment, order "
            "or mask shows at the second token.",
        ),
        wrong(
            "The last row of a full pass without a mask, for each token of the "
            "sequence",
            "That is right for the last token only. In a full pass without a mask, "
            "earlier tokens see later ones.",
        ),
        wrong(
            "Its own output in a second run",
            "A wrong alignment is wrong in the same way every time. Such a test finds "
            "dropout, and little else.",
        ),
    ),
)
