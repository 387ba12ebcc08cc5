"""A run's results for people: on the terminal, as Markdown and as a chart."""
