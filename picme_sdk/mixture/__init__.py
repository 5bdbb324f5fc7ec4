"""The mixture: random numbers, primitives and the choice among them, and tokens that replay a result.

philox.py   counter-based random numbers
mixture.py  weights, means and scales of one hole's primitives
recipe.py   what a result is made of (draw, variation, blend), and how recipes are chosen
token.py    a recipe as a short text
"""
