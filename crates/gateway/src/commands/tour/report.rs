//! What is told of the story, to people or to programs.

use std::{
    io::{IsTerminal as _, Write as _, stdout},
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use super::Ending;

/// Tells each thing when it has happened.
pub(super) struct Reporter {
    json: bool,
    /// Whether somebody looks who can see colours, and lines that go away again.
    terminal: bool,
    colours: bool,
    begun: Instant,
    step: Option<Step>,
    steps: usize,
}

/// The step that is under way.
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

/// Empties the line.
const CLEAR: &str = "\r\x1b[K";

impl Reporter {
    pub(super) fn new(json: bool) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let terminal = !json && stdout().is_terminal();
        let colours = terminal && variable("NO_COLOR").is_none();
        let colours = colours && variable("TERM").is_none_or(|term| term != "dumb");
        let begun = Instant::now();
        let teller = Self { json, terminal, colours, begun, step: None, steps: 0 };
        teller.line("A server with state, and two chats that use it. All of this really runs.");
        teller
    }

    /// The next step begins.
    pub(super) fn step(&mut self, name: &'static str, title: &'static str) {
        self.finish(None);
        self.steps += 1;
        let title_line = self.paint(BOLD, &format!("{}  {title}", self.steps));
        self.line(&format!("\n{title_line}"));
        self.step = Some(Step { name, title, begun: Instant::now(), said: Vec::new() });
    }

    /// Something takes a moment. It is told only to who looks, and gone with the next line.
    pub(super) fn waits(&self, what: &str) {
        if self.terminal {
            self.write(&format!("{CLEAR}{}", self.paint(DIM, &format!("   … {what}"))));
        }
    }

    /// Something was done, and this came of it.
    pub(super) fn did(&mut self, what: &str, came: &str) {
        let arrow = self.paint(DIM, "→");
        self.line(&format!("   {what} {arrow} {came}"));
        self.note(format!("{what}: {came}"));
    }

    /// What is wrong with the world without Stayput.
    pub(super) fn complains(&mut self, what: &str) {
        let mark = self.paint(YELLOW, "!");
        self.line(&format!("   {mark} {what}"));
        self.note(what.to_owned());
    }

    /// What was to be shown.
    pub(super) fn shows(&mut self, what: &str) {
        let mark = self.paint(GREEN, "✓");
        self.line(&format!("   {mark} {what}"));
        self.note(what.to_owned());
    }

    /// Something was not as expected: the step, and with it the story, ends here.
    pub(super) fn failed(&mut self, problem: &str) {
        let mark = self.paint(RED, "✗");
        self.line(&format!("   {mark} {problem}"));
        self.finish(Some(problem));
    }

    /// The end.
    pub(super) fn end(&mut self, ending: Ending) {
        match ending {
            Ending::Good => {
                self.finish(None);
                let took = seconds(self.begun.elapsed());
                self.line(&format!(
                    "\nThat took {took}. Nothing of it is left: no process, no file."
                ));
                self.line("Next: stayput serve --config FILE, with the mcpServers you have.");
            }
            Ending::Bad => self.line("\nThis is not how it should be."),
            Ending::Interrupted => {
                self.line("\nStopped. Nothing of it is left: no process, no file.");
            }
        }
    }

    fn note(&mut self, line: String) {
        if let Some(step) = &mut self.step {
            step.said.push(line);
        }
    }

    /// The step that is under way is over. Programs hear of it now.
    fn finish(&mut self, problem: Option<&str>) {
        let Some(step) = self.step.take() else { return };
        if self.json {
            let millis = u64::try_from(step.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut told = json!({
                "step": step.name,
                "title": step.title,
                "ok": problem.is_none(),
                "seen": step.said,
                "millis": millis,
            });
            if let Some(problem) = problem {
                told["problem"] = problem.into();
            }
            self.write(&format!("{told}\n"));
        }
    }

    /// A line for people.
    fn line(&self, line: &str) {
        if !self.json {
            let clear = if self.terminal { CLEAR } else { "" };
            self.write(&format!("{clear}{line}\n"));
        }
    }

    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        // Who does not read does not want to know.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A time as people say it.
pub(super) fn seconds(time: Duration) -> String {
    let millis = time.as_millis();
    if millis < 1_000 { format!("{millis} ms") } else { format!("{:.1} s", time.as_secs_f64()) }
}
