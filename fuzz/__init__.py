"""Fuzzing: what comes from outside must end as a result or a `PicmeError`, whatever its bytes are. See docs/develop/fuzzing.md.

fuzz_*.py     one target each: `check(data)` takes bytes and raises for anything that is not allowed; none of them needs atheris
fill.py       the way from photo and mask to a result, with a painter in the place of the model
one.py        runs one target under atheris
run.py        runs all targets for some seconds, C++ ones included, and prints what they did: `make fuzz`
corpus/       small inputs of each target, those that once failed included; tests/fuzz replays them
"""
