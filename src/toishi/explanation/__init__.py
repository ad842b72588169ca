"""What a run's record says, in words and numbers: every number shown is the record's, or recomputed from it by `ops`.

step.py      one step's groups: scores, reward, mean, spread, advantage, and the formula with its numbers
overview.py  the whole run in lines: rewards, evaluations, events
curve.py     the reward curve in characters
audit.py     is the record whole, and does every number follow from the one before it
"""
