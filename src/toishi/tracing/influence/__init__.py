"""Who moved what in an optimizer update: the gradient of every text, layer by layer, and what follows from their products.

rows.py      whose gradients: texts, the weights and advantages they were learned with, and terms without an advantage
factors.py   a weight's gradient kept as its two factors (inputs and output gradients) instead of as a matrix
layers.py    the pass: forward once, then backward layer by layer, each layer's activations made again and dropped
contract.py  one matrix at a time: products, real change, optimizer's history, sampled coordinates
coordinates.py  the sample of coordinates
account.py   what moved each text, in numbers that add up

The model is run plainly here, one text at a time, without packing, shared prompts or fused parts: what is added up must be each
text's own. That the texts' gradients add up to the update's gradient is measured and recorded.
"""
