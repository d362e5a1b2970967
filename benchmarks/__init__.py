"""What Calve costs beside the best that is possible without it: `make bench`, or `python -m benchmarks`.

A benchmark is a module with two names, listed in `benchmarks.__main__.BENCHMARKS`:

- `measure(ground)` yields `Figure`s, each of ours beside a peer, taken in turn in one run on the same data;
- `HEADINGS` says, for the first part of its figures' names, what is compared with what.

Figures are named `<what>.<case>.<partitions>.<database>`; the table, the chart and the JSON follow from that.
The chart that the README shows is made by `python -m benchmarks --chart docs/benchmark.svg`.
"""
