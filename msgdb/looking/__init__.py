"""Looking messages up: by id, by key, by time and by what they have; bounded, and saying so."""
