"""Moving a group, steering one message, waiting until a group is empty: acts on lanes, whoever is connected."""
