"""What relative attention costs, as a ratio to attention without positions.

``python -m relpos_lib.bench`` times our backends and what is usually written against
``scaled_dot_product_attention`` of the same q, k and v, in one process and in turn, so
that a busy machine slows all of them alike. Ratios are medians over rounds with their
range; absolute times say more about the machine than about the code. It also checks
that our backends compute what the definition says, on a CPU or on a GPU.

``cases`` says what is measured, ``contenders`` and ``peers`` who takes part, ``timing``
and ``memory`` how, ``predict`` what is not even tried, ``equality`` what is correct,
``plan`` in which order and what is promised, ``claims`` what whole layers of a model
need, ``store`` and ``report`` where it goes.
"""
