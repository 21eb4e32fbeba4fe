#!/usr/bin/env python3
"""Takes the words of a checkpoint's chat format out of its Python encoder and writes chat_wording.json.

usage: tools/extract_chat_wording.py CHECKPOINT/encoding [-o CHECKPOINT/chat_wording.json] [--format v41|v4]
       [--set NAME=TEXT]...
The argument is the encoder's file or the folder it lies in. Nothing of it is run: the file is parsed, its string and
dictionary constants are looked at, and each piece of wording is recognised by what it must contain. What was found, and
where, is printed; --set gives a piece the script could not find. docs/chat-wording.md describes the result.
"""
import argparse
import ast
import json
import os
import re
import sys

# What tells the pieces apart, the placeholder each must have, and whether a format can do without it.
PIECES = {
    "tools_section": {"marks": ["## Tools"], "placeholder": "tool_schemas", "formats": ("v41", "v4")},
    "response_format_section": {"marks": ["## Response Format"], "placeholder": "schema", "formats": ("v41", "v4")},
    "effort_line": {"marks": ["Reasoning Effort"], "placeholder": "effort", "formats": ("v41",)},
    "tool_result": {"marks": ["<tool_result>", "</tool_result>"], "placeholder": "content", "formats": ()},
}
EFFORT_NAMES = {"low", "medium", "high", "xhigh", "max"}


class Constants(ast.NodeVisitor):
    """Every text of the file as a list of str and names (placeholders), and every dictionary of efforts."""

    def __init__(self):
        self.values = {}       # NAME -> str, module-level constants
        self.templates = []    # (line, [str | ("name", NAME)], came from an f-string)
        self.effort_numbers, self.effort_texts, self.default_effort = {}, {}, None

    def collect(self, tree):
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and isinstance(getattr(node, "value", None), ast.Constant) and isinstance(node.value.value, str):
                self.values[target.id] = node.value.value
        self.visit(tree)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.templates.append((node.lineno, [node.value], False))

    def visit_JoinedStr(self, node):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(part.value)
            else:
                inner = part.value
                while isinstance(inner, ast.Call) and inner.args:
                    inner = inner.args[0]
                name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else "value"
                parts.append(("name", name))
        self.templates.append((node.lineno, parts, True))

    def visit_Dict(self, node):
        keys = [k.value if isinstance(k, ast.Constant) else None for k in node.keys]
        if keys and all(isinstance(k, str) for k in keys) and len(set(keys) & EFFORT_NAMES) >= 2:
            values = [self.text_of(v) for v in node.values]
            if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
                self.effort_numbers.update(zip(keys, values))
            elif all(isinstance(v, str) for v in values):
                self.effort_texts.update(zip(keys, values))
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        arguments = node.args.args + node.args.kwonlyargs
        defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + node.args.defaults + node.args.kw_defaults
        for argument, default in zip(arguments, defaults):
            if "effort" in argument.arg and isinstance(default, ast.Constant) and isinstance(default.value, (str, int)):
                self.default_effort = str(default.value)
        self.generic_visit(node)

    def text_of(self, node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        return None


def filled(parts, from_f_string, values, placeholder):
    """Our spelling of a template: known constants put in, the one unknown name turned into `placeholder`."""
    text, unknown = "", []

    def name_text(name):
        if name in values:
            return values[name]
        unknown.append(name)
        return "{" + placeholder + "}"

    for part in parts:
        if not isinstance(part, str):
            text += name_text(part[1])
        elif from_f_string:
            text += part
        else:  # a str.format template: {{ }} are braces, {name} is a hole
            for piece in re.split(r"(\{\{|\}\}|\{[A-Za-z_][A-Za-z_0-9]*\})", part):
                if piece in ("{{", "}}"):
                    text += piece[0]
                elif re.fullmatch(r"\{[A-Za-z_][A-Za-z_0-9]*\}", piece):
                    text += name_text(piece[1:-1])
                else:
                    text += piece
    return text, sorted(set(unknown))


def extract(source, fmt, log=lambda line: None):
    constants = Constants()
    constants.collect(ast.parse(source))
    out, missing = {"version": 1, "format": fmt}, []
    for name, piece in PIECES.items():
        found = []
        for line, parts, from_f_string in constants.templates:
            plain = "".join(p for p in parts if isinstance(p, str))
            if not all(mark in plain for mark in piece["marks"]):
                continue
            text, unknown = filled(parts, from_f_string, constants.values, piece["placeholder"])
            if len(unknown) == 1 and text.count("{" + piece["placeholder"] + "}") == 1:
                found.append((len(text), line, text))
        if found:
            _, line, text = max(found)
            out[name] = text
            log(f"{name}: line {line}, {len(text)} characters")
        elif fmt in piece["formats"]:
            missing.append(name)
    if constants.effort_numbers:
        out["efforts"] = constants.effort_numbers
        log(f"efforts: {constants.effort_numbers}")
    if constants.effort_texts and fmt == "v4":
        out["effort_texts"] = constants.effort_texts
        log(f"effort_texts: {', '.join(constants.effort_texts)}")
    names = set(out.get("efforts", {})) | set(out.get("effort_texts", {}))
    chosen = constants.default_effort
    if chosen and (chosen in names or chosen.isdigit()):
        out["default_effort"] = chosen
        log(f"default_effort: {chosen}")
    elif "high" in out.get("efforts", {}):
        out["default_effort"] = "high"
        log("default_effort: no default was found; 'high' is taken")
    elif "low" in out.get("effort_texts", {}):
        out["default_effort"] = "low"
        log("default_effort: no default was found; 'low' is taken")
    elif fmt == "v41":
        missing.append("default_effort")
    return out, missing


SELF_TEST = '''
bos_token: str = "<BOS>"
dsml_token: str = "｜DSML｜"
TOOLS_TEMPLATE = """## Tools
Write <{dsml_token} calls> and JSON like {{"a": 1}}.
{tool_schemas}
"""
response_format_template = "## Response Format:\\n\\nFollow:\\n{schema}"
EFFORTS = {"low": 50, "high": 75, "max": 100}

def effort_line(n):
    """Reasoning Effort explained: not a template, there is no hole in it."""
    return f"Reasoning Effort: {int(n)} (1 to 100).\\n\\n"

def encode_messages(messages, thinking_mode, reasoning_effort="high"):
    return "<tool_result>{content}</tool_result>"
'''


def self_test():
    got, missing = extract(SELF_TEST, "v41")
    want = {
        "version": 1, "format": "v41",
        "tools_section": "## Tools\nWrite <｜DSML｜ calls> and JSON like {\"a\": 1}.\n{tool_schemas}\n",
        "response_format_section": "## Response Format:\n\nFollow:\n{schema}",
        "effort_line": "Reasoning Effort: {effort} (1 to 100).\n\n",
        "tool_result": "<tool_result>{content}</tool_result>",
        "efforts": {"low": 50, "high": 75, "max": 100}, "default_effort": "high"}
    assert got == want, got
    assert missing == [], missing
    _, missing = extract("x = 1", "v41")
    assert missing == ["tools_section", "response_format_section", "effort_line", "default_effort"], missing
    got, _ = extract('HARD = "Think hard."\nPREFIX = {"low": "", "high": HARD, "max": "Harder."}', "v4")
    assert got["effort_texts"] == {"low": "", "high": "Think hard.", "max": "Harder."} and got["default_effort"] == "low", got
    print("ok")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("encoder", help="the Python file, or the folder that holds it")
    p.add_argument("-o", "--output", help="where to write (default: chat_wording.json beside the folder)")
    p.add_argument("--format", choices=["v41", "v4"], default="v41")
    p.add_argument("--set", action="append", default=[], metavar="NAME=TEXT", help="a piece of wording by hand; \\n is a line break")
    a = p.parse_args()
    path = a.encoder
    if os.path.isdir(path):
        files = sorted(f for f in os.listdir(path) if f.startswith("encoding") and f.endswith(".py"))
        if len(files) != 1:
            sys.exit(f"{path} holds {len(files)} files named encoding*.py; name the one to read")
        path = os.path.join(path, files[0])
    with open(path, encoding="utf-8") as f:
        out, missing = extract(f.read(), a.format, print)
    for item in a.set:
        name, _, text = item.partition("=")
        if name not in (*PIECES, "default_effort"):
            sys.exit(f"--set {name}: unknown; use one of {', '.join((*PIECES, 'default_effort'))}")
        out[name] = text.replace("\\n", "\n")
        missing = [m for m in missing if m != name]
    if missing:
        sys.exit(f"not found in {path}: {', '.join(missing)}; give them with --set NAME=TEXT (empty text = the format has none)")
    target = a.output or os.path.join(os.path.dirname(os.path.abspath(path)), "..", "chat_wording.json")
    with open(target, "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=2)
        f.write("\n")
    print(f"written: {os.path.normpath(target)}")


if __name__ == "__main__":
    main()
