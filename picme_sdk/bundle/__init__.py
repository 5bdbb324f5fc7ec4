"""The bundle: what an exporter hands to every runtime.

bundle.py      a folder or .picme file, whose files are read and hashed
manifest.py    picme.json
json_reader.py a strict reader for it
onnx_check.py  what must be known of an ONNX file before it may be loaded
"""
