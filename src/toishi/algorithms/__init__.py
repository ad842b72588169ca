"""Algorithms as rows of choices, and their application.

`rows` and `notes` are plain values and import no torch; `apply` holds what needs tensors.
"""
