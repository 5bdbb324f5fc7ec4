"""More than one process, and more than one machine, on Ray. Ray is imported only here, and only when it is used.

connection.py  connects to a cluster, or starts one on this machine
places.py      folders on any file system
bulk.py        many photos on many workers (`picme batch --ray`)
merging.py     decoder calls of several requests as one
scenes.py      scenes that every replica can open
serve.py       the studio's HTTP API on many replicas (`picme serve`)
"""
