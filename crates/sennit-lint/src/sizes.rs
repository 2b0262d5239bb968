//! How long files and functions are: what a reader keeps in mind at once.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{File, ImplItemFn, Item, ItemFn, TraitItemFn};

use crate::purity::{attributes, is_test};

/// Lines of a file, its tests left out.
const FILE: usize = 500;
/// Lines of a function, from `fn` to its last brace.
const FUNCTION: usize = 60;

/// What is too long in a file, by line.
pub(crate) fn objections(text: &str, file: &File) -> Vec<(usize, String)> {
    let tests = file.items.iter().filter(|item| is_test(attributes(item)));
    let lines = text.lines().count() - tests.map(|test| lines(test.span())).sum::<usize>();
    let mut objections = Vec::new();
    if lines > FILE {
        let message = format!("it has {lines} lines without tests, and {FILE} are the most");
        objections.push((0, message));
    }
    let mut functions = Functions(Vec::new());
    functions.visit_file(file);
    for (line, lines) in functions.0 {
        if lines > FUNCTION {
            let message = format!("this function has {lines} lines, and {FUNCTION} are the most");
            objections.push((line, message));
        }
    }
    objections
}

fn lines(span: Span) -> usize {
    span.end().line - span.start().line + 1
}

/// The first line of each function outside of tests, and how many lines it has.
struct Functions(Vec<(usize, usize)>);

impl Functions {
    fn add(&mut self, from: Span, to: Span) {
        let (first, last) = (from.start().line, to.end().line);
        self.0.push((first, last - first + 1));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(function.sig.fn_token.span(), function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add(function.sig.fn_token.span(), function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(function.sig.fn_token.span(), block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let file = syn::parse_file(text).expect("it is Rust");
        let objections = objections(text, &file).into_iter();
        objections.map(|(line, _)| line).collect()
    }

    #[test]
    fn a_function_may_have_sixty_lines_and_no_more() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "a();\n".repeat(lines - 2));
        assert_eq!(found(&function(FUNCTION)), [0; 0]);
        assert_eq!(found(&format!("\n{}", function(FUNCTION + 1))), [2]);
        let method = format!("struct S;\nimpl S {{\n{}}}\n", function(FUNCTION + 1));
        assert_eq!(found(&method), [3]);
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(FUNCTION + 1));
        assert_eq!(found(&test), [0; 0]);
    }

    #[test]
    fn a_file_may_have_five_hundred_lines_beside_its_tests() {
        let items = |lines: usize| "struct S;\n".repeat(lines);
        assert_eq!(found(&items(FILE)), [0; 0]);
        assert_eq!(found(&items(FILE + 1)), [0]);
        let tests = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            items(FILE),
            items(9)
        );
        assert_eq!(found(&tests), [0; 0]);
    }
}
