#!/usr/bin/env python3
"""Prints the size of the library and of the crates around it, and figures about the prose of the whole repository.

usage: figures.py [--prose-list] [ROOT]

ROOT is the root of the repository; by default the one that this file is in. With --prose-list, it prints instead each
counted word and each headless sentence as `file:line: text`.

How each figure about size is counted:

files           Files that are not entirely test code. Test code is: a file named `tests.rs`, a file below a folder
                `tests`, a module declared under `#[cfg(test)]` or `#[cfg(all(test, ..))]`, and the modules below it.
lines           Lines of those files that are neither blank nor comments, outside of items under `#[cfg(test)]`.
                They are counted in a copy that rustfmt has formatted with a width of 120 characters, whatever the
                format of the sources; a line that is still longer counts once per 120 characters begun.
public items    Structs, enums, unions, traits, functions, constants, statics, type aliases and exported macros that another
                crate can name: the item and all modules on the path to it are `pub`, or a `pub use` re-exports it. A
                re-export of another crate or of its item counts too. An item with two paths counts once. Not counted:
                modules, fields, variants and items under `#[doc(hidden)]`. All features count as enabled.
public methods  `pub fn` in `impl` blocks of public structs, enums, unions and type aliases.
trait methods   Functions that public traits declare. Implementations of traits are not counted.
names twice     Names of structs, enums, unions, traits and type aliases that more than one module of the crate defines
                outside of test code, also within functions. Associated types are not counted.
largest file    The file with the most lines, counted as above.
largest fn      The function with the most lines between its braces, counted as above.

Macros are not expanded. A binary (`main.rs`) has no public items.

How each figure about prose is counted, per top-level folder:

text            The files that git tracks, and new ones that it does not ignore, with a name or an ending in PROSE_FILES.
                Generated files are left out: lock files, `dist`, `openapi.json`. In a Rust file only comments and string
                literals count, in any other file everything, also names in code.
vague words     How often each word of VAGUE occurs: as a whole word, in upper or lower case.
headless        Doc comments (`///`, `//!`, `/** */`) that begin with "What" and a lowercase word, and whose first sentence
                is not a question: it ends in a period, an exclamation mark or a colon, or with the paragraph.
field's words   How many files contain each term of FIELD at least once, in upper or lower case. Between two words of a term
                there may be blanks, a hyphen or a line break, also in a comment.

VAGUE and FIELD write each term in two parts, which Python joins, so that this file does not count its own lists.
"""

import argparse
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

CRATES = ["guard", "server", "client-sdk/rust", "openapi", "patterns"]
WIDTH = 120
FORMAT = ["rustfmt", "--edition", "2024", "--config", f"max_width={WIDTH},use_small_heuristics=Max"]

SKIPPED = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*)
      | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes))
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<char>'(?:\\(?:u\{[0-9a-fA-F_]+\}|x[0-9a-fA-F]{2}|.)|[^\\'\n])')""",
    re.X | re.S,
)
ATTRIBUTE = re.compile(r"\s*#!?\[")
KINDS = "mod|struct|enum|union|trait|fn|const|static|type|impl|use|macro_rules!|extern"
ITEM = re.compile(
    r"\s*(?P<vis>pub(?:\s*\([^)]*\))?\s+)?"
    r"(?:(?:default|async|unsafe|const(?=\s+(?:async|unsafe|extern|fn)\b)|extern\s+\"+(?=\s*fn\b)|auto)\s+)*"
    rf"(?P<kind>{KINDS})(?!\w)\s*(?P<name>(?:r\#)?[A-Za-z_]\w*)?"
)
TYPES = ("struct", "enum", "union", "trait", "type")
NAMED = (*TYPES, "mod", "fn", "const", "static")
PROSE_FILES = (
    *(".md", ".rs", ".html", ".js", ".mjs", ".ts", ".css", ".svg", ".sh", ".py", ".toml", ".yaml", ".yml"),
    *(".conf", ".cfg", ".lua", ".c", ".service", "Caddyfile", "Dockerfile", "Makefile", "grafana/onceward.json"),
)
GENERATED = re.compile(r"(^|/)dist/|\.lock$|package-lock\.json$|openapi\.json$")
VAGUE = ("who" "ever", "no" "body", "some" "body", "an" "ew")
FIELD = (
    *("back" "off", "graceful " "shutdown", "cancel " "safety", "in " "flight"),
    *("connection " "pool", "fail" "over", "evic" "tion"),
)
HEADLESS = re.compile(r"What [a-z]")
TEST = re.compile(r"#!?\[\s*cfg\s*\(\s*(?:test\s*\)|all\s*\((?:[^()]|\([^()]*\))*?(?<![\w(])test\b|all\s*\(\s*test\b)")


def skipped(text):
    """The comments and literals of Rust code: each as its match and the position after it."""
    at = 0
    while match := SKIPPED.search(text, at):
        at = match.end()
        if match["block"]:
            depth = 1
            while depth and (edge := re.compile(r"/\*|\*/").search(text, at)):
                depth += 1 if edge[0] == "/*" else -1
                at = edge.end()
            at = at if not depth else len(text)
        yield match, at


def without_comments(text):
    """The code with the same line breaks: comments become blanks, the contents of literals become quotes."""
    out, at = [], 0
    for match, end in skipped(text):
        blank = " " if match["line"] or match["block"] else '"'
        out += [text[at : match.start()], re.sub(r"\S", blank, text[match.start() : end])]
        at = end
    return "".join(out) + text[at:]


def only_prose(text):
    """The comments and literals with the same line breaks: code becomes blanks."""
    out, at = [], 0
    for match, end in skipped(text):
        out += [re.sub(r"\S", " ", text[at : match.start()]), text[match.start() : end]]
        at = end
    return "".join(out) + re.sub(r"\S", " ", text[at:])


def doc_comments(text):
    """Each doc comment as the number of its first line and its text without markers."""
    for block in re.finditer(r"/\*\*(?!/)(.*?)\*/", text, re.S):
        lines = [re.sub(r"^\s*\* ?", "", line) for line in block[1].splitlines()]
        yield text.count("\n", 0, block.start()) + 1, "\n".join(lines).strip()
    lines = re.compile(r"(?m)^[ \t]*(//[/!])(?!/).*\n(?:[ \t]*\1(?!/).*\n)*")
    for block in lines.finditer(text + "\n"):
        comment = re.sub(r"(?m)^[ \t]*//[/!] ?", "", block[0])
        yield text.count("\n", 0, block.start()) + 1, comment.strip()


def is_headless(comment):
    sentence = re.match(r"[^\n]*?(?:\n[^\n]+?)*?(?:[.!?:](?=\s|$)|\n\n|\Z)", comment)[0]
    return bool(HEADLESS.match(comment)) and not sentence.endswith("?")


class Prose:
    """What is counted in the prose of one file."""

    def __init__(self, name, text):
        self.name = name
        self.folder = name.split("/")[0] if "/" in name else "(root)"
        is_rust = name.endswith(".rs")
        text = only_prose(text) if is_rust else text
        lines = text.splitlines()
        self.found = []  # (line, what, text of the line)
        for word in VAGUE:
            for match in re.finditer(rf"\b{word}\b", text, re.I):
                line = text.count("\n", 0, match.start()) + 1
                self.found.append((line, word, lines[line - 1].strip()))
        if is_rust or name.endswith((".js", ".mjs", ".ts")):
            for line, comment in doc_comments(text):
                if is_headless(comment):
                    self.found.append((line, "headless", comment.splitlines()[0]))
        self.terms = {term for term in FIELD if re.search(r"\b" + term.replace(" ", r"[\s/*#!-]+"), text, re.I)}


def prose(root):
    git = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(git, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for name in sorted(set(names)):
        if name.endswith(PROSE_FILES) and not GENERATED.search(name) and (root / name).is_file():
            yield Prose(name, (root / name).read_text())


def print_prose(root):
    files = list(prose(root))
    folders = sorted({file.folder for file in files})
    columns = [*VAGUE, "headless"]
    count = lambda part, what: sum(found[1] == what for file in part for found in file.found)
    has = lambda part, term: sum(term in file.terms for file in part)
    parts = [(folder, [file for file in files if file.folder == folder]) for folder in folders] + [("total", files)]
    vague = [["vague words", *columns, "sum"]]
    field = [["files with the field's words", *FIELD, "files"]]
    for folder, part in parts:
        counts = [count(part, what) for what in columns]
        vague.append([folder, *map(str, [*counts, sum(counts)])])
        field.append([folder, *(str(has(part, term)) for term in FIELD), str(len(part))])
    for table in (vague, field):
        print()
        print_table(table, len(table[0]) - 1)


def print_prose_list(root):
    for file in prose(root):
        for line, what, text in sorted(file.found):
            print(f"{file.name}:{line}: {what}: {text}")


def print_table(table, numbers):
    """Prints rows in columns; as many columns after the first as there are numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        cells = [c.rjust(w) if 0 < i <= numbers else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def closing(code, at):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for edge in re.compile(r"[(\[{}\])]").finditer(code, at):
        depth += 1 if edge[0] in "([{" else -1
        if depth == 0:
            return edge.end()
    return len(code)


def attributes(code, at):
    """The attributes at `at` and the position after them."""
    start = at
    while match := ATTRIBUTE.match(code, at):
        at = closing(code, match.end() - 1)
    return code[start:at], at


def item_end(code, at, kind):
    """Where the item at `at` has its braces, if it has any, and where it ends."""
    while edge := re.compile(r"[;({\[]").search(code, at):
        if edge[0] == ";":
            return None, edge.end()
        at = closing(code, edge.start())
        if edge[0] == "{" and kind not in ("use", "const", "static", "type"):
            return (edge.start(), at), at
        if edge[0] == "(" and kind == "macro_rules!":
            return (edge.start(), at), at
    return None, len(code)


def without_tests(code):
    """The code without the items, statements, fields and arms that are compiled for tests only."""
    at = 0
    while match := TEST.search(code, at):
        start = match.start()
        if code[start + 1] == "!":
            return re.sub(r"\S", " ", code)
        _, end = attributes(code, start)
        item = ITEM.match(code, end)
        if item:
            _, end = item_end(code, item.end("kind"), item["kind"])
        else:
            is_statement = re.match(r"\s*let\b", code[end:])
            edge_of = re.compile(r"[;({\[}\])]" if is_statement else r"[,;<({\[}\])]")
            while edge := edge_of.search(code, end):
                if edge[0] in ",;":
                    end = edge.end()
                    break
                if edge[0] in "}])":
                    end = edge.start()
                    break
                end = edge.end() if edge[0] == "<" else closing(code, edge.start())
        code = code[:start] + re.sub(r"\S", " ", code[start:end]) + code[end:]
        at = end
    return code


def count_lines(code):
    return sum(-(-len(line.rstrip()) // WIDTH) for line in code.splitlines() if line.strip())


def items(code, at, end):
    """The items between two positions: kind, name, visibility, attributes, header and braces."""
    while at < end:
        start, (marks, at) = at, attributes(code, at)
        match = ITEM.match(code, at, end)
        if not match:
            # A macro call or the like: go on behind it.
            edge = re.compile(r"[;({\[]").search(code, at, end)
            if not edge:
                return
            at = edge.end() if edge[0] == ";" else closing(code, edge.start())
            continue
        braces, at = item_end(code, match.end("kind"), match["kind"])
        head = code[match.start("kind") : braces[0] if braces else at]
        name = match["name"]
        if match["kind"] == "macro_rules!":
            name = re.match(r"macro_rules!\s*(\w+)", code[match.start("kind") :])[1]
        yield {
            "kind": match["kind"],
            "name": name,
            "public": (match["vis"] or "").strip() == "pub",
            "marks": marks,
            "head": head,
            "braces": braces,
            "start": start,
        }


def imports(tree, path=()):
    """Each path of a `use` tree with the name that it gets, `*` for all."""
    tree = tree.strip()
    if brace := re.match(r"((?:\s*[\w#]+\s*::)*)\s*\{(.*)\}$", tree, re.S):
        path = path + tuple(re.findall(r"[\w#]+", brace[1]))
        depth, part = 0, ""
        for letter in brace[2] + ",":
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if letter == "," and not depth:
                if part.strip():
                    yield from imports(part, path)
                part = ""
            else:
                part += letter
        return
    whole, _, alias = tree.partition(" as ")
    path = path + tuple(re.findall(r"[\w#]+|\*", whole))
    if path[-1] == "self":
        path = path[:-1]
    if path:
        yield path, alias.strip() or path[-1]


def self_type(head):
    """The name of the type in the header of an inherent `impl`; None for the implementation of a trait."""
    head = head[len("impl") :].strip()
    if head.startswith("<"):
        depth = 0
        for at, letter in enumerate(head):
            depth += (letter == "<") - (letter == ">" and head[at - 1] != "-")
            if not depth:
                break
        head = head[at + 1 :]
    head = re.split(r"\bwhere\b", head)[0]
    if re.search(r"\bfor\b(?!\s*<)", head):
        return None
    path = re.match(r"\s*([\w:]+)", head)
    return tuple(path[1].split("::")) if path else None


class Module:
    def __init__(self, path, file):
        self.path, self.file = path, file
        self.defined = {}  # name -> (kind, is public, is hidden)
        self.macros = []
        self.uses = {}  # name -> (path, is public)
        self.globs = []
        self.impls = []  # (path of the type, public methods)
        self.traits = {}  # name -> number of functions
        self.types = []
        self.functions = []  # (name, lines)


class Crate:
    def __init__(self, folder):
        self.folder = folder
        self.code, self.modules, self.tests = {}, {}, set()
        for root in ("main.rs", "lib.rs"):
            if (folder / root).exists():
                self.read(folder / root, (), folder)
                self.has_library = root == "lib.rs"
        for file in sorted(folder.rglob("*.rs")):
            if file not in self.code and not self.is_test(file):
                self.code[file] = without_tests(without_comments(file.read_text()))

    def is_test(self, file):
        below = file.relative_to(self.folder)
        return below.name == "tests.rs" or "tests" in below.parts[:-1] or file in self.tests

    def read(self, file, path, below):
        whole = without_comments(file.read_text())
        code = self.code[file] = without_tests(whole)
        # A module that only the text with tests declares is test code with all that lies below it.
        declared = re.compile(r"(?m)^\s*(?:pub\s*(?:\([^)]*\)\s*)?)?mod\s+(\w+)\s*;")
        for name in set(declared.findall(whole)) - set(declared.findall(code)):
            self.tests |= {below / f"{name}.rs", *(below / name).rglob("*.rs")}
        self.walk(file, code, 0, len(code), path, below)

    def walk(self, file, code, at, end, path, below):
        module = self.modules[path] = Module(path, file)
        for item in items(code, at, end):
            kind, name, braces = item["kind"], item["name"], item["braces"]
            if kind == "use":
                for target, alias in imports(item["head"][len("use") :].strip().rstrip(";")):
                    if alias == "*":
                        module.globs.append((target[:-1], item["public"]))
                    else:
                        module.uses[alias] = (target, item["public"])
                continue
            if kind == "macro_rules!":
                if "macro_export" in item["marks"]:
                    module.macros.append(name)
                continue
            is_hidden = bool(re.search(r"doc\s*\(\s*hidden", item["marks"]))
            if kind in NAMED and name and name != "_":
                module.defined[name] = (kind, item["public"], is_hidden)
            if kind in TYPES:
                module.types.append(name)
            if kind == "mod":
                if braces:
                    self.walk(file, code, braces[0] + 1, braces[1] - 1, (*path, name), below / name)
                elif found := next((f for f in (below / f"{name}.rs", below / name / "mod.rs") if f.exists()), None):
                    if not self.is_test(found):
                        self.read(found, (*path, name), below / name)
            elif kind == "fn" and braces:
                self.function(module, code, name, braces)
            elif kind in ("impl", "trait") and braces:
                public = 0
                for inner in items(code, braces[0] + 1, braces[1] - 1):
                    if inner["kind"] != "fn":
                        continue
                    if not re.search(r"doc\s*\(\s*hidden", inner["marks"]):
                        public += inner["public"] or kind == "trait"
                    if inner["braces"]:
                        self.function(module, code, inner["name"], inner["braces"])
                if kind == "trait":
                    module.traits[name] = public
                elif target := self_type(item["head"]):
                    module.impls.append((target, public))

    def function(self, module, code, name, braces):
        body = code[braces[0] + 1 : braces[1] - 1]
        module.functions.append((count_lines(body), name))
        local = re.compile(r"(?m)^\s*(?:pub\s*(?:\([^)]*\)\s*)?)?(?:struct|enum|union|trait)\s+(\w+)")
        module.types += local.findall(body)

    def resolve(self, path, name, seen=frozenset()):
        """The module and the name under which an item is defined; None for another crate's."""
        module = self.modules.get(path)
        if not module or (path, name) in seen:
            return None
        if name in module.defined:
            return path, name
        seen = seen | {(path, name)}
        if name in module.uses:
            return self.follow(path, module.uses[name][0], seen)
        for target, _ in module.globs:
            if (inner := self.absolute(path, target)) is not None and (found := self.resolve(inner, name, seen)):
                return found
        return None

    def follow(self, path, target, seen=frozenset()):
        head, last = target[:-1], target[-1]
        if (inner := self.absolute(path, head, seen)) is None:
            return None
        return self.resolve(inner, last, seen)

    def absolute(self, path, target, seen=frozenset()):
        """The path from the root to the module that `target` means within `path`."""
        for place, name in enumerate(target):
            if name == "crate" and place == 0:
                path = ()
            elif name == "super":
                path = path[:-1]
            elif name != "self":
                if (*path, name) not in self.modules:
                    found = self.resolve(path, name, seen)
                    if not found or (*found[0], found[1]) not in self.modules:
                        return None
                    path, name = found
                path = (*path, name)
        return path

    def public(self):
        """All items that another crate can name, each as the module and the name of its definition."""
        found, looked = set(), set()

        def add(path, name):
            kind, _, is_hidden = self.modules[path].defined[name]
            if is_hidden:
                return
            if kind == "mod":
                look((*path, name))
            else:
                found.add((path, name))

        def look(path):
            if path in looked or path not in self.modules:
                return
            looked.add(path)
            module = self.modules[path]
            for name, (_, is_public, _) in module.defined.items():
                if is_public:
                    add(path, name)
            for target, is_public in module.uses.values():
                if not is_public:
                    continue
                if item := self.follow(path, target):
                    add(*item)
                elif target[0] not in ("crate", "self", "super", *module.defined):
                    found.add((("another crate", *target[:-1]), target[-1]))
            for target, is_public in module.globs:
                if is_public and (inner := self.absolute(path, target)) is not None:
                    look(inner)
            found.update((path, name) for name in module.macros)

        if self.has_library:
            look(())
        return found

    def figures(self):
        public = self.public()
        methods = 0
        of_traits = sum(self.modules[path].traits.get(name, 0) for path, name in public if path in self.modules)
        for path, module in self.modules.items():
            for target, count in module.impls:
                if self.follow(path, target) in public:
                    methods += count
        defined = defaultdict(set)
        for path, module in self.modules.items():
            for name in module.types:
                defined[name].add(path)
        lines = {file: count_lines(code) for file, code in self.code.items()}
        largest = max(self.code, key=lambda file: (lines[file], str(file)))
        function = max(
            ((count, name, module.file) for module in self.modules.values() for count, name in module.functions),
            key=lambda found: (found[0], str(found[2])),
        )
        return {
            "files": len(self.code),
            "lines": sum(lines.values()),
            "public items": len(public),
            "public methods": methods,
            "trait methods": of_traits,
            "largest file": f"{lines[largest]} {largest.relative_to(self.folder)}",
            "largest fn": f"{function[0]} {function[1]} ({function[2].relative_to(self.folder)})",
        }, {name: len(paths) for name, paths in defined.items() if len(paths) > 1}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    options.add_argument("--prose-list", action="store_true", help="list each vague word and headless sentence instead")
    chosen = options.parse_args()
    if chosen.prose_list:
        print_prose_list(chosen.root)
    else:
        print_size(chosen.root)
        print_prose(chosen.root)


def print_size(root):
    rows, repeated = [], {}
    for crate in CRATES:
        if not (folder := root / crate / "src").is_dir():
            continue
        with TemporaryDirectory() as copy:
            formatted = Path(copy) / "src"
            shutil.copytree(folder, formatted)
            # Each from its input, so that rustfmt does not follow the modules of a file, which may live outside of `src`.
            for source in formatted.rglob("*.rs"):
                text = subprocess.run(FORMAT, input=source.read_bytes(), stdout=subprocess.PIPE, check=True).stdout
                source.write_bytes(text)
            figures, repeated[crate] = Crate(formatted).figures()
        row = {"crate": f"{crate}/src", **figures}
        row["names twice"] = len(repeated[crate])
        rows.append(row)
    numbers = ["files", "lines", "public items", "public methods", "trait methods", "names twice"]
    columns = ["crate", *numbers, "largest file", "largest fn"]
    table = [columns, *([f"{row[c]:,}" if isinstance(row[c], int) else row[c] for c in columns] for row in rows)]
    print_table(table, len(numbers))
    for crate, names in repeated.items():
        if names:
            print(f"\nNames that more than one module of {crate}/src defines, and how many do:")
            listed = ", ".join(f"{name} {count}" for name, count in sorted(names.items()))
            print(re.sub(r"(.{1,116})(?:, |$)", r"  \1,\n", listed).rstrip(",\n"))


if __name__ == "__main__":
    main()
