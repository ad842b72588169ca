"""A step looked at from inside: log-probs before and after, what became of the gradient in every matrix, SFT beside GRPO.

trace.py     the whole trace of a step
live.py      which steps of a run are traced
watched.py   the answers that are watched: the step's own, and some that were not sampled
probing.py   log-probs and next-token probabilities under given weights
observer.py  what is seen while the updates run
measuring.py what is measured before and after them
matrices.py  each weight matrix from both sides of an optimizer step
checking.py  token weights against one undivided graph
afterwards.py  the trace of a recorded step, by replay
contrast.py  SFT beside GRPO on one prompt
snapshot.py  weights and optimizer as they were, to do a step again at once

Nothing here changes a weight for good: what is moved is put back bit for bit.
"""
