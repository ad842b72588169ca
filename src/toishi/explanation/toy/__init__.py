"""`toishi explain toy`: one step on a model of two softmax rows, every number computed from the ones before it.

model.py        the model, the judge, the answers
closed_form.py  the gradient by formulas
updating.py     one update: the library's objective and autograd beside the closed form
compute.py      the whole walk (beside.py: what stands beside it; moves.py: why a word moved), as plain values (walk.py)
story*.py       the walk as sections of blocks, worded by a message catalogue (messages/LANGUAGE.yaml),
                drawn by explanation/page
"""
