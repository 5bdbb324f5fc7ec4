"""The mixture: random numbers, primitives and the choice among them, and tokens that replay a result.

mixture.py  counter-based random numbers, the mixture's mathematics, and the choice of primitives
token.py    a recipe as a short text
"""
