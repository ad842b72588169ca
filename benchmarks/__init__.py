"""Measurements of toishi beside its peers; docs/benchmarks.md says what, how and why."""
