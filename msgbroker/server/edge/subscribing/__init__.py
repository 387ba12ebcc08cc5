"""The service `Subscriber`: batches and notices out; credit, verdicts and what is begun in."""
