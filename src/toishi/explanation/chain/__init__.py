"""The chain of one recorded step, from the scores to the changed probabilities: every link with the check that it passed.

model*.py     what a chain is, as plain values; model_whatif.py: what-ifs that are handed to its page
evidence.py   what is on record about the step; comparing.py: how a check is made
scores.py advantages.py weights.py factors.py gradient.py effect.py beside.py    the links, each recomputed
shared.py     what answers that begin alike push together; reasons.py: why one went against its score
build.py      all links of a group or an answer
headlines.py  sentences that a person can repeat; voice.py: how numbers are written; messages/LANGUAGE.yaml: the words
story*.py     the chain as a page (explanation/page draws it)
"""
