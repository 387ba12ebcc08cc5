"""Connected instances of subscriber groups: what each may get, what is on its way, and how it goes away."""
