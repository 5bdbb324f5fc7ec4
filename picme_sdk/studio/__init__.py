"""The studio: a local web page to paint a hole and choose among its fills, and an HTTP API for other tools.

guard.py      who may send requests: Host, Origin, token, sizes, headers
store.py      what is kept: a bounded number of scenes; one job at a time
api.py        the API: plain functions from a request's body to a reply
pictures.py   base64 in, PNG out
app.py        the routes, and `serve`
page/         the page: HTML, CSS and JavaScript modules; no foreign resources
"""
