"""Pixels: from a photo and a mask to the squares that the model sees, and from its fills back to a photo.

photo.py    photos in and out, in their own mode and depth
mask.py     masks of every kind
crops.py    where the holes are, and which square around each the model sees
"""
