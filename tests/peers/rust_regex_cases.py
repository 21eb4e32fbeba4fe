#!/usr/bin/env python3
"""Turns the TOML test files of the Rust regex crate into tests/data/rust-regex/cases.json (Python 3.11 or newer).

Usage: rust_regex_cases.py TESTDATA_FOLDER > cases.json
Kept of each case: one pattern, a UTF-8 haystack, the spans of its matches and the options that change what matches.
Sets of patterns, searches over part of a haystack and search modes that only change which match is reported are left out.
"""
import json, pathlib, sys, tomllib

cases = []
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.toml")):
    for t in tomllib.loads(path.read_text(encoding="utf-8")).get("test", []):
        if isinstance(t["regex"], list):
            if len(t["regex"]) != 1:
                continue
            t["regex"] = t["regex"][0]
        if "bounds" in t or "line-terminator" in t or t.get("match-limit") or t.get("search-kind", "leftmost") != "leftmost":
            continue
        haystack = t["haystack"]
        if t.get("unescape"):
            try:
                haystack = haystack.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1").decode("utf-8")
            except UnicodeError:
                continue
        spans = []
        for m in t["matches"]:
            if isinstance(m, dict):
                m = m["span"]
            if m and isinstance(m[0], list):
                m = m[0]
            if isinstance(m, dict):
                m = m["span"]
            spans.append(m)
        case = {"name": f"{path.stem}/{t['name']}", "regex": t["regex"], "haystack": haystack, "spans": spans}
        for key in ("anchored", "case-insensitive", "unicode", "utf8", "compiles"):
            if key in t:
                case[key] = t[key]
        cases.append(case)
json.dump({"cases": cases}, sys.stdout, ensure_ascii=True, indent=0)
