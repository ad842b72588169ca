"""A recorded optimizer update with other scores, fewer answers or another rule: what would have come out.

change.py     what is asked, checked against what is on record
ranges.py     the scale on which a reward's scores are given and shown
advantages.py exact: the changed groups through the run's own rule
recorded.py   what the record holds of the step, read once
pushes.py     exact: what every answer's gradient would have been multiplied by
forecast.py   estimated, with a half-width: what the step would have done to the log-probs, without the model
redo.py       the same, really done: the step again from its checkpoint with the change
grid.py       all questions that a page answers of a group, asked beforehand
model.py      the answer as plain values; answering.py puts it together, words.py and render.py say it
"""
