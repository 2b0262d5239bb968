//! What a pure crate may not say outside its tests: everything it depends on is an argument. Why
//! this is not a list for clippy is in docs/decisions/0037.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ExprMethodCall, File, Item, ItemUse, Macro, Path, UseTree};

/// Words that a path may not have in this order anywhere, and what they stand for.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (&["Instant", "now"], "a clock"),
    (&["SystemTime"], "a clock"),
    (&["UNIX_EPOCH"], "a clock"),
    (&["std", "thread"], "threads"),
    (&["thread_local"], "threads"),
    (&["std", "fs"], "files"),
    (&["std", "os"], "the operating system"),
    (&["std", "env"], "the environment"),
    (&["std", "process"], "processes"),
    (&["stdin"], "a terminal"),
    (&["stdout"], "a terminal"),
    (&["stderr"], "a terminal"),
    (&["print"], "a terminal"),
    (&["println"], "a terminal"),
    (&["eprint"], "a terminal"),
    (&["eprintln"], "a terminal"),
    (&["UdpSocket"], "sockets"),
    (&["TcpStream"], "sockets"),
    (&["TcpListener"], "sockets"),
    (&["ToSocketAddrs"], "name resolution"),
    (&["rand", "rng"], "ambient randomness"),
    (&["rand", "random"], "ambient randomness"),
    (&["ThreadRng"], "ambient randomness"),
    (&["SysRng"], "ambient randomness"),
    (&["OsRng"], "ambient randomness"),
    (&["SystemRandom"], "ambient randomness"),
    (&["make_rng"], "ambient randomness"),
    (&["from_os_rng"], "ambient randomness"),
    (&["getrandom"], "ambient randomness"),
    (&["RandomState"], "ambient randomness"),
    // Their order is another in every process.
    (&["HashMap"], "ambient randomness (use a BTreeMap)"),
    (&["HashSet"], "ambient randomness (use a BTreeSet)"),
];

/// Methods that read the clock on their own; none takes an argument.
const CLOCK_METHODS: &[&str] = &["elapsed"];

/// A line, and what it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impurity {
    /// From 1.
    pub line: usize,
    /// The words found.
    pub words: String,
    /// What they stand for.
    pub what: &'static str,
}

/// Every impurity of a file, `#[cfg(test)]` left out.
#[must_use]
pub fn impurities(file: &File) -> Vec<Impurity> {
    let mut search = Search { found: Vec::new() };
    search.visit_file(file);
    search.found
}

/// Whether an item is there for tests only.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

struct Search {
    found: Vec<Impurity>,
}

impl Search {
    fn path(&mut self, words: &[String], line: usize) {
        let said =
            |forbidden: &[&str]| words.windows(forbidden.len()).any(|part| part == forbidden);
        if let Some((forbidden, what)) = FORBIDDEN.iter().find(|(path, _)| said(path)) {
            self.found.push(Impurity {
                line,
                words: forbidden.join("::"),
                what,
            });
        }
    }

    /// The paths that a `use` brings in, each in full.
    fn imports(&mut self, tree: &UseTree, before: &[String]) {
        let mut words = before.to_vec();
        match tree {
            UseTree::Path(path) => {
                words.push(path.ident.to_string());
                self.imports(&path.tree, &words);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.imports(tree, before);
                }
            }
            UseTree::Name(name) => words.push(name.ident.to_string()),
            UseTree::Rename(rename) => words.push(rename.ident.to_string()),
            UseTree::Glob(_) => {}
        }
        if !matches!(tree, UseTree::Path(_) | UseTree::Group(_)) {
            self.path(&words, tree.span().start().line);
        }
    }

    /// The paths in what a macro is given, which is not parsed: words that `::` joins.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut words, mut line, mut joined) = (Vec::new(), 0, false);
        for token in tokens {
            match token {
                TokenTree::Punct(colon) if colon.as_char() == ':' => joined = !words.is_empty(),
                TokenTree::Ident(word) => {
                    if !joined {
                        self.path(&std::mem::take(&mut words), line);
                    }
                    line = word.span().start().line;
                    self.clock_method(&word.to_string(), line);
                    words.push(word.to_string());
                    joined = false;
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => joined = false,
            }
        }
        self.path(&words, line);
    }

    fn clock_method(&mut self, name: &str, line: usize) {
        if CLOCK_METHODS.contains(&name) {
            self.found.push(Impurity {
                line,
                words: name.to_owned(),
                what: "a clock",
            });
        }
    }
}

impl<'ast> Visit<'ast> for Search {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.imports(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let words = path.segments.iter().map(|part| part.ident.to_string());
        let words: Vec<String> = words.collect();
        self.path(&words, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.args.is_empty() {
            self.clock_method(&call.method.to_string(), call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        // The rest is hardly ever conditional; reading too much is the safe side.
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(usize, String)> {
        let file = syn::parse_file(source).expect("it is Rust");
        let found = impurities(&file).into_iter();
        found.map(|found| (found.line, found.words)).collect()
    }

    #[track_caller]
    fn assert_finds(source: &str, line: usize, words: &str) {
        assert_eq!(found(source), [(line, words.to_owned())], "{source}");
    }

    #[test]
    fn a_clock_is_found_however_it_is_read() {
        assert_finds("fn f() {\n let now = Instant::now();\n}", 2, "Instant::now");
        assert_finds("fn f() { g(std::time::Instant::now) }", 1, "Instant::now");
        assert_finds("fn f() -> u8 {\n\n t.elapsed() }", 3, "elapsed");
        assert_finds("use std::time::{Duration,\n SystemTime};", 2, "SystemTime");
    }

    #[test]
    fn sockets_threads_files_and_randomness_are_found() {
        assert_finds("use std::{fmt, thread};", 1, "std::thread");
        assert_finds("use std::thread::*;", 1, "std::thread");
        assert_finds("fn f(s: &std::net::UdpSocket) {}", 1, "UdpSocket");
        assert_finds("fn f() { std::fs::read(p) }", 1, "std::fs");
        assert_finds("fn f() -> u8 { rand::random() }", 1, "rand::random");
        assert_finds("struct S(Option<HashMap<u8, u8>>);", 1, "HashMap");
        assert_finds("use rand::{Rng, rngs::OsRng as R};", 1, "OsRng");
    }

    #[test]
    fn macros_hide_nothing() {
        assert_finds(
            "fn f() { assert!(t <\n Instant::now()) }",
            2,
            "Instant::now",
        );
        assert_finds("fn f() { println!(\"{}\", 1) }", 1, "println");
        assert_finds("fn f() { vec![x(t.elapsed())] }", 1, "elapsed");
    }

    #[test]
    fn tests_may_do_what_they_like() {
        let source = "#[cfg(test)] mod tests { use std::thread; fn f() { Instant::now(); } }
                      #[cfg(test)] use std::fs;
                      #[cfg(test)] impl S { fn f() { rand::random() } }";
        assert_eq!(found(source), []);
    }

    #[test]
    fn only_test_code_is_left_out() {
        assert_finds("#[cfg(not(test))] use std::fs;", 1, "std::fs");
        assert_finds("#[cfg(unix)] mod unix { use std::fs; }", 1, "std::fs");
    }

    #[test]
    fn what_only_looks_alike_is_left_alone() {
        let source = "use std::time::{Duration, Instant};
                      use std::net::{IpAddr, SocketAddr};
                      fn f(now: Instant, fs: u8, thread: u8) { now.duration_since(now); }
                      fn g(rng: &mut impl rand::Rng) -> u8 { rng.random() }
                      fn h() { info!(elapsed_ms = 1, \"std\"); }";
        assert_eq!(found(source), []);
    }
}
