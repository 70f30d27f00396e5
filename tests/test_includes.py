"""Every way to reach a file outside the module is found, however it is spelled; the honest twin is not."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.includes import ONE, Include, IncludeError, logical_lines, scan, spliced
from tests.conftest import examples


def refusal(text: str | bytes) -> IncludeError:
    with pytest.raises(IncludeError) as caught:
        scan(text if isinstance(text, bytes) else text.encode())
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('int a;\n#include "common/opencl.h"\n', Include(2, "common/opencl.h", quoted=True)),
        ("#include <cuda_fp16.h>", Include(1, "cuda_fp16.h", quoted=False)),
        (' \t# /* c */ include /* "y" */ "x.h" // "z"\n', Include(1, "x.h", quoted=True)),
        ('%:include "x.h"\n', Include(1, "x.h", quoted=True)),
        ('/*\n*/ \\\n#inc\\\nlude "x.h"\n', Include(3, "x.h", quoted=True)),
        ('/* a */ #include "x.h"', Include(1, "x.h", quoted=True)),
        ('// " \n#include "x.h"\n// "', Include(2, "x.h", quoted=True)),
        ('char c = \'"\';\n#include "x.h"\n', Include(2, "x.h", quoted=True)),
        ('#if 0\ndon\'t /* \n#include "x.h"\n#endif // */', Include(3, "x.h", quoted=True)),
        ('int a;\r\n#include "x.h"\r\n', Include(2, "x.h", quoted=True)),
    ],
)
def test_an_include_is_found_where_a_compiler_finds_it(text: str, found: Include) -> None:
    assert scan(text.encode()) == (found,)


@pytest.mark.parametrize(
    "text",
    [
        '// #include "x.h"',
        '/* \n#include "x.h"\n*/',
        'const char *s = "\\\n#include <x>";',
        '// comment \\\n#include "/etc/passwd"\n',
        'int a; #include "x.h"',
        "float f = 1.5e-3f, g = .5f; int h = 1 ? 2 : 0; /* µ: ' */",
        "#\n# define A 'x'\n#pragma unroll 4\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
        '#define LOOP _Pragma("unroll")\n#pragma clang loop vectorize(enable)\n#pragma GCC unroll 4\n',
        'asm volatile("mov.u32 %0, %laneid;" : "=r"(x));',
    ],
)
def test_what_is_no_include_is_let_be(text: str) -> None:
    assert scan(text.encode()) == ()


@pytest.mark.parametrize(
    ("text", "line", "got"),
    [
        ('int a;\n#include "/etc/passwd"', 2, '#include "/etc/passwd"'),
        ('#include "../x.h"', 1, '#include "../x.h"'),
        ('#include "a/./x.h"', 1, '#include "a/./x.h"'),
        ("#include </etc/passwd>", 1, "#include </etc/passwd>"),
        ("#define F \"x.h\"\n#include F", 2, "#include F"),
        ('#include "x.h" "y.h"', 1, '#include "x.h" "y.h"'),
        ('#include L"x.h"', 1, '#include L"x.h"'),
        ("#include", 1, "#include"),
        ('#include "x\\"/*', 1, '#include "x\\"/*'),
        ('#include <a/*>\n#include "/etc/passwd"\n*/b>', 1, "#include <a b>"),
        ('#include <a//b>\n', 1, "#include <a"),
        ('#include_next "x.h"', 1, "#include_next"),
        ('#import "x.h"', 1, "#import"),
        ('#embed "x.h"', 1, "#embed"),
        ('%:import "x.h"', 1, "#import"),
        ('# 1 "/etc/passwd"', 1, "#1"),
        ('#inc\\u006cude "x.h"', 1, "#inc"),
        ('??=include "/etc/passwd"', 1, "a trigraph"),
        ('// ??/\n#include "/etc/passwd"', 1, "a trigraph"),
        ('// \\ \n#include "/etc/passwd"', 1, "a backslash with blanks or nothing after it"),
        ("int a; // \\", 1, "a backslash with blanks or nothing after it"),
        ('// a\r#include "/etc/passwd"', 1, "a control character"),
        ('\u00a0#include "/etc/passwd"', 1, "the character U+00A0"),
        ('\ufeff#include "x.h"', 1, "a control character"),
        (b"int a;\n\xff", 2, "the byte 0xff"),
        ('auto s = R"(" /* )";\n#include "/etc/passwd"\n// */', 1, "a raw string"),
        ("int n = 1'2 \"'/*\";\n#include \"/etc/passwd\"\n// */", 1, "a digit separator"),
        ("int a;\n/* no end", 2, "a comment that does not end"),
        ('#if __has_include("/etc/passwd")\n#endif', 1, "__has_include"),
        ("#if\\\n defined(A) && __has_embed(<x>)\n#endif", 2, "__has_embed"),
        ('#pragma GCC dependency "/etc/passwd"', 1, "#pragma GCC dependency"),
        ("#pragma clang module import x", 1, "#pragma clang module"),
        ('_Pragma("GCC dependency \\"x\\"")', 1, "_Pragma"),
        ("_Pragma(STRING(x))", 1, "_Pragma"),
        ('asm(".incbin \\"/etc/passwd\\"");', 1, "an assembler directive that reads a file"),
    ],
)  # fmt: skip
def test_what_could_reach_another_file_is_refused_by_line(text: str | bytes, line: int, got: str) -> None:
    error = refusal(text)
    assert (error.line, error.got) == (line, got)


PIECES = ["#", "include", ' "x.h"', "/*", "*/", "//", "\n", "\\\n", '"', "'", "R", "1", "\\", "%:", "<", ">", " "]


@given(st.binary(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join).map(str.encode))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_give_includes_or_an_error_with_a_line(data: bytes) -> None:
    try:
        lines = [include.line for include in scan(data)]
    except IncludeError as error:
        lines = [error.line]
    assert all(1 <= line <= data.count(b"\n") + 1 for line in lines)


WORDS = [
    *PIECES,
    "u8R",
    "_Pragma",
    "__has_embed",
    "a",
    "$",
    ".",
    ".5",
    "1e",
    "+",
    "/",
    "*",
    "'",
    "\t",
    "\u00b5",
    "0x1.p",
]


@given(st.lists(st.sampled_from(WORDS), max_size=20).map("".join))
@settings(max_examples=examples(300), deadline=None)
def test_what_is_taken_in_one_piece_reads_as_its_tokens_do(text: str) -> None:
    def read(*tokens: re.Pattern[str]) -> list[tuple[int, str]] | tuple[int, str]:
        try:
            return list(logical_lines(*spliced(text), *tokens))
        except IncludeError as error:
            return error.line, error.got

    assert read() == read(re.compile(ONE, re.VERBOSE | re.DOTALL))
