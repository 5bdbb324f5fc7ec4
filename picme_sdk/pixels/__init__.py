"""Pixels: from a photo and a mask to the squares that the model sees, and from its fills back to a photo.

photo.py    photos in and out, in their own mode and depth
mask.py     masks of every kind
crops.py    where the holes are, and which square around each the model sees
resize.py   between the photo's pixels and the model's square
seam.py     how a fill is led to the photo along the hole's edge
png.py      PNG files out, with the result's token inside
"""
