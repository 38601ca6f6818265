"""Relative attention at nearly the price of plain attention: exact, forward and back.

``quadtree`` divides the pairs into far rectangles and near tiles. ``kernels`` attends
to one rectangle, ``far`` merges the rectangles of a side. ``near`` does the tiles, in
batches of ``chunks``, along the diagonals of ``band``. ``operator`` puts both together
for autograd and compilers, and ``attention`` prepares the inputs.
"""
