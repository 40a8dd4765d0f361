//! Output of the tour, for people or as JSON.

use std::{
    io::{IsTerminal as _, Write as _, stdout},
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use super::TourOutcome;

/// Reports each observation as it is made.
pub(super) struct Reporter {
    json: bool,
    /// Whether the output is a terminal, which can clear a line.
    terminal: bool,
    colours: bool,
    begun: Instant,
    step: Option<Step>,
    steps: usize,
}

/// Current step.
struct Step {
    name: &'static str,
    title: &'static str,
    begun: Instant,
    said: Vec<String>,
}

const BOLD: &str = "1";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const DIM: &str = "2";

/// Escape sequence that clears the line.
const CLEAR_LINE: &str = "\r\x1b[K";

impl Reporter {
    pub(super) fn new(json: bool) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let terminal = !json && stdout().is_terminal();
        let colours = terminal && variable("NO_COLOR").is_none();
        let colours = colours && variable("TERM").is_none_or(|term| term != "dumb");
        let begun = Instant::now();
        let reporter = Self { json, terminal, colours, begun, step: None, steps: 0 };
        reporter.line("A server with state, and two chats that use it. All of this really runs.");
        reporter
    }

    /// Starts the next step.
    pub(super) fn step(&mut self, name: &'static str, title: &'static str) {
        self.finish(None);
        self.steps += 1;
        let title_line = self.paint(BOLD, &format!("{}  {title}", self.steps));
        self.line(&format!("\n{title_line}"));
        self.step = Some(Step { name, title, begun: Instant::now(), said: Vec::new() });
    }

    /// Shows what the tour waits for. Only on a terminal, and replaced by the next line.
    pub(super) fn show_progress(&self, what: &str) {
        if self.terminal {
            self.write(&format!("{CLEAR_LINE}{}", self.paint(DIM, &format!("   … {what}"))));
        }
    }

    /// Reports an action and its result.
    pub(super) fn report_action(&mut self, what: &str, came: &str) {
        let arrow = self.paint(DIM, "→");
        self.line(&format!("   {what} {arrow} {came}"));
        self.note(format!("{what}: {came}"));
    }

    /// Reports a problem that exists without Stayput.
    pub(super) fn report_problem(&mut self, what: &str) {
        let mark = self.paint(YELLOW, "!");
        self.line(&format!("   {mark} {what}"));
        self.note(what.to_owned());
    }

    /// Reports what a step has shown.
    pub(super) fn shows(&mut self, what: &str) {
        let mark = self.paint(GREEN, "✓");
        self.line(&format!("   {mark} {what}"));
        self.note(what.to_owned());
    }

    /// Reports an unexpected observation. It ends the step and the tour.
    pub(super) fn failed(&mut self, problem: &str) {
        let mark = self.paint(RED, "✗");
        self.line(&format!("   {mark} {problem}"));
        self.finish(Some(problem));
    }

    /// Reports the end of the tour.
    pub(super) fn end(&mut self, ending: TourOutcome) {
        match ending {
            TourOutcome::Good => {
                self.finish(None);
                let took = seconds(self.begun.elapsed());
                self.line(&format!(
                    "\nThat took {took}. Nothing of it is left: no process, no file."
                ));
                self.line("Next: stayput serve --config FILE, with the mcpServers you have.");
            }
            TourOutcome::Bad => self.line("\nThis is not how it should be."),
            TourOutcome::Interrupted => {
                self.line("\nStopped. Nothing of it is left: no process, no file.");
            }
        }
    }

    fn note(&mut self, line: String) {
        if let Some(step) = &mut self.step {
            step.said.push(line);
        }
    }

    /// Ends the current step. The JSON output has one object per step.
    fn finish(&mut self, problem: Option<&str>) {
        let Some(step) = self.step.take() else { return };
        if self.json {
            let millis = u64::try_from(step.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut report = json!({
                "step": step.name,
                "title": step.title,
                "ok": problem.is_none(),
                "seen": step.said,
                "millis": millis,
            });
            if let Some(problem) = problem {
                report["problem"] = problem.into();
            }
            self.write(&format!("{report}\n"));
        }
    }

    /// Writes a line for people.
    fn line(&self, line: &str) {
        if !self.json {
            let clear = if self.terminal { CLEAR_LINE } else { "" };
            self.write(&format!("{clear}{line}\n"));
        }
    }

    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        // A write error is ignored: the reader has closed the pipe.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Formats a duration.
pub(super) fn seconds(time: Duration) -> String {
    let millis = time.as_millis();
    if millis < 1_000 { format!("{millis} ms") } else { format!("{:.1} s", time.as_secs_f64()) }
}
