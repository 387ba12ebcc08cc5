"""Looking messages up: what people ask by names, answered from the store, with whether the answer is complete."""
