//! Where the seconds of a running test are told: the terminal, files, Prometheus.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::super::output;
use crate::exit::Failure;
use crate::loadtest::exporter::Exporter;
use crate::loadtest::second::Second;

/// Whoever wants to hear.
pub(in crate::cli) struct Told {
    terminal: bool,
    files: Vec<Lines>,
    exporter: Option<Exporter>,
}

/// How a second becomes a line.
type Line = fn(&Second) -> String;

/// A file of which each line is whole.
struct Lines {
    path: PathBuf,
    file: File,
    line: Line,
    written: u64,
    failed: Option<io::Error>,
}

impl Told {
    pub(in crate::cli) fn new(
        ndjson: Option<&Path>,
        csv: Option<&Path>,
        prometheus: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let mut files = Vec::new();
        if let Some(path) = ndjson {
            let json = |second: &Second| serde_json::to_string(second).unwrap_or_default();
            files.push(Lines::create(path, json)?);
        }
        if let Some(path) = csv {
            let mut file = Lines::create(path, Second::row)?;
            file.write(Second::COLUMNS);
            files.push(file);
        }
        let listen = |address| {
            Exporter::listen(address).map_err(|error| {
                Failure::runtime(format!("cannot serve metrics at {address}: {error}"))
            })
        };
        let exporter = prometheus.map(listen).transpose()?;
        if let Some(exporter) = &exporter {
            output::say!("Metrics: http://{}/metrics", exporter.address());
        }
        Ok(Self {
            terminal: io::stderr().is_terminal(),
            files,
            exporter,
        })
    }

    /// Says something to whoever sits there.
    pub(in crate::cli) fn say(&self, text: &str) {
        if self.terminal {
            output::say!("{text}");
        }
    }

    pub(in crate::cli) fn tell(&mut self, second: &Second) {
        if self.terminal {
            output::say!("{}", in_words(second));
        }
        for file in &mut self.files {
            let line = (file.line)(second);
            file.write(&line);
        }
        if let Some(exporter) = &self.exporter {
            exporter.tell(second);
        }
    }

    /// What could not be written, if anything.
    pub(in crate::cli) fn failure(&self) -> Option<Failure> {
        let failed = self.files.iter().find_map(Lines::failure)?;
        Some(Failure::runtime(failed))
    }
}

impl Lines {
    fn create(path: &Path, line: Line) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::runtime(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            line,
            written: 0,
            failed: None,
        })
    }

    /// Writes a line, or nothing at all from the first on that does not fit.
    fn write(&mut self, line: &str) {
        if self.failed.is_some() {
            return;
        }
        let start = self.file.stream_position().unwrap_or(0);
        match self.file.write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => self.written += 1,
            Err(error) => {
                // What is left of a line that did not fit would spoil the file.
                let _ = self.file.set_len(start);
                self.failed = Some(error);
            }
        }
    }

    fn failure(&self) -> Option<String> {
        let error = self.failed.as_ref()?;
        let (path, lines) = (self.path.display(), self.written);
        Some(format!(
            "cannot write {path}: {error}; the {lines} lines before are whole"
        ))
    }
}

fn in_words(second: &Second) -> String {
    let mut line = format!("[{:5.1} s]", second.elapsed_seconds);
    let ways = [
        ("up", second.up_bits_per_second, second.up_fec),
        ("down", second.down_bits_per_second, second.down_fec),
    ];
    for (name, rate, fec) in ways {
        if let Some(rate) = rate {
            let _ = write!(line, "  {name} {:9.2} Mbit/s", rate / 1e6);
        }
        if let Some(fec) = fec {
            let _ = write!(line, ", {} recovered", fec.recovered);
        }
    }
    let [middle, most] = [second.rtt.p50_seconds, second.rtt.max_seconds].map(in_ms);
    let _ = write!(line, "  rtt p50 {middle} ms, most {most} ms");
    if second.unanswered > 0 {
        let (open, all) = (second.unanswered, second.probes);
        let _ = write!(line, ", {open} of {all} probes unanswered");
    }
    let ended = [
        ("requests", second.requests),
        ("handshakes", second.handshakes),
    ];
    for (name, lately) in ended {
        let Some(lately) = lately else { continue };
        let slow = in_ms(lately.p95_seconds);
        let _ = write!(line, "  {} {name}, p95 {slow} ms", lately.done);
        if lately.failed > 0 {
            let _ = write!(line, ", {} failed", lately.failed);
        }
    }
    line
}

fn in_ms(time: Option<f64>) -> String {
    time.map_or("-".into(), |seconds| format!("{:.1}", seconds * 1e3))
}
