"""The same work done by what one would use instead, beside ours: `python -m tests.bench.peers`.

Every message has a body of 1 KiB, is stored durably as far as the system does that, delivered to one consumer and
acknowledged. Publisher and consumer are processes of their own, in Python, with each system's own client used the way
its documentation recommends for throughput. All on this machine, in turns, the median of several rounds.
"""
