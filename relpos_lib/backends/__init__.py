"""Ways to compute relative attention, all equal to the loop."""
