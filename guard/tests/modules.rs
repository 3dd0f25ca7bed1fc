//! Dependencies between the top-level modules of the library point one way: no cycles, and no module uses a module of a
//! higher layer.
//!
//! The test reads the sources: `use` declarations and inline paths that start with `crate`, `self` or `super`. Comments,
//! literals and test code do not count. Test code is a file `tests.rs`, a file below a folder `tests`, and every item under
//! `#[cfg(test)]` or `#[cfg(doctest)]`. `lib.rs` declares and re-exports everything, so it is no module of the graph; a path to
//! one of its re-exports (`crate::Guard`) counts as a path to the module that it comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

/// The layers from the bottom up, each with its modules. A module uses modules of its own layer or of a lower one.
const LAYERS: &[Layer] = &[
    Layer {
        name: "base",
        modules: &[
            "backoff",
            "clock",
            "digest",
            "metrics",
            "random",
            "runtime",
            "signals",
            "thread_number",
            "warning_limit",
        ],
    },
    Layer {
        name: "values",
        modules: &[
            "attempt",
            "binding",
            "effect",
            "epoch",
            "failure",
            "fingerprint",
            "intent",
            "key",
            "language",
            "mode",
            "policy",
            "record",
            "rejection",
            "reply",
            "run_id",
            "settled",
            "snapshot",
            "subject",
            "ticket",
            "token",
        ],
    },
    Layer { name: "store", modules: &["store"] },
    Layer {
        name: "engine",
        modules: &[
            "audit",
            "claim",
            "engine",
            "open_claims",
            "pass",
            "redemption",
            "renewal",
            "run",
            "shared_secret",
            "shutdown",
            "transaction",
            "verdict",
            "waiters",
        ],
    },
    Layer { name: "guard", modules: &["guard", "testing"] },
    Layer { name: "http", modules: &["http"] },
    Layer { name: "adapters", modules: &["actix", "axum", "tower"] },
    Layer { name: "fuzzing", modules: &["fuzzing"] },
    Layer { name: "documentation", modules: &["guide"] },
];

/// The features of the adapters, which are also the names of their modules.
const ADAPTERS: [&str; 3] = ["actix", "axum", "tower"];

struct Layer {
    name: &'static str,
    modules: &'static [&'static str],
}

/// A file: its path below `src`, with `/` between the parts, and its text.
type Source = (String, String);

#[test]
fn modules_point_one_way() {
    let problems = graph_problems(&library(), LAYERS);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn guard_has_methods_only_in_its_own_module() {
    let found = guard_impls_elsewhere(&library());
    assert!(found.is_empty(), "move these `impl Guard` blocks below guard/src/guard:\n{}", found.join("\n"));
}

#[test]
fn adapter_features_are_used_only_in_adapters() {
    let found = adapter_features_elsewhere(&library());
    assert!(found.is_empty(), "the core of the library depends on the feature of an adapter:\n{}", found.join("\n"));
}

/// Reads the sources of the library.
fn library() -> Vec<Source> {
    fn read(folder: &Path, below: &str, sources: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry of a folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a file name in UTF-8");
            if path.is_dir() {
                read(&path, &format!("{below}{name}/"), sources);
            } else if name.ends_with(".rs") {
                sources.push((format!("{below}{name}"), fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    sources.sort();
    assert!(sources.iter().any(|(path, _)| path == "lib.rs"), "the sources of the library");
    sources
}

/// Returns a sentence for each unlisted module, each edge that goes up, and the shortest cycle.
fn graph_problems(sources: &[Source], layers: &[Layer]) -> Vec<String> {
    let files = production(sources);
    let edges = edges(&files);
    let mut problems = unlisted_modules(&files, &edges, layers);
    problems.extend(upward_edges(&edges, layers));
    problems.extend(shortest_cycle(&edges));
    problems
}

fn unlisted_modules(files: &[File], edges: &[Edge], layers: &[Layer]) -> Vec<String> {
    let declared =
        files.iter().filter_map(|file| Some((file.module.first()?.clone(), format!("guard/src/{}", file.path))));
    let used = edges.iter().map(|edge| (edge.to.clone(), edge.place()));
    let mut first_place = BTreeMap::new();
    for (module, place) in declared.chain(used) {
        if rank(&module, layers).is_none() {
            first_place.entry(module).or_insert(place);
        }
    }
    let sentence = |(module, place): (String, String)| match module.as_str() {
        "*" => format!("{place} imports everything at the root of the crate: name the modules instead"),
        _ => format!("`{module}` ({place}) is in no layer: add it to LAYERS in guard/tests/modules.rs"),
    };
    first_place.into_iter().map(sentence).collect()
}

fn upward_edges(edges: &[Edge], layers: &[Layer]) -> Vec<String> {
    let describe = |edge: &Edge| {
        let (from, to) = (rank(&edge.from, layers)?, rank(&edge.to, layers)?);
        let (lower, upper) = (layers[from].name, layers[to].name);
        let Edge { from: user, to: used, .. } = edge;
        (from < to)
            .then(|| format!("{}: `{user}` ({lower}) uses `{used}` ({upper}), which is a higher layer", edge.place()))
    };
    edges.iter().filter_map(describe).collect()
}

fn rank(module: &str, layers: &[Layer]) -> Option<usize> {
    layers.iter().position(|layer| layer.modules.contains(&module))
}

/// Describes the shortest cycle, if there is one, with a place for each of its edges.
fn shortest_cycle(edges: &[Edge]) -> Option<String> {
    let mut graph: BTreeMap<&str, BTreeMap<&str, &Edge>> = BTreeMap::new();
    for edge in edges {
        graph.entry(&edge.from).or_default().entry(&edge.to).or_insert(edge);
    }
    let cycle = graph.keys().filter_map(|start| cycle_through(start, &graph)).min_by_key(Vec::len)?;
    let steps = cycle.iter().map(|edge| format!("\n  `{}` uses `{}` at {}", edge.from, edge.to, edge.place()));
    Some(format!("the modules form a cycle, of which this is the shortest:{}", steps.collect::<String>()))
}

/// Finds the shortest cycle through a module.
fn cycle_through<'a>(start: &str, graph: &BTreeMap<&str, BTreeMap<&str, &'a Edge>>) -> Option<Vec<&'a Edge>> {
    let mut arrived: BTreeMap<&str, &Edge> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for edge in graph.get(module).into_iter().flat_map(BTreeMap::values).copied() {
            if !arrived.contains_key(edge.to.as_str()) {
                arrived.insert(&edge.to, edge);
                queue.push_back(&edge.to);
            }
        }
    }
    let mut cycle = vec![*arrived.get(start)?];
    while cycle[cycle.len() - 1].from != start {
        cycle.push(arrived[cycle[cycle.len() - 1].from.as_str()]);
    }
    cycle.reverse();
    Some(cycle)
}

/// Finds `impl Guard` blocks outside of `guard.rs` and `guard/`. Implementations of traits may be anywhere.
fn guard_impls_elsewhere(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in production(sources).iter().filter(|file| file.top_level() != Some("guard")) {
        for at in positions(&file.tokens, &["impl"]) {
            if self_type(&file.tokens[at + 1..]) == Some("Guard") {
                found.push(file.place(at));
            }
        }
    }
    found
}

/// Returns the name of the type of an inherent `impl`, from what follows the keyword.
fn self_type<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0;
    let mut name = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            ">" if !at.checked_sub(1).is_some_and(|before| matches!(tokens[before].text, "-" | "=")) => depth -= 1,
            _ if depth > 0 => {}
            "{" | "where" => return name,
            "for" => return None,
            "::" => {}
            text if is_name(text) => name = Some(text),
            _ => return None,
        }
    }
    None
}

/// Finds the features of adapters outside of the adapters, except on the modules and re-exports of `lib.rs`.
fn adapter_features_elsewhere(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in production(sources) {
        if file.top_level().is_some_and(|module| ADAPTERS.contains(&module)) {
            continue;
        }
        for adapter in ADAPTERS {
            for at in positions(&file.tokens, &["feature", "=", &format!("\"{adapter}\"")]) {
                if file.path != "lib.rs" || !is_on_module_or_use(&file.tokens, at) {
                    found.push(format!("{}: feature `{adapter}`", file.place(at)));
                }
            }
        }
    }
    found
}

/// Returns true if the attribute around a position belongs to `mod name;` or to a `use`.
fn is_on_module_or_use(tokens: &[Token], at: usize) -> bool {
    let Some(start) = tokens[..at].iter().rposition(|token| token.text == "#") else { return false };
    let item = after_visibility(tokens, after_attributes(tokens, start));
    let text = |at: usize| tokens.get(at).map(|token| token.text);
    text(item) == Some("use") || text(item) == Some("mod") && text(item + 2) == Some(";")
}

/// The place where a module uses another.
#[derive(Debug)]
struct Edge {
    from: String,
    to: String,
    path: String,
    line: usize,
}

impl Edge {
    fn place(&self) -> String {
        format!("guard/src/{}:{}", self.path, self.line)
    }
}

/// A file of the library without comments and test code.
struct File<'a> {
    path: &'a str,
    /// The path of its module; empty for `lib.rs`.
    module: Vec<String>,
    tokens: Vec<Token<'a>>,
}

impl File<'_> {
    fn top_level(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    fn place(&self, at: usize) -> String {
        format!("guard/src/{}:{}", self.path, self.tokens[at].line)
    }
}

/// Reads the files that are not test code.
fn production(sources: &[Source]) -> Vec<File<'_>> {
    let mut files = Vec::new();
    let mut test_modules = BTreeSet::new();
    for (path, text) in sources {
        let module = module_of(path);
        let (tokens, declared) = without_tests(&tokens(text));
        test_modules.extend(declared.iter().map(|name| [&module[..], &[(*name).to_owned()]].concat()));
        files.push(File { path, module, tokens });
    }
    files.retain(|file| {
        let is_test = file.module.iter().any(|name| name == "tests");
        !is_test && !(1..=file.module.len()).any(|depth| test_modules.contains(&file.module[..depth]))
    });
    files
}

fn module_of(path: &str) -> Vec<String> {
    let mut module: Vec<_> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    module.pop_if(|name| name == "mod");
    if module == ["lib"] { Vec::new() } else { module }
}

/// Collects what the modules use of each other, each place once.
fn edges(files: &[File]) -> Vec<Edge> {
    let re_exports = re_exports(files);
    let mut edges = Vec::new();
    for file in files {
        let Some(from) = file.top_level() else { continue };
        for (to, line) in names_at_root(&file.tokens, &file.module) {
            let to = match re_exports.get(to) {
                Some(Some(module)) => module,
                Some(None) => continue,
                None => to,
            };
            let (from, to, path) = (from.to_owned(), to.to_owned(), file.path.to_owned());
            if from != to && !edges.iter().any(|edge: &Edge| edge.to == to && edge.path == path && edge.line == line) {
                edges.push(Edge { from, to, path, line });
            }
        }
    }
    edges
}

/// Maps each name that `lib.rs` re-exports to its module, or to `None` if it comes from another crate.
fn re_exports<'a>(files: &[File<'a>]) -> BTreeMap<&'a str, Option<&'a str>> {
    let mut names = BTreeMap::new();
    let Some(root) = files.iter().find(|file| file.module.is_empty()) else { return names };
    let modules: BTreeSet<_> =
        positions(&root.tokens, &["mod"]).into_iter().map(|at| root.tokens[at + 1].text).collect();
    for at in positions(&root.tokens, &["use"]) {
        let mut paths = Vec::new();
        read_paths(&root.tokens, at + 1, &mut Vec::new(), &mut paths);
        for UsePath { segments, alias, .. } in paths {
            let from = segments.iter().find(|name| !matches!(**name, "crate" | "self")).copied();
            let name = alias.or(segments.iter().rfind(|name| **name != "self").copied());
            if let (Some(from), Some(name)) = (from, name) {
                names.insert(name, modules.contains(from).then_some(from));
            }
        }
    }
    // A module and a re-export may share a name, such as a function in a module of its name.
    names.retain(|name, _| !modules.contains(name));
    names
}

/// Collects the names that paths select at the root of the crate, with their lines.
fn names_at_root<'a>(tokens: &[Token<'a>], module: &[String]) -> Vec<(&'a str, usize)> {
    let mut names = Vec::new();
    // The inline modules around the position, each with the depth of its braces.
    let mut inline: Vec<usize> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text {
            "{" => {
                if at >= 2 && tokens[at - 2].text == "mod" {
                    inline.push(depth);
                }
                depth += 1;
            }
            "}" => {
                depth -= 1;
                inline.pop_if(|opened| *opened == depth);
            }
            "crate" | "self" | "super" if tokens.get(at + 1).is_some_and(|next| next.text == "::") => {
                let mut paths = Vec::new();
                at = read_paths(tokens, at, &mut Vec::new(), &mut paths);
                let depth = module.len() + inline.len();
                names.extend(paths.iter().filter_map(|path| Some((name_at_root(&path.segments, depth)?, path.line))));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    names
}

/// Returns the name that a path selects at the root of the crate, seen from a module at `depth`.
fn name_at_root<'a>(segments: &[&'a str], mut depth: usize) -> Option<&'a str> {
    for segment in segments {
        match *segment {
            "crate" => depth = 0,
            "self" => {}
            "super" => depth = depth.saturating_sub(1),
            name => return (depth == 0).then_some(name),
        }
    }
    None
}

/// One path of a `use` tree or of an expression.
struct UsePath<'a> {
    segments: Vec<&'a str>,
    alias: Option<&'a str>,
    /// The line of the first name after `crate`, `self` and `super`.
    line: usize,
}

/// Reads the path or the tree of paths at a position and returns the position after it.
fn read_paths<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    before: &mut Vec<Token<'a>>,
    paths: &mut Vec<UsePath<'a>>,
) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let kept = before.len();
    if text(at) == "::" {
        at += 1;
    }
    loop {
        if text(at) == "{" {
            at += 1;
            while !matches!(text(at), "}" | "") {
                at = read_paths(tokens, at, before, paths);
                // Skip tokens that are not part of a path.
                while !matches!(text(at), "," | "}" | "") {
                    at += 1;
                }
                at += usize::from(text(at) == ",");
            }
            before.truncate(kept);
            return at + 1;
        }
        if text(at) != "*" && !is_name(text(at)) {
            break;
        }
        before.push(tokens[at]);
        at += 1;
        let goes_on = |next: &str| next == "{" || next == "*" || is_name(next);
        if text(at) != "::" || !goes_on(text(at + 1)) {
            break;
        }
        at += 1;
    }
    let mut alias = None;
    if text(at) == "as" && is_name(text(at + 1)) {
        alias = Some(tokens[at + 1].text);
        at += 2;
    }
    let named = before.iter().find(|token| !matches!(token.text, "crate" | "self" | "super")).or(before.last());
    if let Some(line) = named.map(|token| token.line) {
        paths.push(UsePath { segments: before.iter().map(|token| token.text).collect(), alias, line });
    }
    before.truncate(kept);
    at
}

/// Returns the tokens without test code, and the names of the modules in other files that are test code.
fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        if tokens[at + 1].text == "!" {
            return (Vec::new(), modules);
        }
        let item = after_visibility(tokens, after_attributes(tokens, at));
        if let [keyword, name, end, ..] = &tokens[item..]
            && (keyword.text, end.text) == ("mod", ";")
        {
            modules.push(name.text);
        }
        at = after_item(tokens, item);
    }
    (kept, modules)
}

/// Returns true if an attribute starts here that only test builds satisfy.
fn is_test_attribute(tokens: &[Token]) -> bool {
    let at = match tokens {
        [hash, open, ..] if (hash.text, open.text) == ("#", "[") => 2,
        [hash, inner, open, ..] if (hash.text, inner.text, open.text) == ("#", "!", "[") => 3,
        _ => return false,
    };
    matches!(&tokens[at..], [cfg, open, ..] if (cfg.text, open.text) == ("cfg", "("))
        && requires_test(&tokens[at + 2..after_bracket(tokens, at + 1) - 1])
}

fn requires_test(predicate: &[Token]) -> bool {
    match predicate {
        [name] => matches!(name.text, "test" | "doctest"),
        [all, _, inner @ .., _] if all.text == "all" => arguments(inner).iter().any(|part| requires_test(part)),
        [any, _, inner @ .., _] if any.text == "any" => arguments(inner).iter().all(|part| requires_test(part)),
        _ => false,
    }
}

/// Splits at the commas that are in no brackets.
fn arguments<'a>(tokens: &[Token<'a>]) -> Vec<Vec<Token<'a>>> {
    let mut depth = 0;
    let mut arguments = vec![Vec::new()];
    for token in tokens {
        depth += nesting(token.text);
        match arguments.last_mut() {
            Some(argument) if depth > 0 || token.text != "," => argument.push(*token),
            _ => arguments.push(Vec::new()),
        }
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while let [hash, open, ..] = &tokens[at..]
        && (hash.text, open.text) == ("#", "[")
    {
        at = after_bracket(tokens, at + 1);
    }
    at
}

fn after_visibility(tokens: &[Token], at: usize) -> usize {
    match &tokens[at..] {
        [visibility, open, ..] if (visibility.text, open.text) == ("pub", "(") => after_bracket(tokens, at + 1),
        [visibility, ..] if visibility.text == "pub" => at + 1,
        _ => at,
    }
}

/// Returns the position after the item, statement, field or arm at a position.
fn after_item(tokens: &[Token], start: usize) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let is_const_fn = text(start) == "const" && matches!(text(start + 1), "fn" | "async" | "unsafe" | "extern");
    let ends_at_semicolon = !is_const_fn && matches!(text(start), "use" | "const" | "static" | "type" | "let");
    let is_block = is_const_fn
        || matches!(
            text(start),
            "mod" | "fn" | "async" | "unsafe" | "extern" | "impl" | "struct" | "enum" | "trait" | "macro_rules"
        );
    let ends_at_comma = !ends_at_semicolon && !is_block;
    let mut angles = 0;
    let mut at = start;
    while at < tokens.len() {
        match text(at) {
            ";" => return at + 1,
            "," if ends_at_comma && angles <= 0 => return at + 1,
            ")" | "]" | "}" => return at,
            "{" if !ends_at_semicolon => {
                let end = after_bracket(tokens, at);
                return end + usize::from(ends_at_comma && text(end) == ",");
            }
            "(" | "[" | "{" => at = after_bracket(tokens, at),
            other => {
                let is_arrow = at > start && matches!(text(at - 1), "-" | "=");
                angles += i32::from(other == "<") - i32::from(other == ">" && !is_arrow);
                at += 1;
            }
        }
    }
    at
}

/// Returns the position after the bracket that closes the one at a position.
fn after_bracket(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        depth += nesting(token.text);
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn nesting(text: &str) -> i32 {
    match text {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// Finds where a sequence of tokens starts.
fn positions(tokens: &[Token], texts: &[&str]) -> Vec<usize> {
    let starts_at = |at: &usize| {
        tokens[*at..].iter().zip(texts).filter(|(token, text)| token.text == **text).count() == texts.len()
    };
    (0..tokens.len()).filter(starts_at).collect()
}

/// A name, a number, a literal, `::` or a single character.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Splits a text into tokens and leaves out blanks and comments.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest, first);
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            tokens.push(Token { text: token.strip_prefix("r#").filter(|name| is_name(name)).unwrap_or(token), line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Returns the length of the token, of the comment or of the blank at the start of a text, in bytes.
fn token_length(text: &str, first: char) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name_length = |text: &str| text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_length(text);
    }
    if text.starts_with("::") {
        return 2;
    }
    let raw = ["r", "br", "cr"].into_iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(content) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", &raw[..hashes]);
            let start = text.len() - content.len();
            return content.find(&end).map_or(text.len(), |length| start + length + end.len());
        }
        if hashes == 1 && text.starts_with("r#") {
            return 2 + name_length(&text[2..]);
        }
    }
    match first {
        '"' => literal_length(text, '"'),
        '\'' => {
            let mut next = text[1..].chars();
            match (next.next(), next.next()) {
                (Some('\\'), _) | (Some(_), Some('\'')) => literal_length(text, '\''),
                _ => 1 + name_length(&text[1..]),
            }
        }
        _ if is_part(first) => name_length(text),
        _ => first.len_utf8(),
    }
}

fn literal_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

mod made_up {
    use super::*;

    const LOW_AND_HIGH: &[Layer] =
        &[Layer { name: "low", modules: &["a", "b", "c"] }, Layer { name: "high", modules: &["x", "y"] }];

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        graph_problems(&sources(files), LOW_AND_HIGH)
    }

    /// The edges that a file of module `a` has.
    fn uses(path: &str, text: &str) -> Vec<(String, usize)> {
        let sources = sources(&[(path, text)]);
        edges(&production(&sources)).into_iter().map(|edge| (edge.to, edge.line)).collect()
    }

    fn used(names: &[(&str, usize)]) -> Vec<(String, usize)> {
        names.iter().map(|(name, line)| ((*name).to_owned(), *line)).collect()
    }

    #[test]
    fn downward_edges_pass() {
        let found = problems(&[
            ("lib.rs", "mod a; mod b; mod x;"),
            ("a.rs", "use crate::b::B;"),
            ("a/inner.rs", "use super::Own; use crate::a::inner::Other;"),
            ("b.rs", "pub struct B;"),
            ("x.rs", "use crate::a::A; fn f() { crate::b::g() }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn cycle_fails_with_the_place_of_each_edge() {
        let found = problems(&[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "\nuse crate::c::C;"),
            ("c/inner.rs", "fn f() {\n\n    crate::a::g()\n}"),
        ]);
        let expected = "the modules form a cycle, of which this is the shortest:\
                        \n  `a` uses `b` at guard/src/a.rs:1\
                        \n  `b` uses `c` at guard/src/b.rs:2\
                        \n  `c` uses `a` at guard/src/c/inner.rs:3";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn shortest_of_several_cycles_is_printed() {
        let found = problems(&[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::{a::A, b::B};"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`b` uses `c`") && found[0].contains("`c` uses `b`"), "{found:?}");
        assert!(!found[0].contains("`a`"), "{found:?}");
    }

    #[test]
    fn every_upward_edge_fails() {
        let found = problems(&[
            ("a.rs", "use crate::x::X;\nuse crate::y::Y;"),
            ("b/inner.rs", "use super::super::x::X;"),
            ("x.rs", ""),
            ("y.rs", ""),
        ]);
        let expected = [
            "guard/src/a.rs:1: `a` (low) uses `x` (high), which is a higher layer",
            "guard/src/a.rs:2: `a` (low) uses `y` (high), which is a higher layer",
            "guard/src/b/inner.rs:1: `b` (low) uses `x` (high), which is a higher layer",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn unlisted_module_fails_and_says_where_to_add_it() {
        let sentence = "is in no layer: add it to LAYERS in guard/tests/modules.rs";
        assert_eq!(problems(&[("fresh/inner.rs", "")]), [format!("`fresh` (guard/src/fresh/inner.rs) {sentence}")]);
        assert_eq!(problems(&[("a.rs", "\nuse crate::gone::G;")]), [format!("`gone` (guard/src/a.rs:2) {sentence}")]);
    }

    #[test]
    fn import_of_the_whole_root_fails() {
        for text in ["use crate::*;", "use super::*;"] {
            let sentence = "guard/src/a.rs:1 imports everything at the root of the crate: name the modules instead";
            assert_eq!(problems(&[("a.rs", text)]), [sentence], "{text}");
        }
    }

    #[test]
    fn inline_paths_count() {
        let text = "fn f(x: &crate::x::X) -> Vec<crate::y::Y> {\n    g::<crate::b::B>(crate::c::h::<u8>(x))\n}";
        assert_eq!(uses("a.rs", text), used(&[("x", 1), ("y", 1), ("b", 2), ("c", 2)]));
        assert_eq!(uses("a.rs", "pub(in crate::a) fn f() { super::x::g() }"), used(&[("x", 1)]));
        assert_eq!(uses("a.rs", "macro_rules! m { () => { $crate::x::f() }; }"), used(&[("x", 1)]));
        assert_eq!(uses("a.rs", "fn f<'a>(x: &'a str) -> char { crate::x::f('\\''); '\"' }"), used(&[("x", 1)]));
    }

    #[test]
    fn grouped_uses_count() {
        let text = "use crate::{\n    b::{B, deeper::{C, D as E}},\n    c,\n    x::*,\n};\nuse crate::y as z;";
        assert_eq!(uses("a.rs", text), used(&[("b", 2), ("c", 3), ("x", 4), ("y", 6)]));
        assert_eq!(uses("a.rs", "use {crate::b::B, std::fmt, super::c::C};"), used(&[("b", 1), ("c", 1)]));
        assert_eq!(uses("a.rs", "pub(crate) use crate::{self as all, r#b::B};"), used(&[("b", 1)]));
        assert_eq!(uses("a/inner.rs", "use super::{super::{b, c::C}, own};"), used(&[("b", 1), ("c", 1)]));
    }

    #[test]
    fn super_counts_where_it_leaves_the_top_level_module() {
        assert_eq!(uses("a.rs", "use super::b::B;"), used(&[("b", 1)]));
        assert_eq!(uses("a/mod.rs", "use super::b::B;"), used(&[("b", 1)]));
        assert_eq!(uses("a.rs", "use self::super::b::B;"), used(&[("b", 1)]));
        assert_eq!(uses("a/inner.rs", "use super::b::B; use self::c::C;"), []);
        assert_eq!(
            uses("a.rs", "mod inner { use super::b::B; fn f() { if g() {} } }\nuse super::c::C;"),
            used(&[("c", 2)])
        );
        assert_eq!(uses("a.rs", "mod inner { use super::super::b::B; }"), used(&[("b", 1)]));
    }

    #[test]
    fn test_code_does_not_count() {
        for text in [
            "#[cfg(test)]\nmod tests { use crate::x::X; mod more { fn f() { crate::y::g() } } }",
            "#[cfg(test)]\nuse crate::{x::X, y};",
            "#[cfg(test)]\nconst A: B = B { c: [1; 2] }.with(crate::x::X);",
            "#[cfg(all(test, feature = \"sql\"))]\n#[allow(unused)]\npub(crate) fn f<A, B>() -> [u8; 2] { crate::x::g() }",
            "#[cfg(all(unix, any(test, doctest)))]\nimpl A { fn f() { crate::x::g() } }",
            "struct A { #[cfg(test)] pub x: Option<Map<u8, crate::x::X>>, y: u8 }",
            "fn f() { #[cfg(test)] let x = A { x: crate::x::X }; g(A { y, #[cfg(test)] x: crate::x::X }) }",
            "#![cfg(test)]\nuse crate::x::X;",
        ] {
            assert_eq!(uses("a.rs", text), [], "{text}");
            assert_eq!(
                uses("a.rs", &format!("{text} use crate::b::B;")).len(),
                usize::from(!text.starts_with("#!")),
                "{text}"
            );
        }
        for path in ["a/tests.rs", "a/tests/more.rs", "tests/a.rs"] {
            assert_eq!(uses(path, "use crate::x::X;"), [], "{path}");
        }
        let declared = [
            ("lib.rs", "mod a; #[cfg(test)] mod simulator;"),
            ("a.rs", "#[cfg(test)] #[allow(unused)] pub(crate) mod helper;"),
            ("a/helper.rs", "use crate::x::X;"),
            ("a/helper/inner.rs", "use crate::x::X;"),
            ("simulator/world.rs", "use crate::x::X;"),
        ];
        assert!(problems(&declared).is_empty());
    }

    #[test]
    fn code_that_tests_only_share_counts() {
        for attribute in ["#[cfg(any(test, feature = \"fuzzing\"))]", "#[cfg(not(test))]", "#[cfg(feature = \"test\")]"]
        {
            assert_eq!(uses("a.rs", &format!("{attribute} use crate::x::X;")), used(&[("x", 1)]), "{attribute}");
        }
    }

    #[test]
    fn comments_and_literals_do_not_count() {
        for text in [
            "// use crate::x::X;",
            "/// See [`crate::x::X`].\nstruct A;",
            "//! use crate::x::X;",
            "/* use crate::x::X; /* crate::y::Y */ crate::x::X */",
            "const A: &str = \"use crate::x::X; \\\" crate::y::Y\";",
            "const A: &str = r#\"use crate::x::X; \" crate::y::Y\"#;",
            "const A: &[u8] = br\"crate::x::X \\\";",
            "const A: char = '\"'; // \" crate::x::X",
        ] {
            assert_eq!(uses("a.rs", text), [], "{text}");
            assert_eq!(uses("a.rs", &format!("{text}\nuse crate::b::B;")).len(), 1, "{text}");
        }
    }

    #[test]
    fn re_export_of_the_root_counts_as_its_module() {
        let root = "mod a; mod b; pub mod x; pub use onceward_api as api; pub use bytes::Bytes; pub use x::run as start;\
                    pub use crate::x::{X, deeper::Y as Z};";
        let found = |text| {
            let sources = sources(&[("a.rs", text), ("lib.rs", root)]);
            edges(&production(&sources)).into_iter().map(|edge| edge.to).collect::<Vec<_>>()
        };
        assert_eq!(found("use crate::X;"), ["x"]);
        assert_eq!(found("use crate::{Z, Bytes}; fn f() { crate::api::g() }"), ["x"]);
        assert_eq!(found("fn f() { super::start() }"), ["x"]);
    }

    #[test]
    fn impl_of_guard_elsewhere_is_found() {
        let found = |path: &str, text: &str| guard_impls_elsewhere(&sources(&[(path, text)]));
        for text in ["impl Guard {}", "impl crate::guard::Guard {}", "impl<S: Into<u8>> Guard<S> where S: Copy {}"] {
            assert_eq!(found("a/inner.rs", text), ["guard/src/a/inner.rs:1"], "{text}");
            assert!(found("guard.rs", text).is_empty() && found("guard/run.rs", text).is_empty(), "{text}");
        }
        for text in [
            "impl From<Guard> for A {}",
            "impl fmt::Debug for Guard {}",
            "impl GuardBuilder {}",
            "impl A<Guard> {}",
            "fn f(x: impl Fn(Guard) -> Guard) {}",
            "#[cfg(test)] impl Guard {}",
            "// impl Guard {}",
        ] {
            assert!(found("a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn adapter_feature_elsewhere_is_found() {
        let found = |path: &str, text: &str| adapter_features_elsewhere(&sources(&[(path, text)]));
        for text in [
            "#[cfg(feature = \"actix\")] mod inner;",
            "#[cfg(any(feature = \"actix\", feature = \"sql\"))] fn f() {}",
            "fn f() -> bool { cfg!(feature = \"actix\") }",
            "#[cfg_attr(not(feature = \"actix\"), allow(unused))] struct A;",
        ] {
            assert_eq!(found("a.rs", text), ["guard/src/a.rs:1: feature `actix`"], "{text}");
            assert!(found("actix.rs", text).is_empty() && found("actix/inner.rs", text).is_empty(), "{text}");
        }
        assert_eq!(found("lib.rs", "#[cfg(feature = \"axum\")] fn f() {}"), ["guard/src/lib.rs:1: feature `axum`"]);
        assert_eq!(found("lib.rs", "#[cfg(feature = \"actix\")] mod a { fn f() {} }").len(), 1);
        for text in [
            "#[cfg(feature = \"actix\")]\n#[doc(inline)]\npub mod actix;",
            "#[cfg(feature = \"axum\")] pub use crate::axum::Protect;",
            "#[cfg(all(doctest, feature = \"actix\"))] struct Readme;",
            "//! # #[cfg(feature = \"actix\")] {",
        ] {
            assert!(found("lib.rs", text).is_empty(), "{text}");
        }
        assert!(found("a.rs", "#[cfg(feature = \"sql\")] fn f() {}").is_empty());
    }
}
