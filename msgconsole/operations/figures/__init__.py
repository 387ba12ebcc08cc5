"""How far groups are behind, and how much was published and delivered: figures by name."""
