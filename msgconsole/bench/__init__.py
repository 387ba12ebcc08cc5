"""The benchmark: a load on a whole center on this machine, phase by phase, and what was measured.

A `scenario` says what is run (`catalogue` has the usual ones), and `driver` runs it. `phases` carries out each phase
with the processes of `workers`, `measures` makes numbers of what was seen, and `report` shows them to people.
"""
