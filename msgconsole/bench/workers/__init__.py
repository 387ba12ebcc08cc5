"""The publisher and subscriber processes of a bench run: `python -m msgconsole.bench.workers TASK`.

Each is told what to do on its command line (JSON), says `{"ready": true}` on standard output, from then on how far it
is, and at last its results. Orders come as lines on standard input.
"""
