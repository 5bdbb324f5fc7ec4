"""Video without flicker.

frames.py     arrays in, completed arrays out; no video library needed
files.py      a video file to a video file
streams.py    reading and writing video files, with PyAV
stability.py  how much the filled pixels change from frame to frame
"""

from __future__ import annotations

from picme_sdk.video.files import complete_video, preview
from picme_sdk.video.frames import complete_frames

__all__ = ["complete_frames", "complete_video", "preview"]
