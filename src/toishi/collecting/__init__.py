"""Data made and chosen with a model: prompts by pass rate, rejection sampling, preference pairs, labels by people.

`asking` samples and scores; what it found lies in a samples file (`samples`). Everything else chooses from that: `selecting`,
`keeping`, `pairing` (with a judge: `verdicts`). `labelling` is for people. Names are imported from their modules, so that
labels and choices need no torch.
"""
