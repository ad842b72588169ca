"""Work that can be killed: comparisons that may hang and programs that a model wrote."""
