//! A TOML table being read: values are taken by key, and what nobody took is an unknown key.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::{Finding, MOST_FINDINGS};
use super::limits::MOST_ITEMS;
use super::values::{Wrong, nearest};

/// One table of the file, with the keys that were asked for so far.
pub(super) struct Section<'a, 'i> {
    /// As the file writes it, `[hub]` or `[[link]]`.
    title: &'static str,
    table: &'a DeTable<'i>,
    /// The header of the section, for what is missing in it.
    header: Range<usize>,
    text: &'a str,
    known: Vec<&'static str>,
}

impl<'a, 'i> Section<'a, 'i> {
    pub(super) fn root(table: &'a DeTable<'i>, text: &'a str) -> Self {
        Self {
            title: "",
            table,
            header: 0..0,
            text,
            known: Vec::new(),
        }
    }

    /// `value` read as the table `title`, or a finding that it is something else.
    pub(super) fn open(
        title: &'static str,
        value: &'a Spanned<DeValue<'i>>,
        text: &'a str,
        findings: &mut Vec<Finding>,
    ) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let wrong = format!(
                "`{}` is {}",
                title.trim_matches(['[', ']']),
                kind_of(value.get_ref())
            );
            findings.push(
                Finding::error(value.span(), wrong).help(format!("write it as a section, {title}")),
            );
            return None;
        };
        Some(Self {
            title,
            table,
            header: value.span(),
            text,
            known: Vec::new(),
        })
    }

    /// Where findings about the whole section point.
    pub(super) fn header(&self) -> Range<usize> {
        self.header.clone()
    }

    /// The value of `key`, which is known from now on.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.known.push(key);
        self.table.get(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A finding for each key that nobody asked for.
    pub(super) fn finish(self, findings: &mut Vec<Finding>) {
        for key in self.table.keys() {
            if self.known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let place = if self.title.is_empty() {
                "the file"
            } else {
                self.title
            };
            let message = format!("unknown key `{}` in {place}", key.get_ref().escape_debug());
            let finding = Finding::error(key.span(), message)
                .help(format!("{place} has: {}", self.known.join(", ")));
            let known = self.known.iter().copied();
            let near = (findings.len() < MOST_FINDINGS).then(|| nearest(key.get_ref(), known));
            findings.push(match near.flatten() {
                Some(near) => finding.label(format!("did you mean `{near}`?")),
                None => finding.label("not known here"),
            });
        }
    }

    /// A finding that `key` must be there.
    pub(super) fn require(&self, key: &str, example: &str, findings: &mut Vec<Finding>) {
        if !self.has(key) {
            let message = format!("{} needs `{key}`", self.title);
            findings.push(
                Finding::missing(self.header(), message)
                    .help(format!("for example: {key} = {example}")),
            );
        }
    }

    pub(super) fn boolean(
        &mut self,
        key: &'static str,
        findings: &mut Vec<Finding>,
    ) -> Option<bool> {
        let value = self.value(key)?;
        let DeValue::Boolean(yes) = value.get_ref() else {
            findings.push(not_a(key, "true or false", value));
            return None;
        };
        Some(*yes)
    }

    /// An integer of `range`.
    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
        findings: &mut Vec<Finding>,
    ) -> Option<Spanned<T>> {
        let value = self.value(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            findings.push(not_a(key, "a whole number", value));
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let fit = number
            .filter(|n| range.contains(n))
            .and_then(|n| T::try_from(n).ok());
        if fit.is_none() {
            let message = format!("`{key}` is out of range");
            let allowed = format!("{} to {} is allowed", range.start(), range.end());
            findings.push(Finding::error(value.span(), message).label(allowed));
        }
        fit.map(|n| Spanned::new(value.span(), n))
    }

    /// A string that `parse` understands.
    pub(super) fn string<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        findings: &mut Vec<Finding>,
    ) -> Option<Spanned<T>> {
        let value = self.value(key)?;
        self.parse(key, "a string", value, &parse, findings)
    }

    /// A list of strings that `parse` understands; those it does not are findings, and left out.
    pub(super) fn strings<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        findings: &mut Vec<Finding>,
    ) -> Option<Vec<Spanned<T>>> {
        self.list(key, MOST_ITEMS, parse, findings)
    }

    /// A list like [`strings`](Self::strings) of so many items; those that are too many are one
    /// finding, and left out.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        findings: &mut Vec<Finding>,
    ) -> Option<Vec<Spanned<T>>> {
        let value = self.value(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            findings.push(not_a(key, "a list of strings", value));
            return None;
        };
        if let Some(first) = items.get(most) {
            let message = format!(
                "`{key}` has at most {most} items, and here are {}",
                items.len()
            );
            findings.push(Finding::error(first.span(), message));
        }
        let read = |item| self.parse(key, "a list of strings", item, &parse, findings);
        Some(items.iter().take(most).filter_map(read).collect())
    }

    /// A finding when the list `key` is there but empty.
    pub(super) fn require_some(&self, key: &str, help: &str, findings: &mut Vec<Finding>) {
        if let Some(value) = self.table.get(key)
            && let DeValue::Array(items) = value.get_ref()
            && items.is_empty()
        {
            findings.push(Finding::error(value.span(), format!("`{key}` is empty")).help(help));
        }
    }

    fn parse<T>(
        &self,
        key: &str,
        wanted: &str,
        value: &Spanned<DeValue<'_>>,
        parse: &impl Fn(&str) -> Result<T, Wrong>,
        findings: &mut Vec<Finding>,
    ) -> Option<Spanned<T>> {
        let DeValue::String(string) = value.get_ref() else {
            findings.push(not_a(key, wanted, value));
            return None;
        };
        match parse(string) {
            Ok(parsed) => Some(Spanned::new(value.span(), parsed)),
            Err(wrong) => {
                findings.push(wrong.found_in(key, string, value.span(), self.text));
                None
            }
        }
    }
}

fn not_a(key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) -> Finding {
    Finding::error(value.span(), format!("`{key}` must be {wanted}"))
        .label(format!("this is {}", kind_of(value.get_ref())))
}

/// What a TOML value is, with its article.
pub(super) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
