"""What is set aside, at its limit or not understood: kept as alarms, and told to operators."""
