"""Who moved what in an optimizer update: the gradient of every text, layer by layer, and what follows from their products.

rows.py         whose gradients: texts, the weights and advantages they were learned with, and terms without an advantage
batches.py      texts of similar length side by side
factors.py      a weight's gradient kept as its two factors (inputs and output gradients) instead of as a matrix, text by text
layers.py       the pass: forward once, then backward layer by layer, each layer's activations made again and dropped
weights.py      a weight around the optimizer's step, and what the optimizer did to it
contract.py     one matrix at a time: products, real change, optimizer's history, sampled coordinates
coordinates.py  the sample of coordinates
tokens.py       on request: which tokens of an answer carried its push
account.py      what moved each text, in numbers that add up; by reward: by_reward.py; of the update as a whole: whole.py

The model is run plainly here, without packing or fused parts: what is added up must be each text's own. That
the texts' gradients add up to the update's gradient is measured and recorded.
"""
