"""HEADER expressions: compiled, checked, and judged by what they may cost."""
