"""A run's results as people read them: tables on the terminal, a Markdown page and a chart."""
