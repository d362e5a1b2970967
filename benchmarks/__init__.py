"""Benchmarks of Calve against the best alternatives without it: `make bench`, or `python -m benchmarks`.

A benchmark is a module with two names, listed in `benchmarks.__main__.BENCHMARKS`:

- `measure(ground)` yields `Figure`s, each with a measurement of Calve and of a peer, alternating on the same data;
- `HEADINGS` maps the first part of the figures' names to a description of the comparison.

Figures are named `<what>.<case>.<partitions>.<database>`; the table, the chart and the JSON follow from that.
The chart that the README shows is made by `python -m benchmarks --chart docs/benchmark.svg`.
"""
