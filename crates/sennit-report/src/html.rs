//! The page around blocks.

use crate::{Block, Report, Section};

const STYLE: &str = include_str!("style.css");

/// Text in which nothing is markup.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

pub(crate) fn page(report: &Report) -> String {
    let title = escaped(&report.title);
    let lede = match report.lede.is_empty() {
        true => String::new(),
        false => format!("<p class=\"lede\">{}</p>\n", escaped(&report.lede)),
    };
    let sections: String = report.sections.iter().map(section).collect();
    // Without a policy a page could ask for something; with this one it cannot.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1>\n{lede}</header>\n{}<main>\n{sections}</main>\n</body>\n</html>\n",
        facts(report)
    )
}

fn facts(report: &Report) -> String {
    if report.facts.is_empty() {
        return String::new();
    }
    let fact = |(what, value): &(String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escaped(what), escaped(value))
    };
    let facts: String = report.facts.iter().map(fact).collect();
    format!("<dl>\n{facts}</dl>\n")
}

fn section(section: &Section) -> String {
    let mut out = format!("<section>\n<h2>{}</h2>\n", escaped(&section.title));
    let mut in_plots = false;
    for block in &section.blocks {
        let plot = picture(block);
        if plot.is_some() != in_plots {
            out.push_str(if in_plots {
                "</div>\n"
            } else {
                "<div class=\"plots\">\n"
            });
            in_plots = plot.is_some();
        }
        out.push_str(&plot.unwrap_or_else(|| words(block)));
    }
    out.push_str(if in_plots { "</div>\n" } else { "" });
    out.push_str("</section>\n");
    out
}

/// A block that is a plot.
fn picture(block: &Block) -> Option<String> {
    let (svg, caption) = match block {
        Block::Lines(plot) => (plot.svg(), &plot.caption),
        Block::Stack(plot) => (plot.svg(), &plot.caption),
        Block::Bars(plot) => (plot.svg(), &plot.caption),
        Block::Points(plot) => (plot.svg(), &plot.caption),
        Block::Text(_) | Block::Source(..) | Block::Table(_) => return None,
    };
    let caption = escaped(caption);
    Some(format!(
        "<figure><figcaption>{caption}</figcaption>{svg}</figure>\n"
    ))
}

/// A block that is not.
fn words(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("<p>{}</p>\n", escaped(text)),
        Block::Source(name, text) => format!(
            "<details><summary>{}</summary><pre>{}</pre></details>\n",
            escaped(name),
            escaped(text)
        ),
        Block::Table(table) => table.html(),
        Block::Lines(_) | Block::Stack(_) | Block::Bars(_) | Block::Points(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Bar, Bars, Cloud, Curve, Layer, Lines, Mark, Points, Stack, Table};

    fn blocks() -> Vec<Block> {
        let mut table = Table::new("t", ["a", "b"]);
        table.row(["x < y", "1.5"]);
        let line = Curve::new("<script>", vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)]);
        let mark = Mark {
            at: 1.0,
            what: "cut & back".into(),
        };
        let mut lines = Lines::new("c", Axis::new("x"), Axis::new("y"), vec![line]);
        lines.marks.push(mark.clone());
        let layer = Layer {
            name: "a".into(),
            values: vec![1.0, 2.0],
        };
        let stack = Stack {
            caption: "s".into(),
            x: Axis::new("x"),
            y: Axis::new("y"),
            width: 0.1,
            layers: vec![layer.clone(), layer],
            line: None,
            marks: vec![mark],
        };
        let bar = Bar {
            value: 2.0,
            interval: Some((1.0, 3.0)),
        };
        let bars = Bars {
            caption: "b".into(),
            y: Axis::new("y"),
            series: vec!["A".into(), "B".into()],
            groups: vec![("g".into(), vec![Some(bar), None])],
        };
        let points = Points {
            caption: "p".into(),
            x: Axis::new("x"),
            y: Axis::new("y"),
            clouds: vec![Cloud {
                name: "q".into(),
                points: vec![(1.0, 2.0), (2.0, 1.0), (3.0, 4.0)],
            }],
        };
        vec![
            Block::Text("one".into()),
            Block::Lines(lines),
            Block::Stack(stack),
            Block::Bars(bars),
            Block::Points(points),
            Block::Table(table),
            Block::Source("file".into(), "a = \"<b>\"".into()),
        ]
    }

    fn page() -> String {
        let section = blocks().into_iter().fold(Section::new("S"), Section::with);
        Report::new("T & U")
            .fact("machine", "m")
            .with(section)
            .html()
    }

    #[test]
    fn a_page_asks_nobody_for_anything_and_holds_no_script() {
        let page = page();
        for word in [
            "http://", "https://", "<script", "src=", "url(", "@import", "<link",
        ] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn what_is_opened_is_closed_and_text_is_no_markup() {
        let page = page();
        for tag in [
            "div", "section", "figure", "svg", "table", "details", "text", "main",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(page.contains("&lt;script&gt;") && page.contains("x &lt; y"));
        assert!(!page.contains("NaN"), "what is no number is not drawn");
    }

    #[test]
    fn plots_stand_together_and_text_between_them_does_not() {
        let page = page();
        assert_eq!(page.matches("class=\"plots\"").count(), 1);
        assert_eq!(page.matches("<figure>").count(), 4);
    }
}
