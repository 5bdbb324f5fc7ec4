"""One target under atheris: `python -m fuzz.one token -max_total_time=60 CORPUS`; the rest of the line goes to libFuzzer."""

import importlib
import logging
import sys
import warnings

import atheris


def main() -> None:
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)  # Pillow's, on damaged metadata
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    with atheris.instrument_imports(include=["picme_sdk", "fuzz"]):
        target = importlib.import_module(f"fuzz.fuzz_{sys.argv.pop(1)}")
    atheris.Setup(sys.argv, target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
