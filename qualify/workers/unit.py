"""The one file that a compiler is given of a module, in either language: its defines, then its fragments in order."""

from __future__ import annotations

import re

from qualify.contract import Module

_DEFINE = re.compile(r"[^\r\n\\\0]*")


def unit(module: Module) -> str:
    """The translation unit: the defines, then every fragment in the module's order."""
    lines = []
    for name, value in sorted(module.defines.items()):
        if not _DEFINE.fullmatch(value):
            raise ValueError(f"a define of {name} that is more than one line")
        lines.append(f"#define {name} {value}")
    lines += [f'#include "{fragment.path}"' for fragment in module.fragments]
    return "\n".join(lines) + "\n"
