"""Pipelines: stages that take from one another, each done once for each content.

sections.py      what a pipeline file holds
references.py    what one stage takes from another, by name
planning.py      the file read, and everything that is wrong with it found before the first stage
kinds.py         the kinds of stages; training.py, choosing.py, making.py: what the product already does, as a stage
contents.py      what a stage depends on, as one sha256
store.py         the pipeline's folder
running.py       the stages in order
measuring.py     every model on the same held-out prompts
gains.py         what each stage gained, and whether it can be told
story.py         the report
"""
