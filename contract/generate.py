"""Writes what each language takes from contract.json: python contract/generate.py

picme_sdk/contract.py           Python's Literals and constants
cpp_bindings/src/contract.hpp   the constants of the C++ library

The public header, the HTTP description and the studio's page are written by hand; tests/contract compares them with contract.json, and
these two files with what this script would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LITERALS = {"strategies": "Strategy", "devices": "Device", "precisions": "Precision", "storages": "Storage", "details": "Detail"}  # fmt: skip
WIDTH = 120


def python(contract: dict[str, Any]) -> str:
    """picme_sdk/contract.py, formatted as ruff formats it."""
    lines = [
        '"""What every language agrees on: names, limits, defaults, formats and keys.',
        "",
        "Written by contract/generate.py from contract/contract.json. Change the JSON and run the script; tests/contract finds any drift.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal",
        "",
    ]
    for key, name in LITERALS.items():
        lines.append(f"{name} = Literal[{', '.join(map(_text, contract[key]))}]")
    lines.append("")
    for key, name in LITERALS.items():
        lines += _tuple(f"{key.upper()}: tuple[{name}, ...]", contract[key])
    lines += _tuple("GRAPHS", contract["graphs"])
    lines += _tuple("BUILDERS", contract["builders"])
    formats = contract["image_formats"]
    lines += ["", "# Image formats by Pillow's names: those that are read, and those that every browser shows, too."]
    lines += _tuple("IMAGE_FORMATS", [entry["name"] for entry in formats])
    lines += _tuple("BROWSER_FORMATS", [entry["name"] for entry in formats if entry["browsers"]])
    lines += _tuple("IMAGE_SUFFIXES", [suffix for entry in formats for suffix in entry["suffixes"]])
    lines += _table("MEDIA_TYPES", {entry["name"]: entry["media_type"] for entry in formats})
    lines.append("")
    lines += [f"{key.upper()} = {value:_}" if isinstance(value, int) else f"{key.upper()} = {_number(value)}" for key, value in contract["limits"].items()]  # fmt: skip
    lines.append("")
    for key, value in contract["defaults"].items():
        kind = {"strategy": ": Strategy", "device": ": Device", "precision": ": Precision"}.get(key, "")
        lines.append(f"DEFAULT_{key.upper()}{kind} = {_text(value) if isinstance(value, str) else repr(value)}")
    lines.append("")
    lines += _table("HTTP_STATUS", {e["python"]: e["http"] for e in contract["errors"] if e["http"]})
    lines += ["", f"TOKEN_VERSION = {contract['token_version']}", f"BUNDLE_FORMAT = {contract['bundle_format']}"]
    lines.append(f"MANIFEST = {_text(contract['manifest'])}")
    lines.append("BUNDLE_KEYS: dict[int, dict[str, tuple[str, ...]]] = {")
    for form, kinds in contract["bundle_keys"].items():
        lines.append(f"    {form}: {{")
        for kind, keys in kinds.items():
            lines += _tuple(_text(kind), keys, "        ", ": ", ",")
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def cpp(contract: dict[str, Any]) -> str:
    """cpp_bindings/src/contract.hpp."""
    lines = [
        "// What every language agrees on: names, limits, defaults and keys.",
        "// Written by contract/generate.py from contract/contract.json. Change the JSON and run the script; tests/contract finds any drift.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "#include <initializer_list>",
        "#include <string_view>",
        "",
        "// clang-format off",
        "namespace picme {",
        "",
        "using Names = std::initializer_list<std::string_view>;",
        "",
    ]
    for key in ("strategies", "devices", "precisions", "storages", "details", "graphs", "builders"):
        lines.append(_names(key.upper(), contract[key]))
    lines.append("")
    lines += [_constant(key.upper(), value) for key, value in contract["limits"].items()]
    lines.append("")
    for key, value in contract["defaults"].items():
        if key == "strategy":
            value = contract["strategies"].index(value)  # as picme_strategy numbers them
        lines.append(_constant(f"DEFAULT_{key.upper()}", value))
    lines += ["", *(_constant(key.upper(), contract[key]) for key in ("token_version", "bundle_format", "manifest"))]
    for form, kinds in contract["bundle_keys"].items():
        lines += ["", f"namespace format_{form} {{", ""]
        lines += [_names(f"{kind.upper()}_KEYS", keys) for kind, keys in kinds.items()]
        lines += ["", f"}} // namespace format_{form}"]
    return "\n".join([*lines, "", "} // namespace picme", ""])


def _text(value: str) -> str:
    return json.dumps(value)


def _number(value: float) -> str:
    return repr(value).replace("e+", "e")


def _tuple(name: str, values: Iterable[str], indent: str = "", sign: str = " = ", end: str = "") -> list[str]:
    texts = [_text(value) for value in values]
    line = f"{indent}{name}{sign}({', '.join(texts)}){end}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}{name}{sign}(", *(f"{indent}    {text}," for text in texts), f"{indent}){end}"]


def _table(name: str, table: dict[str, Any]) -> list[str]:
    pairs = [f"    {_text(key)}: {json.dumps(value)}," for key, value in table.items()]
    return [f"{name} = {{", *pairs, "}"]


def _names(name: str, values: Iterable[str]) -> str:
    return f"inline const Names {name} = {{{', '.join(map(_text, values))}}};"


def _constant(name: str, value: Any) -> str:
    if isinstance(value, str):
        return f"constexpr std::string_view {name} = {_text(value)};"
    if isinstance(value, float):
        return f"constexpr double {name} = {_number(value)};"
    return f"constexpr {'int' if value < 1 << 31 else 'std::int64_t'} {name} = {value};"


def outputs() -> dict[Path, str]:
    """What this script writes."""
    contract = json.loads((ROOT / "contract" / "contract.json").read_text())
    return {
        ROOT / "picme_sdk" / "contract.py": python(contract),
        ROOT / "cpp_bindings" / "src" / "contract.hpp": cpp(contract),
    }


def main() -> None:
    for path, text in outputs().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
