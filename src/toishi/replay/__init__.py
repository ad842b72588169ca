"""A recorded step done again from its answers, and held against the record link by link.

plan.py     what has to be done, what it costs, whether the record is whole, and whether bits must agree
redo.py     the doing
links.py    the comparing: every link of the chain from the scores to the weights
weights.py  the comparing of weights: checksum, and the checkpoint where one was kept
"""
