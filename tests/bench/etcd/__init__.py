"""`python -m tests.bench.etcd`: the same work for coord and for etcd, in turn on one machine.

`works.py` says what is compared and what the goals are; a part of the work is a function of
`ours_*.py` and one of `theirs.py`, each of which starts its three servers and ends them. Values
come back by the key of their row, so that a row is added in `works.py` and where it is measured.
"""
