"""Delivery decisions: lanes, matching, order, assignment, retry. Pure: no I/O, no clock, no tasks."""
